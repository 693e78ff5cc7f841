//! The node's copies of the variables, between the tasks and the znodes.

use std::{
    any::TypeId as RustType,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard},
};

use super::{lock, signals::Signals, work::SHOWN_ENCODED_BYTES_MAX};
use crate::{
    variable::{AnyValue, Declared, Score, Variables},
    wire::codec::{DecodeError, EncodeError},
};

/// The variables of a node, in order of declaration.
#[derive(Debug)]
pub(crate) struct VariableTable {
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    declared: Declared,
    copy: Mutex<NodeCopy>,
}

#[derive(Default)]
struct NodeCopy {
    value: Option<Arc<AnyValue>>,
    /// Increases with each improvement.
    version: u64,
    /// The version that the znode is known to be at least as good as.
    published: u64,
    /// The number of times that the znode was overwritten because its content could not be decoded.
    overwritten: u32,
}

/// The maximum number of times that a node overwrites a variable's znode because its content cannot be
/// decoded.
const OVERWRITES_MAX: u32 = 3;

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A task here, or another node: the znode may not have the value.
    Node,
    /// The znode itself.
    Znode,
}

/// A value of a variable that may be better than the one in the znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unpublished {
    /// The index of the variable in the declaration.
    pub(crate) slot: usize,
    pub(crate) name: &'static str,
    /// The value, encoded.
    pub(crate) value: Vec<u8>,
    /// The version to pass to [`VariableTable::published`].
    pub(crate) version: u64,
    /// The name of the variable and the score of the value, if it has one, for display.
    pub(crate) detail: String,
}

impl VariableTable {
    pub(crate) fn new(variables: Variables) -> Self {
        let slot = |declared| Slot { declared, copy: Mutex::default() };
        Self { slots: variables.declared.into_iter().map(slot).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn name(&self, slot: usize) -> &'static str {
        self.slots[slot].declared.name
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.slots.iter().map(|slot| slot.declared.name)
    }

    /// Returns the types of the variables, in the order of their declaration.
    pub(crate) fn types(&self) -> impl Iterator<Item = RustType> + '_ {
        self.slots.iter().map(|slot| slot.declared.variable)
    }

    pub(crate) fn slot_of(&self, variable: RustType) -> Option<usize> {
        self.slots.iter().position(|slot| slot.declared.variable == variable)
    }

    pub(crate) fn read(&self, slot: usize) -> Option<Arc<AnyValue>> {
        self.slots[slot].copy().value.clone()
    }

    /// Adopts a value if it improves on the node's copy. Returns whether it did.
    pub(crate) fn offer(&self, slot: usize, value: Arc<AnyValue>, from: Source, signals: &Signals) -> bool {
        let slot = &self.slots[slot];
        loop {
            // The comparison is the program's code and runs without the lock, because other holders must not
            // wait for it.
            let (old, version) = {
                let copy = slot.copy();
                (copy.value.clone(), copy.version)
            };
            if old.is_some_and(|old| !(slot.declared.improves)(&*value, &*old)) {
                return false;
            }
            let mut copy = slot.copy();
            // The copy was improved concurrently: compare again.
            if copy.version != version {
                continue;
            }
            let before = copy.value.replace(value);
            copy.version += 1;
            if from == Source::Znode {
                copy.published = copy.version;
            }
            drop(copy);
            drop(before);
            signals.next_epoch();
            return true;
        }
    }

    /// Adopts an encoded value if it improves. A slot that this program does not have is ignored.
    pub(crate) fn offer_encoded(
        &self,
        slot: usize,
        bytes: &[u8],
        from: Source,
        signals: &Signals,
    ) -> Result<bool, DecodeError> {
        let Some(known) = self.slots.get(slot) else { return Ok(false) };
        let value = (known.declared.decode)(bytes)?;
        Ok(self.offer(slot, value, from, signals))
    }

    pub(crate) fn encoded(&self, slot: usize) -> Result<Option<Vec<u8>>, EncodeError> {
        let value = self.read(slot);
        value.map(|value| (self.slots[slot].declared.encode)(&*value)).transpose()
    }

    /// Returns the value of a variable as JSON, for display; null if it has none, is large, or has no JSON
    /// form.
    pub(crate) fn shown(&self, slot: usize) -> serde_json::Value {
        let small = |bytes: Vec<u8>| bytes.len() <= SHOWN_ENCODED_BYTES_MAX;
        if !self.encoded(slot).ok().flatten().is_some_and(small) {
            return serde_json::Value::Null;
        }
        self.read(slot).map(|value| (self.slots[slot].declared.show)(&*value)).unwrap_or_default()
    }

    /// Returns the first value that has a score, which is a finite number, and the name of its variable. `None` if the
    /// program's `score` panics.
    pub(crate) fn score(&self) -> Option<(&'static str, Score)> {
        let score = |slot: usize| {
            let declared = &self.slots[slot].declared;
            let (score, _) = score_of(declared, &*self.read(slot)?)?;
            Some((declared.name, score))
        };
        (0..self.len()).find_map(score)
    }

    /// Returns whether the encoded value `new` improves on the encoded value `old`.
    pub(crate) fn improves(&self, slot: usize, new: &[u8], old: &[u8]) -> Result<bool, DecodeError> {
        let declared = &self.slots[slot].declared;
        Ok((declared.improves)(&*(declared.decode)(new)?, &*(declared.decode)(old)?))
    }

    /// Returns the values that may be missing in their znodes.
    pub(crate) fn unpublished(&self) -> Result<Vec<Unpublished>, EncodeError> {
        let mut values = Vec::new();
        for (slot, Slot { declared, copy }) in self.slots.iter().enumerate() {
            let (value, version) = {
                let copy = lock(copy);
                if copy.version == copy.published {
                    continue;
                }
                (copy.value.clone(), copy.version)
            };
            if let Some(value) = value {
                let name = declared.name;
                let detail = match score_of(declared, &*value) {
                    Some((_, number)) => format!("{name} {number}"),
                    None => name.to_owned(),
                };
                let value = (declared.encode)(&*value)?;
                values.push(Unpublished { slot, name, value, version, detail });
            }
        }
        Ok(values)
    }

    /// Records that a variable's znode cannot be decoded. Returns whether to overwrite it, which is limited
    /// because another node may in turn be unable to decode ours.
    pub(crate) fn unreadable(&self, slot: usize) -> bool {
        let mut copy = self.slots[slot].copy();
        let again = copy.value.is_some() && copy.overwritten < OVERWRITES_MAX;
        if again {
            copy.overwritten += 1;
            copy.version += 1;
        }
        again
    }

    /// Records that a variable's znode is at least as good as this version of the node's copy.
    pub(crate) fn published(&self, slot: usize, version: u64) {
        let mut copy = self.slots[slot].copy();
        copy.published = copy.published.max(version);
    }
}

/// Returns the score of a value, and its number, if that is finite. `None` if the program's `score` panics.
fn score_of(declared: &Declared, value: &AnyValue) -> Option<(Score, f64)> {
    let score = catch_unwind(AssertUnwindSafe(|| (declared.score)(value))).ok()??;
    let (Score::Cost(number) | Score::Profit(number)) = score;
    number.is_finite().then_some((score, number))
}

impl Slot {
    fn copy(&self) -> MutexGuard<'_, NodeCopy> {
        lock(&self.copy)
    }
}

impl std::fmt::Debug for NodeCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCopy").field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Condvar, thread, time::Duration};

    use super::*;
    use crate::variable::Variable;

    /// The state of a comparison: started, and allowed to finish.
    static GATE: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

    /// A variable with a comparison that blocks until the test permits it to finish.
    struct Slow;

    impl Variable for Slow {
        type Value = u64;
        const NAME: &'static str = "slow";
        fn improves(new: &u64, old: &u64) -> bool {
            let (stands, changed) = &GATE;
            stands.lock().unwrap().0 = true;
            changed.notify_all();
            let wait = changed.wait_timeout_while(stands.lock().unwrap(), Duration::from_secs(60), |s| !s.1);
            assert!(!wait.unwrap().1.timed_out(), "the driver waits for the comparison");
            new > old
        }
    }

    /// A variable with its values as scores; zero has none.
    struct Scored;

    impl Variable for Scored {
        type Value = u64;
        const NAME: &'static str = "scored";
        fn improves(new: &u64, old: &u64) -> bool {
            new > old
        }
        fn score(value: &u64) -> Option<Score> {
            assert!(*value != 1, "a mistake of the program");
            (*value > 0).then_some(Score::Profit(*value as f64 + 0.5))
        }
    }

    #[test]
    fn unpublished_value_states_its_score_if_it_has_one() {
        let mut declared = Variables::default();
        declared.declare::<Scored>();
        let (table, signals) = (VariableTable::new(declared), Signals::default());
        for (value, detail) in [(0_u64, "scored"), (1, "scored"), (7, "scored 7.5")] {
            assert!(table.offer(0, Arc::new(value), Source::Node, &signals));
            assert_eq!(table.unpublished().unwrap()[0].detail, detail);
        }
    }

    #[test]
    fn slow_comparison_does_not_block_other_callers() {
        let mut declared = Variables::default();
        declared.declare::<Slow>();
        let (table, signals) = (Arc::new(VariableTable::new(declared)), Arc::new(Signals::default()));
        assert!(table.offer(0, Arc::new(1_u64), Source::Node, &signals));
        let (its, its_signals) = (Arc::clone(&table), Arc::clone(&signals));
        let worker = thread::spawn(move || its.offer(0, Arc::new(2_u64), Source::Node, &its_signals));
        let (stands, changed) = &GATE;
        drop(changed.wait_while(stands.lock().unwrap(), |s| !s.0).unwrap());
        let unpublished = table.unpublished().unwrap();
        assert_eq!(unpublished.len(), 1, "asked while it is compared");
        table.published(0, unpublished[0].version);
        stands.lock().unwrap().1 = true;
        changed.notify_all();
        assert!(worker.join().unwrap());
        assert_eq!(table.read(0).unwrap().downcast_ref::<u64>(), Some(&2));
    }
}

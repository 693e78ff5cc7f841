//! Values by name, with their changes since a tick.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The maximum number of removed names that are remembered.
const REMOVED_MAX: usize = 4_096;

/// Values by name, each with the number of the tick at which it last changed.
#[derive(Debug, Clone)]
pub(super) struct Tracked<T> {
    now: BTreeMap<String, (u64, T)>,
    removed: VecDeque<(u64, String)>,
    /// The last tick whose removed names were forgotten.
    forgotten: u64,
}

/// The changes of values by name. Removals are applied first, then `set`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changes<T> {
    /// The removed names.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// The new and changed values.
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, T>,
}

impl<T> Changes<T> {
    /// Returns whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.set.is_empty()
    }

    pub(super) fn apply(self, to: &mut BTreeMap<String, T>) {
        for name in &self.gone {
            to.remove(name);
        }
        to.extend(self.set);
    }
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { gone: Vec::new(), set: BTreeMap::new() }
    }
}

impl<T> Default for Tracked<T> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), removed: VecDeque::new(), forgotten: 0 }
    }
}

impl<T: Clone + PartialEq> Tracked<T> {
    /// Sets a value, if it has changed.
    pub(super) fn set(&mut self, tick: u64, name: &str, thing: T) {
        match self.now.get_mut(name) {
            Some((_, known)) if *known == thing => {}
            Some(known) => *known = (tick, thing),
            None => drop(self.now.insert(name.to_owned(), (tick, thing))),
        }
    }

    /// Removes the values that `keep` rejects.
    pub(super) fn retain(&mut self, tick: u64, keep: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.now.keys().filter(|name| !keep(name)).cloned().collect();
        for name in gone {
            self.now.remove(&name);
            if self.removed.len() >= REMOVED_MAX
                && let Some((forgotten, _)) = self.removed.pop_front()
            {
                self.forgotten = forgotten;
            }
            self.removed.push_back((tick, name));
        }
    }

    /// Returns the changes after a tick; `None` if they are no longer known.
    pub(super) fn since(&self, tick: u64) -> Option<Changes<T>> {
        if tick < self.forgotten {
            return None;
        }
        let gone = self.removed.iter().filter(|(at, _)| *at > tick).map(|(_, name)| name.clone()).collect();
        let changed = self.now.iter().filter(|(_, (at, _))| *at > tick);
        let set = changed.map(|(name, (_, thing))| (name.clone(), thing.clone())).collect();
        Some(Changes { gone, set })
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.now.get(name).map(|(_, thing)| thing)
    }

    pub(super) fn all(&self) -> BTreeMap<String, T> {
        self.now.iter().map(|(name, (_, thing))| (name.clone(), thing.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracked_changes_turn_the_old_map_into_the_new() {
        let mut tracked = Tracked::default();
        tracked.set(1, "a", 1);
        tracked.set(1, "b", 1);
        let mut then = tracked.all();
        tracked.set(2, "a", 1);
        tracked.retain(2, |name| name != "b");
        tracked.set(3, "b", 7);
        tracked.set(3, "c", 1);
        let changes = tracked.since(1).unwrap();
        assert_eq!(changes.set.keys().collect::<Vec<_>>(), ["b", "c"], "a is as it was");
        changes.apply(&mut then);
        assert_eq!(then, tracked.all());
        assert!(tracked.since(3).unwrap().is_empty());
    }

    #[test]
    fn tracked_too_many_removals_are_forgotten() {
        let mut tracked = Tracked::default();
        for number in 0..=REMOVED_MAX as u64 {
            tracked.set(number, "a", 1);
            tracked.retain(number + 1, |_| false);
        }
        assert_eq!(tracked.since(0), None);
        assert!(tracked.since(1).is_some());
    }
}

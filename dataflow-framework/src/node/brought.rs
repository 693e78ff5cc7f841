//! Versions that are brought to a node which has another execution of their call.
//!
//! A call that is not run a second time when its end is recorded may run twice before: since its node is cut off, or the
//! program begins anew and is not told yet who runs it. Each execution may write something else, and what counts is what
//! the head says: that which it has brought here, and not what the execution here has written, or writes when it ends.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::executor::Executor;
use crate::{
    core::{Mark, Outcome},
    ids::VersionId,
    value::Value,
};

impl Executor {
    /// Returns the versions that are of no use without this one: what the same execution of a call has written whose end
    /// nobody may have seen.
    pub(super) fn goes_with(&self, version: VersionId) -> Vec<VersionId> {
        let duty = self.duty();
        let Some((_, Outcome::Durable { bytes, .. })) = duty.unseen.get(&version.call) else {
            return Vec::new();
        };
        let all = (0..).zip(bytes).map(|(slot, _)| VersionId { slot, ..version });
        all.filter(|other| *other != version && !duty.brought.contains(other) && self.store.has(*other))
            .collect()
    }

    /// Returns a number for an execution whose end is recorded, which no other one has of the same call.
    pub(super) fn number_execution(&self) -> u64 {
        let mut duty = self.duty();
        duty.executions += 1;
        let mut hasher = DefaultHasher::new();
        (self.name(), duty.executions).hash(&mut hasher);
        hasher.finish()
    }

    /// Keeps a version that was brought here. If this node has another execution of its call, which may write something
    /// else, it is this version that counts.
    pub(super) fn keep_brought(
        &self,
        version: VersionId,
        value: Value,
        mark: Mark,
        bytes: u64,
        is_copy: bool,
    ) {
        let mut duty = self.duty();
        let has_another = duty.has_execution(version.call);
        if has_another {
            duty.brought.insert(version);
            // With the lock, since that execution may end.
            return self.keep(version, value, mark, bytes, is_copy);
        }
        drop(duty);
        self.keep(version, value, mark, bytes, is_copy);
    }

    /// Keeps what an execution has written here that may write something else each time, unless what another one has
    /// written was brought here. Returns whether it is kept.
    pub(super) fn keep_own(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) -> bool {
        let duty = self.duty();
        let counts = !duty.brought.contains(&version);
        if counts {
            self.keep(version, value, mark, bytes, false);
        }
        drop(duty);
        counts
    }

    /// Forgets a version that is to be brought here, if what is here was written by an execution whose end nobody may
    /// have seen. Returns whether that is so.
    pub(super) fn gives_up_unseen(&self, version: VersionId) -> bool {
        let duty = self.duty();
        let is_unseen = duty.unseen.contains_key(&version.call) && !duty.brought.contains(&version);
        let value = if is_unseen { self.store.forget(version) } else { None };
        drop(duty);
        drop(value);
        is_unseen
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;
    use crate::{
        core::Held,
        ids::CallId,
        node::{Missing, store::Store},
        program::Engine,
    };

    const CALL: CallId = 7;

    /// Creates the site of a node of several, on which the call has begun, and returns the run of the program.
    fn running() -> (Executor, u64) {
        let site = Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks);
        let epoch = site.begin(Weak::<Engine>::new()).epoch;
        let _begins = site.begins(epoch, CALL, Mark::default());
        (site, epoch)
    }

    fn version(slot: u32) -> VersionId {
        VersionId { call: CALL, slot }
    }

    fn write(site: &Executor, slot: u32, content: u8) -> bool {
        site.keep_own(version(slot), Value::from_encoded(vec![content]), Mark::default(), 1)
    }

    /// Ends the call for ever: it has written two versions.
    fn end(site: &Executor, epoch: u64) {
        let outcome =
            Outcome::Durable { bytes: vec![1, 1], ns: 0, by: site.number_execution(), values: None };
        site.tell(epoch, (CALL, Mark::default()), false, outcome);
    }

    /// Has a version brought for a call that reads it, with this content. Returns whether that is of use.
    fn bring(site: &Executor, slot: u32, content: u8) -> bool {
        let content = Some(vec![content]);
        let missing = Missing { version: version(slot), mark: Mark::default(), from: Vec::new(), content };
        !site.take_in(&mut vec![missing]).is_empty()
    }

    fn held(site: &Executor) -> Vec<VersionId> {
        let held = site.begin(Weak::<Engine>::new()).held;
        held.into_iter().map(|Held { version, .. }| version).collect()
    }

    #[test]
    fn what_another_execution_has_written_counts_where_a_call_reads_it() {
        for ends_first in [false, true] {
            let (site, epoch) = running();
            if ends_first {
                assert!(write(&site, 0, 1) && write(&site, 1, 1));
                end(&site, epoch);
                assert!(bring(&site, 0, 2), "what is here may be something else");
            } else {
                assert!(bring(&site, 0, 2));
                assert!(!write(&site, 0, 1) && write(&site, 1, 1));
                end(&site, epoch);
            }
            assert_eq!(site.small(version(0)), Some(vec![2]));
            assert!(!bring(&site, 0, 3), "it was brought already");
            assert_eq!(held(&site), [version(0)], "the other one is told with the end of its execution");
        }
    }

    #[test]
    fn what_is_left_of_an_execution_is_forgotten_when_the_call_begins_again() {
        let (site, epoch) = running();
        assert!(write(&site, 0, 1) && write(&site, 1, 1));
        end(&site, epoch);
        assert_eq!(site.goes_with(version(0)), [version(1)]);
        assert!(bring(&site, 0, 2));
        drop(site.store.forget(version(0)));
        let _begins = site.begins(epoch, CALL, Mark::default());
        assert!(!site.store.has(version(1)) && write(&site, 0, 3));
        assert_eq!(site.small(version(0)), Some(vec![3]), "it is this one that counts");
    }

    #[test]
    fn an_execution_of_which_something_is_lost_is_not_told() {
        let (site, epoch) = running();
        assert!(write(&site, 0, 1) && write(&site, 1, 1));
        end(&site, epoch);
        drop(site.store.forget(version(0)));
        let inventory = site.begin(Weak::<Engine>::new());
        assert!(inventory.unseen.is_empty() && inventory.running.is_empty() && inventory.held.is_empty());
        assert!(!site.store.has(version(1)));
    }

    #[test]
    fn what_is_recorded_and_small_is_not_told_with_its_end_any_more() {
        for is_large in [false, true] {
            let (site, epoch) = running();
            assert!(write(&site, 0, 1));
            let values = (!is_large).then(|| vec![vec![1]]);
            let outcome = Outcome::Durable { bytes: vec![1], ns: 0, by: 0, values };
            site.tell(epoch, (CALL, Mark::default()), false, outcome);
            site.is_recorded(|call, _| call == CALL);
            // Of what is large only this node knows whether it is what was recorded.
            assert_eq!(site.begin(Weak::<Engine>::new()).unseen.len(), usize::from(is_large));
        }
    }

    #[test]
    fn executions_have_numbers_of_their_own() {
        let (site, _) = running();
        assert_ne!(site.number_execution(), site.number_execution());
    }
}

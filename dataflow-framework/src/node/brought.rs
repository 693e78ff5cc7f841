//! Fetched versions on a node that has its own execution of the same call.
//!
//! A run-once call may run twice before its outcome is recorded: its node may be cut off, or the program may restart
//! before it knows which node runs the call. The two executions may have different outputs. The coordinator decides: a
//! version that it has sent here is valid, not the output of the local execution.

use super::executor::Executor;
use crate::{
    core::{Mark, Outcome},
    encoding::stable_hash,
    ids::VersionId,
    value::Value,
};

impl Executor {
    /// Returns the versions that are useless without this one: the rest of the output of the same execution, whose
    /// outcome may not be recorded yet.
    pub(super) fn rest_of_output(&self, version: VersionId) -> Vec<VersionId> {
        let assignments = self.assignments();
        let Some((_, Outcome::Durable { bytes, .. })) = assignments.unseen.get(&version.call) else {
            return Vec::new();
        };
        let all = (0..).zip(bytes).map(|(slot, _)| VersionId { slot, ..version });
        all.filter(|other| {
            *other != version && !assignments.brought.contains(other) && self.store.has(*other)
        })
        .collect()
    }

    /// Returns an id for a recorded execution, unique among the executions of its call.
    #[expect(clippy::cast_possible_truncation, reason = "64 bits of a hash are enough to number executions")]
    pub(super) fn number_execution(&self) -> u64 {
        let mut assignments = self.assignments();
        assignments.executions += 1;
        stable_hash(&(self.name(), assignments.executions)) as u64
    }

    /// Stores a fetched version. It replaces the output of a local execution of the same call, which may be
    /// different.
    pub(super) fn keep_brought(
        &self,
        version: VersionId,
        value: Value,
        mark: Mark,
        bytes: u64,
        is_copy: bool,
    ) {
        let mut assignments = self.assignments();
        let has_another = assignments.has_execution(version.call);
        if has_another {
            assignments.brought.insert(version);
            // The lock is held, because that execution may complete.
            return self.keep(version, value, mark, bytes, is_copy);
        }
        drop(assignments);
        self.keep(version, value, mark, bytes, is_copy);
    }

    /// Stores a local output that may differ between executions, unless the version was already fetched. Returns
    /// whether it is stored.
    pub(super) fn keep_own(&self, version: VersionId, value: Value, mark: Mark, bytes: u64) -> bool {
        let assignments = self.assignments();
        let counts = !assignments.brought.contains(&version);
        if counts {
            self.keep(version, value, mark, bytes, false);
        }
        drop(assignments);
        counts
    }

    /// Removes the local copy of a version to be fetched, if it was written by an execution whose outcome may not be
    /// recorded. Returns whether it did.
    pub(super) fn gives_up_unseen(&self, version: VersionId) -> bool {
        let assignments = self.assignments();
        let is_unseen =
            assignments.unseen.contains_key(&version.call) && !assignments.brought.contains(&version);
        let value = if is_unseen { self.store.forget(version) } else { None };
        drop(assignments);
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

    /// Creates an executor with peers that runs the call, and returns the run of the program.
    fn running() -> (Executor, u64) {
        let executor =
            Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks);
        let epoch = executor.begin(Weak::<Engine>::new()).epoch;
        let _begins = executor.start_call(epoch, CALL, Mark::default());
        (executor, epoch)
    }

    fn version(slot: u32) -> VersionId {
        VersionId { call: CALL, slot }
    }

    fn write(executor: &Executor, slot: u32, content: u8) -> bool {
        executor.keep_own(version(slot), Value::from_encoded(vec![content]), Mark::default(), 1)
    }

    /// Completes the call permanently, with two versions as output.
    fn end(executor: &Executor, epoch: u64) {
        let outcome =
            Outcome::Durable { bytes: vec![1, 1], ns: 0, by: executor.number_execution(), values: None };
        executor.report_outcome(epoch, (CALL, Mark::default()), false, outcome);
    }

    /// Sends the executor a version with this content in an assignment. Returns whether it was stored.
    fn bring(executor: &Executor, slot: u32, content: u8) -> bool {
        let content = Some(vec![content]);
        let missing = Missing { version: version(slot), mark: Mark::default(), from: Vec::new(), content };
        !executor.take_in(&mut vec![missing]).is_empty()
    }

    fn held(executor: &Executor) -> Vec<VersionId> {
        let held = executor.begin(Weak::<Engine>::new()).held;
        held.into_iter().map(|Held { version, .. }| version).collect()
    }

    #[test]
    fn fetched_version_replaces_output_of_local_execution() {
        for ends_first in [false, true] {
            let (executor, epoch) = running();
            if ends_first {
                assert!(write(&executor, 0, 1) && write(&executor, 1, 1));
                end(&executor, epoch);
                assert!(bring(&executor, 0, 2), "the local output may be different");
            } else {
                assert!(bring(&executor, 0, 2));
                assert!(!write(&executor, 0, 1) && write(&executor, 1, 1));
                end(&executor, epoch);
            }
            assert_eq!(executor.small(version(0)), Some(vec![2]));
            assert!(!bring(&executor, 0, 3), "it was brought already");
            assert_eq!(held(&executor), [version(0)], "the other one is reported with the outcome");
        }
    }

    #[test]
    fn rest_of_output_is_removed_when_the_call_starts_again() {
        let (executor, epoch) = running();
        assert!(write(&executor, 0, 1) && write(&executor, 1, 1));
        end(&executor, epoch);
        assert_eq!(executor.rest_of_output(version(0)), [version(1)]);
        assert!(bring(&executor, 0, 2));
        drop(executor.store.forget(version(0)));
        let _begins = executor.start_call(epoch, CALL, Mark::default());
        assert!(!executor.store.has(version(1)) && write(&executor, 0, 3));
        assert_eq!(executor.small(version(0)), Some(vec![3]), "the second execution's output is valid");
    }

    #[test]
    fn execution_with_incomplete_output_is_not_reported() {
        let (executor, epoch) = running();
        assert!(write(&executor, 0, 1) && write(&executor, 1, 1));
        end(&executor, epoch);
        drop(executor.store.forget(version(0)));
        let inventory = executor.begin(Weak::<Engine>::new());
        assert!(inventory.unseen.is_empty() && inventory.running.is_empty() && inventory.held.is_empty());
        assert!(!executor.store.has(version(1)));
    }

    #[test]
    fn recorded_small_outcome_is_not_reported_again() {
        for is_large in [false, true] {
            let (executor, epoch) = running();
            assert!(write(&executor, 0, 1));
            let values = (!is_large).then(|| vec![vec![1]]);
            let outcome = Outcome::Durable { bytes: vec![1], ns: 0, by: 0, values };
            executor.report_outcome(epoch, (CALL, Mark::default()), false, outcome);
            executor.remove_recorded(|call, _| call == CALL);
            // Only this node knows whether its large output is the recorded one.
            assert_eq!(executor.begin(Weak::<Engine>::new()).unseen.len(), usize::from(is_large));
        }
    }

    #[test]
    fn execution_ids_are_unique() {
        let (executor, _) = running();
        assert_ne!(executor.number_execution(), executor.number_execution());
    }
}

//! Invariants that are checked after each step.

use std::cmp::Reverse;

use super::{MEMORY, Run};
use crate::{
    core::{Demand, Fact, call::CallState, virtual_stores},
    ids::{CallId, VersionId},
};

impl Run {
    /// Returns whether the journal has the completion of a call, which must not run again then.
    pub(super) fn is_recorded(&self, call: CallId) -> bool {
        self.journal.iter().any(|fact| matches!(fact, Fact::Ended(_)) && fact.calls() == [call])
    }

    /// Returns whether the outcome of a call is visible: its completion or its ignored failure is recorded.
    pub(super) fn may_be_seen(&self, call: CallId) -> bool {
        self.is_recorded(call) || self.journal.contains(&Fact::Ignored(call))
    }

    /// Returns whether the program has failed because lost data can be neither recomputed nor restored.
    pub(super) fn has_failed_by_loss(&self) -> bool {
        let Some(failure) = self.graph.fatal() else { return false };
        assert!(self.durable.contains(&failure.call()), "{failure}");
        true
    }

    /// Records that an output was seen, and checks that every reader sees the same value.
    pub(super) fn record_seen(&mut self, version: VersionId, value: u64) {
        if self.has_journal && self.durable.contains(&version.call) {
            assert!(self.may_be_seen(version.call), "{version:?} is seen before it is recorded");
            let before = *self.seen.entry(version).or_insert(value);
            assert_eq!(before, value, "{version:?} differs from its earlier value");
        }
    }

    /// Checks that the calls that a member may run at a time have its resources: as many as it has workers. Next to
    /// a multi-core call, no assigned call may wait.
    pub(super) fn check_demands(&self) {
        for (member, workers) in &self.workers {
            let on_it = self.running.iter().filter(|running| {
                running.member == *member
                    && self
                        .graph
                        .known()
                        .calls
                        .get(&running.assignment.call)
                        .is_some_and(|call| call.state == CallState::Runs(*member))
            });
            // Calls from an earlier run were unknown to the graph when it assigned more.
            if on_it.clone().any(|running| running.is_earlier) {
                continue;
            }
            let demands: Vec<_> = on_it
                .map(|running| Demand::of(&self.graph.known().calls[&running.assignment.call].options))
                .collect();
            let cores: u32 = demands.iter().map(|demand| demand.cores).sum();
            let mut memory: Vec<_> = demands.iter().map(|demand| demand.memory).collect();
            memory.sort_unstable_by_key(|bytes| Reverse(*bytes));
            let memory: u64 = memory.into_iter().take(*workers as usize).sum();
            let is_any_wide = demands.iter().any(|demand| demand.cores > 1);
            assert!(!is_any_wide || cores <= *workers, "{member:?} has {workers} workers for {demands:?}");
            assert!(memory <= MEMORY, "{member:?} has too little memory for {demands:?}");
        }
    }

    /// Checks that no other call with a limit runs when one starts.
    pub(super) fn check_limit(&self, starts: CallId) {
        let calls = &self.graph.known().calls;
        let others = self.running.iter().filter(|other| {
            let call = other.assignment.call;
            let counts = calls.get(&call).map_or(other.is_earlier && call >= self.next, |known| {
                known.state == CallState::Runs(other.member)
            });
            self.limited.contains(&call) && call != starts && counts
        });
        let others: Vec<_> = others.map(|other| other.assignment.call).collect();
        assert!(!self.limited.contains(&starts) || others.is_empty(), "{starts} starts next to {others:?}");
    }

    /// Checks that each member stores the data that the graph assumes there.
    pub(super) fn check(&self) {
        self.check_demands();
        virtual_stores::check(&self.stores, &self.graph);
    }
}

//! What must hold after each step.

use super::{MEMORY, Run};
use crate::{
    core::{Demand, Fact, call::CallState, version::State},
    ids::{CallId, VersionId},
};

impl Run {
    /// Returns whether it stands in the journal that a call is not run again.
    pub(super) fn is_recorded(&self, call: CallId) -> bool {
        self.journal.iter().any(|fact| matches!(fact, Fact::Ended(_)) && fact.calls() == [call])
    }

    /// The same, or that its failure is ignored.
    pub(super) fn may_be_seen(&self, call: CallId) -> bool {
        self.is_recorded(call) || self.journal.contains(&Fact::Ignored(call))
    }

    /// Returns whether the program has failed because something is lost that is neither made again nor in the journal.
    pub(super) fn has_lost_what_is_not_made_again(&self) -> bool {
        let Some(failure) = self.graph.fatal() else { return false };
        assert!(self.durable.contains(&failure.call()), "{failure}");
        true
    }

    /// Notes that somebody sees what a call has written: it is the same for all.
    pub(super) fn sees(&mut self, version: VersionId, value: u64) {
        if self.has_journal && self.durable.contains(&version.call) {
            assert!(self.may_be_seen(version.call), "{version:?} is seen before it is recorded");
            let before = *self.seen.entry(version).or_insert(value);
            assert_eq!(before, value, "{version:?} is something else than before");
        }
    }

    /// Checks that no member has more to do than it can: if a call takes several workers, none waits beside it.
    pub(super) fn check_demands(&self) {
        for (member, workers) in &self.workers {
            let on_it = self.running.iter().filter(|running| {
                running.member == *member
                    && self
                        .graph
                        .calls
                        .get(&running.assignment.call)
                        .is_some_and(|call| call.state == CallState::Runs(*member))
            });
            // What it has begun in an earlier run of the program nobody knew when it was given more.
            if on_it.clone().any(|running| running.is_earlier) {
                continue;
            }
            let demands: Vec<_> = on_it
                .map(|running| Demand::of(&self.graph.calls[&running.assignment.call].options))
                .collect();
            let cores: u32 = demands.iter().map(|demand| demand.cores).sum();
            let memory: u64 = demands.iter().map(|demand| demand.memory).sum();
            let is_any_wide = demands.iter().any(|demand| demand.cores > 1);
            assert!(!is_any_wide || cores <= *workers, "{member:?} has {workers} workers for {demands:?}");
            assert!(memory <= MEMORY, "{member:?} has too little memory for {demands:?}");
        }
    }

    /// Checks that everything is where the graph says it is.
    pub(super) fn check(&self) {
        self.check_demands();
        for (id, version) in &self.graph.versions {
            let State::Present(copies) = &version.state else { continue };
            assert!(!copies.members.is_empty(), "{id:?}");
            for member in &copies.members {
                assert!(self.stores[member].contains_key(id), "{id:?} is not with {member:?}");
            }
        }
    }
}

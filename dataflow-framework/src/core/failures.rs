//! The failures that the program receives, and the groups of calls that they cancel.

use std::ops::Range;

use super::{
    data::Data,
    groups::{Group, Groups},
    nests::Nests,
    observed::Observed,
};
use crate::{
    failure::{Failure, Reason},
    ids::CallId,
    options::OnFailure,
};

/// The failures that the program receives, and the groups of calls that they cancel.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The failures of calls of the program, by the numbers of the calls.
    all: Vec<Failure>,
    /// The failures that the program may not have received, in the order of their occurrence.
    unseen: Vec<Failure>,
    /// The failure that ends the program immediately.
    pub(super) fatal: Option<Failure>,
    /// The groups of the program.
    pub(super) groups: Groups,
}

impl Failures {
    pub(super) fn add(&mut self, failure: Failure) {
        let at = self.all.partition_point(|other| other.call() <= failure.call());
        self.all.insert(at, failure.clone());
        self.unseen.push(failure);
    }

    /// Returns the failures of a range of calls.
    pub(super) fn of(&self, calls: Range<CallId>) -> &[Failure] {
        let at = |end: CallId| self.all.partition_point(|failure| failure.call() < end);
        let start = at(calls.start);
        &self.all[start..at(calls.end).max(start)]
    }

    /// Returns the first failure of a call.
    pub(super) fn of_call(&self, call: CallId) -> Option<&Failure> {
        let at = self.all.partition_point(|failure| failure.call() < call);
        self.all.get(at).filter(|failure| failure.call() == call)
    }

    /// Returns the failures that the program has not received.
    pub(super) fn unseen(&mut self) -> &[Failure] {
        self.unseen.retain(|failure| !failure.is_seen());
        &self.unseen
    }

    pub(super) fn close_group(&mut self, data: &Data, calls: Range<CallId>) {
        self.groups.close(&calls);
        self.groups.forget_ended(|calls| !data.calls.any_unfinished(calls));
    }

    pub(super) fn report_failure(
        &mut self,
        data: &Data,
        nests: &mut Nests,
        observed: &mut Observed,
        id: CallId,
        failure: &Failure,
        on_failure: OnFailure,
    ) {
        // A restarted program cancels the call again.
        let parent = data.within(id).map(|within| within.parent);
        let nest = parent.and_then(|parent| nests.by_call.get_mut(&parent));
        if !data.journal.history().failure(id).is_some_and(Reason::is_cancelled) {
            if on_failure == OnFailure::CancelGroup {
                failure.set_cancels_group();
            }
            match (parent, nest) {
                (None, _) => self.add(failure.clone()),
                // The task that has made the call receives the failure.
                (Some(_), Some(nest)) => nest.failures.push(failure.clone()),
                (Some(_), None) => return,
            }
            observed.record_failure(data.calls[&id].task(), failure);
            if on_failure == OnFailure::Fail {
                self.fatal.get_or_insert_with(|| failure.clone());
            }
        }
    }

    /// Returns the group to cancel because of the failure of a call, if the call has that option.
    pub(super) fn group_to_cancel(
        &mut self,
        data: &Data,
        nests: &mut Nests,
        next: CallId,
        id: CallId,
        on_failure: OnFailure,
    ) -> Option<Group> {
        if on_failure != OnFailure::CancelGroup {
            return None;
        }
        let Some(within) = data.within(id) else {
            return self.groups.of(id, next).map(Group::OfProgram);
        };
        let nest = nests.by_call.get_mut(&within.parent)?;
        let calls = nest.groups.of(within.position, u64::MAX)?;
        Some(Group::OfTask(within.parent, calls))
    }
}

//! The cancellation of calls: those that have not started never start, and their members end those that run.
//!
//! A cancelled call ends at once for the program, and its place on its member becomes free when the member returns it. With
//! a journal the cancellation is recorded first, and only then is the member notified: otherwise a restarted program that
//! does not cancel the call could find that it was ended.

use std::ops::Range;

use super::Graph;
use crate::{
    core::{
        action::Action,
        call::{CallState, Outcome},
        groups::Group,
        journal::fact::Fact,
        members::Member,
        stopping::Stopped,
    },
    failure::Reason,
    ids::{CallId, VersionId, number_within},
};

impl Graph {
    /// Cancels calls, and the calls that depend on them.
    pub(crate) fn cancel_all(&mut self, calls: Range<CallId>) {
        self.cancel_each(calls);
    }

    /// Cancels calls, the calls that depend on them, and those that they have made.
    pub(super) fn cancel_each(&mut self, calls: impl IntoIterator<Item = CallId>) {
        for id in calls {
            self.take_from_member(id);
            if !self.data.can_be_cancelled(id) {
                continue;
            }
            let failure = self.data.failure_of(id, Reason::cancelled());
            self.data.add_failure(id, failure.cause().clone());
            self.notify_of_cancellation(id);
            self.cancel(id, &failure);
        }
    }

    /// Prepares to cancel calls: they do not start, and this becomes visible only when it is
    /// [journalled](Self::journalled). Returns the calls.
    pub(crate) fn prepare_cancellation(&mut self, calls: Range<CallId>) -> Vec<Range<CallId>> {
        calls.clone().for_each(|id| self.take_from_member(id));
        self.recording.prepare_cancellation(&mut self.data, calls)
    }

    /// Lets a running call wait, so that it can be cancelled, although its member still runs it.
    fn take_from_member(&mut self, id: CallId) {
        let Some(member) = self.data.runs_first(id) else { return };
        let has_returned = self.nests.by_call.get(&id).is_some_and(|nest| nest.outcome.is_some());
        if self.nests.by_call.contains_key(&id) {
            self.nests.reclaim_worker(&mut self.data, id);
            // Further steps of its task do not count.
            let nest = self.nests.nest(id);
            (nest.runs, nest.outcome) = (None, None);
        }
        if has_returned {
            // Only the calls that its task has made still run.
            self.data.free(id, member);
        } else {
            let (claim, tries) = (self.data.claim_of(id), self.data.calls[&id].failures);
            self.stopping.add(id, Stopped { member, claim, tries });
        }
        let call = self.data.calls.get_mut(&id).expect("it runs");
        call.state = CallState::Worker;
        call.taken.clear();
    }

    /// Notifies the member that still runs a call of its cancellation.
    pub(super) fn notify_of_cancellation(&mut self, id: CallId) {
        if let Some(Stopped { member, .. }) = self.stopping.get(id) {
            self.data.actions.push(Action::Cancel(member, id));
        }
    }

    /// Drops data that the task of a cancelled call has created before its member was notified.
    pub(super) fn drop_data_of_stopped(&mut self, id: CallId, member: Member, position: u64) {
        let Some(Stopped { tries, .. }) = self.stopping.get(id) else { return };
        let version = VersionId { call: number_within(id, tries, position), slot: 0 };
        if !self.data.versions.contains_key(&version) {
            self.data.actions.push(Action::Forget(member, version));
        }
    }

    /// Handles a cancelled call that its member no longer runs. Returns whether it was one.
    pub(super) fn has_stopped(&mut self, id: CallId, member: Member, unchanged: &[(VersionId, u64)]) -> bool {
        let Some(claim) = self.stopping.remove(id, member) else { return false };
        self.data.members.ended(member, claim);
        for (version, bytes) in unchanged {
            self.on_present(*version, member, *bytes);
        }
        true
    }

    /// Handles the outcome of a cancelled call, which does not count. Returns whether it was one.
    pub(super) fn is_of_stopped(&mut self, id: CallId, member: Member, outcome: &Outcome) -> bool {
        let unchanged = if let Outcome::Unfit(unfit) = outcome { &unfit.unchanged[..] } else { &[] };
        let is_one = self.has_stopped(id, member, unchanged);
        if let Outcome::Written { bytes, .. }
        | Outcome::Durable { bytes, .. }
        | Outcome::Ignored { bytes, .. } = outcome
            && is_one
        {
            self.data.discard_duplicate_output(id, member, bytes.len());
        }
        is_one
    }

    /// Cancels a nested call after the end of its caller.
    pub(super) fn abandon(&mut self, id: CallId) {
        self.take_from_member(id);
        let Some(call) = self.data.calls.get(&id) else { return };
        if let CallState::Inputs(_) | CallState::Worker = call.state {
            let failure = self.data.failure_of(id, "the call has ended whose task has made it");
            self.notify_of_cancellation(id);
            self.cancel(id, &failure);
        }
    }

    pub(super) fn cancel_positions(&mut self, parent: CallId, positions: Range<u64>) {
        let calls: Vec<_> = self.nests.nest(parent).unfinished.range(positions).map(|(_, id)| *id).collect();
        self.cancel_each(calls);
    }

    pub(super) fn cancel_failed_group(&mut self, group: Group) {
        match group {
            Group::OfProgram(calls) => self.cancel_group(calls),
            Group::OfTask(parent, calls) if self.nests.by_call.contains_key(&parent) => {
                self.cancel_positions(parent, calls);
            }
            Group::OfTask(..) => {}
        }
    }

    pub(super) fn cancel_group(&mut self, calls: Range<CallId>) {
        if !self.data.journal.is_on() {
            return self.cancel_all(calls);
        }
        let cancelled = self.prepare_cancellation(calls);
        if !cancelled.is_empty() {
            self.data.actions.push(Action::Record(Fact::Cancelled(cancelled)));
        }
    }
}

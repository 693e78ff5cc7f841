//! Restoring of facts and reports of earlier runs of the program. See `replay.rs`.

use super::Graph;
use crate::{
    core::{
        action::Action,
        call::CallState,
        journal::fact::{Choice, Decision, Fact},
        mark::Mark,
        members::Member,
        replay::{Divergence, Held},
        seen::Seen,
        version::State,
    },
    failure::Reason,
    ids::{CallId, NESTED_BIT, VersionId},
};

impl Graph {
    /// Restores facts of earlier runs, before this run has made a call.
    pub(crate) fn recall(&mut self, fact: Fact) {
        match fact {
            Fact::Ended(ended) => {
                self.data.add_end_within(ended.call, ended.mark.root);
                self.data.journal.on_durable(ended);
            }
            Fact::Ignored(call) => {
                self.data.journal.add_ignored(call);
                // Nested calls write their defaults again.
                if call < NESTED_BIT {
                    self.data.add_end_within(call, None);
                }
            }
            Fact::Failed { call, reason } => self.data.add_failure(call, reason),
            Fact::Decided(Decision { choice: Choice::Cancelled(calls), .. }) | Fact::Cancelled(calls) => {
                calls.into_iter().flatten().for_each(|call| self.data.add_failure(call, Reason::cancelled()));
            }
            Fact::History(history) => self.data.journal.add_history(history),
            Fact::Merged { call, parts } => _ = self.reductions.order.recall(call, parts),
            Fact::Commuted { call, with } => self.chains.recall(call, with),
            Fact::Paused { root, call, failures, until_us } => {
                self.queues.pauses.record((root, call), failures, until_us);
            }
            Fact::Decided(_) | Fact::Kept { .. } => {}
        }
    }

    /// Returns facts that summarize all records, except for the decisions of the program.
    pub(crate) fn recorded_so_far(&self) -> Vec<Fact> {
        let histories = self.data.journal.history().pieces().into_iter().map(Fact::History);
        let orders = self.reductions.facts().chain(self.chains.facts()).chain(self.queues.pauses.facts());
        self.data.journal.facts().chain(orders).chain(histories).collect()
    }

    /// Handles a member that keeps a version of an earlier run.
    pub(crate) fn on_held(&mut self, member: Member, held: Held) {
        if self.replay.on_held(&mut self.data, member, held) {
            return;
        }
        let Held { version: id, mark, bytes } = held;
        if self.data.kept.has(id, member) {
            // The member fetched it in this run, before it has reported its data.
            return;
        }
        match self.data.versions.get(&id).map(|version| version.mark) {
            Some(known) if known == mark => {
                if self.recording.is_unseen(&mut self.data, id, member) {
                    return;
                }
                self.on_present(id, member, bytes);
                self.data.forget_unless_needed(id);
            }
            Some(known) if id.call < NESTED_BIT => {
                self.replay.record_divergence(Divergence { call: id.call, was: mark, is: known });
            }
            // It is no longer needed; or its task ran again with other calls, which is detected there.
            Some(_) | None => self.data.actions.push(Action::Forget(member, id)),
        }
    }

    pub(crate) fn on_running(&mut self, member: Member, id: CallId, mark: Mark) {
        if self.replay.on_running(&mut self.data, member, id, mark) {
            return;
        }
        if self.data.journal.history().failure(id).is_some() {
            // It was cancelled, and the member did not receive the notice.
            return self.data.actions.push(Action::Cancel(member, id));
        }
        let Some(call) = self.data.calls.get_mut(&id).filter(|call| call.mark == mark) else { return };
        if matches!(call.state, CallState::Inputs(_) | CallState::Worker) {
            (call.state, call.is_earlier) = (CallState::Runs(member), true);
            self.observed.see(Seen::Assigns { call: id, to: member.0 });
            self.data.occupy(id, member);
        } else if matches!(call.state, CallState::Runs(other) if other != member) {
            // One execution suffices, and only that one would be cancelled with the call.
            self.data.actions.push(Action::Cancel(member, id));
        }
    }

    pub(super) fn on_ended_before(&mut self, id: CallId) {
        let call = self.data.calls.get_mut(&id).expect("it was made");
        call.state = CallState::Done;
        let (is_nested, writes, root) = (call.within.is_some(), call.writes, call.root(id));
        self.queues.on_end(root, id);
        if !is_nested {
            // If it runs again, its task repeats its calls.
            self.replay.on_over(&mut self.data, &mut self.recording, id);
        }
        self.data.cut_lineage(id);
        if writes == 0 {
            self.data.forget_call(id);
        }
    }

    /// Handles the output of a call on a member to which it was not assigned, or no longer is.
    pub(super) fn on_left_over(&mut self, call: CallId, member: Member, bytes: &[u64]) {
        if !self.data.members.has(member) {
            return;
        }
        for (slot, bytes) in (0..).zip(bytes) {
            let id = VersionId { call, slot };
            match self.data.versions.get(&id).map(|version| &version.state) {
                // It is as good as any other copy.
                Some(State::Present(_) | State::Awaited | State::Gone) => {
                    self.on_present(id, member, *bytes);
                    self.data.forget_unless_needed(id);
                }
                None if self.data.kept.has(id, member) => {}
                Some(State::Failed(_)) | None => self.data.actions.push(Action::Forget(member, id)),
            }
        }
    }
}

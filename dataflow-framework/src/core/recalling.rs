//! The facts recorded in earlier runs of a program, with which this run is compared.
//!
//! The journal takes precedence over data that members have from earlier runs: that data may belong to another
//! execution of a call that ran twice before its end was recorded.

use super::{
    call::{Origin, Outcome},
    fact::{Choice, Decision, Ended, Fact},
    failing::CANCELLED,
    graph::{Action, Graph},
    mark::Mark,
    members::Member,
    state::{
        durable::{Durable, Early, Once},
        earlier::{Divergence, Earlier, Made},
    },
    version::Copies,
};
use crate::ids::{CallId, NESTED_BIT, VersionId};

impl Graph {
    /// Restores facts of earlier runs, before this run has made a call.
    pub(crate) fn recall(&mut self, fact: Fact) {
        match fact {
            Fact::Ended(ended) => {
                self.add_end_within(ended.call, ended.mark.root);
                self.on_durable(ended);
            }
            Fact::Ignored(call) => {
                self.add_ignored(call);
                // Nested calls write their defaults again.
                if call < NESTED_BIT {
                    self.add_end_within(call, None);
                }
            }
            Fact::Failed { call, reason } => self.add_failure(call, &reason),
            Fact::Decided(Decision { choice: Choice::Cancelled(calls), .. }) | Fact::Cancelled(calls) => {
                calls.into_iter().flatten().for_each(|call| self.add_failure(call, CANCELLED));
            }
            Fact::History(history) => self.add_history(history),
            Fact::Merged { call, parts } => self.reductions.recall(call, parts),
            Fact::Commuted { call, with } => self.chains.recall(call, with),
            Fact::Decided(_) | Fact::Kept { .. } => {}
        }
    }

    /// Restores marks of earlier runs, with which the program is compared.
    pub(crate) fn recall_marks(&mut self, marks: Vec<(CallId, Mark)>) {
        self.durable.marks.some.extend(marks);
    }

    /// Returns marks with which a later run can be compared; `None` if they are unchanged.
    pub(crate) fn marks(&mut self) -> Option<Vec<(CallId, Mark)>> {
        self.durable.marks.take_some()
    }

    /// Stores the mark of a call, or of data, and compares it with the records of earlier runs.
    pub(super) fn compare_mark(&mut self, call: CallId, is: Mark) {
        let Durable { ended, marks, .. } = &mut self.durable;
        marks.last = Some((call, is));
        let was = ended.get(&call).map(|once| once.mark).or_else(|| marks.some.get(&call).copied());
        if let Some(was) = was.filter(|was| *was != is) {
            self.record_divergence(Divergence { call, was, is });
        }
    }

    /// Returns facts that summarize all records, except for the decisions of the program.
    pub(crate) fn recorded_so_far(&self) -> Vec<Fact> {
        let ended = self.durable.ended.iter().map(|(call, Once { mark, by, values })| {
            let values = values.as_ref().map(|values| values.iter().map(|value| value.to_vec()).collect());
            Fact::Ended(Ended { call: *call, mark: *mark, by: *by, values })
        });
        let histories = self.history.pieces().into_iter().map(Fact::History);
        ended.chain(self.reductions.facts()).chain(self.chains.facts()).chain(histories).collect()
    }

    /// Returns the status of a call that is made now.
    pub(super) fn how_made(
        &self,
        id: CallId,
        origin: Origin,
        has_failed: bool,
        runs_on: Option<Member>,
    ) -> Made {
        let early = self.durable.early.get(&id).and_then(|early| early.first.as_ref());
        let is_made_again = match early {
            // The call has failed there, and not where it has completed.
            Some((_, Outcome::Ignored { .. })) => !self.is_only_there(id),
            Some((_, Outcome::Failed(_))) => runs_on.is_some(),
            early => early.is_some() || runs_on.is_some(),
        };
        if has_failed {
            Made::Failed
        } else if self.is_permanent(id) || (self.history_has(id, origin) && !is_made_again) {
            Made::Over
        } else {
            Made::Unfinished
        }
    }

    /// Returns whether an ignored failure on a member is not recorded, so that its output is not the visible
    /// one.
    pub(super) fn is_only_there(&self, call: CallId) -> bool {
        self.durable.is_on && !self.history.is_ignored(call)
    }

    /// Returns the outcome in an earlier run of a call that this run makes now. Without a recorded end, its
    /// output was never visible, so it does not count; recorded output is taken from the journal.
    pub(super) fn take_early(
        &mut self,
        id: CallId,
        is_durable: bool,
        now: Made,
        mut known: Option<&mut Earlier>,
    ) -> Option<(Member, Outcome)> {
        let Early { first: mut early, mut others } = self.durable.early.remove(&id).unwrap_or_default();
        let is_written = early.as_ref().is_some_and(|(_, outcome)| !matches!(outcome, Outcome::Failed(_)));
        let is_unseen = now != Made::Over && (is_durable || is_written);
        if now != Made::Unfinished {
            others.extend(early.take());
        }
        for (member, outcome) in others {
            self.on_other_outcome(id, member, &outcome, now, known.as_deref_mut());
        }
        if early.is_none() {
            self.forget_damages(id);
        }
        let counts = !self.durable.is_on || !(is_unseen || self.stands_in_journal(id));
        let Some(known) = known.filter(|_| !counts) else { return early };
        for (slot, copies) in std::mem::take(&mut known.copies) {
            let others = copies.members.into_iter();
            let others = others
                .filter(|member| early.as_ref().filter(|_| is_written).is_none_or(|(on, _)| on != member));
            self.actions.extend(others.map(|member| Action::Forget(member, VersionId { call: id, slot })));
        }
        early
    }

    /// Handles the outcome of a call on a member that differs from the one in this run: its output there is the
    /// visible one only if that execution was recorded.
    fn on_other_outcome(
        &mut self,
        id: CallId,
        member: Member,
        outcome: &Outcome,
        now: Made,
        known: Option<&mut Earlier>,
    ) {
        let (Outcome::Durable { bytes, .. } | Outcome::Ignored { bytes, .. }) = outcome else { return };
        let counts = now == Made::Over
            && matches!(outcome, Outcome::Durable { by, .. } if self.is_permanent_execution(id, *by));
        let Some(known) = known else { return self.discard_duplicate_output(id, member, bytes.len()) };
        for (slot, bytes) in (0..).zip(bytes) {
            let version = VersionId { call: id, slot };
            let copies = known.copies.get(&slot);
            if copies.is_some_and(|copies| copies.members.contains(&member)) {
                // The version was fetched there.
            } else if counts && !self.durable.damaged.contains(&(version, member)) {
                let new = || Copies { members: Vec::new(), bytes: *bytes };
                known.copies.entry(slot).or_insert_with(new).add(member);
            } else {
                self.actions.push(Action::Forget(member, version));
            }
        }
    }

    fn stands_in_journal(&self, call: CallId) -> bool {
        matches!(self.durable.ended.get(&call), Some(Once { values: Some(_), .. }))
    }

    /// Returns whether a member's version of an earlier run does not count: it was never visible, or the
    /// journal takes precedence.
    pub(super) fn is_unseen(&mut self, id: VersionId, member: Member) -> bool {
        if self.stands_in_journal(id.call) {
            if !self.versions.get(&id).is_some_and(|version| version.is_with(member)) {
                self.actions.push(Action::Forget(member, id));
            }
            return true;
        }
        let is_of_this_run = !self.is_permanent(id.call) || self.durable.new.contains(&id.call);
        if !self.is_durable(id.call) || !is_of_this_run {
            return false;
        }
        // Another execution has written it. But members report their data late, and may have received this
        // execution's output.
        let is_settling = self.durable.settling.get(&id.call).is_some_and(|one| one.is_with(member));
        let is_with = self.versions.get(&id).is_some_and(|version| version.is_with(member));
        if !is_with && !is_settling && !self.runs_on(id.call, member) {
            self.actions.push(Action::Forget(member, id));
        }
        true
    }

    /// Lets a member drop its output of a call that also ran elsewhere: it may differ.
    pub(super) fn discard_duplicate_output(&mut self, call: CallId, member: Member, writes: usize) {
        for slot in (0..).take(writes) {
            let version = VersionId { call, slot };
            if !self.versions.get(&version).is_some_and(|known| known.is_with(member)) {
                self.kept.on_gone(version, member);
                self.actions.push(Action::Forget(member, version));
            }
        }
    }
}

//! Outcomes that are being recorded, and become visible afterwards: those of this run, and those of an earlier run that
//! this one has not made yet. Output that is too large for the journal is first copied to a second member.
//!
//! The journal takes precedence over data that members have from earlier runs: that data may belong to another
//! execution of a call that ran twice before its end was recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::super::{
    action::Action,
    call::{CallState, Outcome, Within},
    data::Data,
    journal::fact::{Ended, Fact},
    members::Member,
    replay::{Earlier, Made},
    version::{Copies, Source},
};
use crate::{
    failure::{Failure, Reason},
    ids::{CallId, VersionId},
};

/// The outcomes that are not recorded.
#[derive(Debug, Default)]
pub(in crate::core) struct Recording {
    /// The consequences of the ends of calls, once they are recorded.
    outcomes: BTreeMap<CallId, After>,
    /// Completed calls whose output is being copied to a second member.
    settling: BTreeMap<CallId, Settling>,
    /// Ends of calls of an earlier run, which this one has not made yet.
    early: BTreeMap<CallId, Early>,
    /// The unreadable versions of calls whose ends are not recorded.
    damaged: BTreeSet<(VersionId, Member)>,
    /// The run-once calls of this run that are not in the journal.
    new: BTreeSet<CallId>,
}

/// The outcomes of one call, as reported by the members that have run it.
#[derive(Debug, Default)]
struct Early {
    /// The outcome that counts if none is recorded.
    first: Option<(Member, Outcome)>,
    others: Vec<(Member, Outcome)>,
}

impl Early {
    /// Removes the reports of a lost member. Returns whether any are left.
    fn remove_member(&mut self, member: Member) -> bool {
        self.first.take_if(|(on, _)| *on == member);
        self.others.retain(|(on, _)| *on != member);
        self.first.is_some() || !self.others.is_empty()
    }
}

/// The consequences of the recorded end of a call.
#[derive(Debug)]
pub(in crate::core) enum After {
    Written { members: Vec<Member>, bytes: Vec<u64> },
    Ignored { member: Member, bytes: Vec<u64>, reason: String },
    Failed(Failure),
}

/// A completed call whose output is being copied to a second member.
#[derive(Debug)]
struct Settling {
    member: Member,
    /// The execution.
    by: u64,
    to: Member,
    bytes: Vec<u64>,
    /// The versions that have not arrived yet.
    awaited: BTreeSet<VersionId>,
}

impl Settling {
    /// Returns whether a member has the output of the call, or will receive it.
    fn is_with(&self, member: Member) -> bool {
        self.member == member || self.to == member
    }

    /// Drops the parts of a second copy that does not count: if the call runs again it may write other output,
    /// which the owner of the parts would not receive.
    fn forget_second(&self, data: &mut Data, id: CallId) {
        for version in (0..).zip(&self.bytes).map(|(slot, _)| VersionId { call: id, slot }) {
            if self.awaited.contains(&version) {
                data.end_copy(version);
            } else {
                data.actions.push(Action::Forget(self.to, version));
            }
        }
    }
}

impl Recording {
    fn record_end(
        &mut self,
        data: &mut Data,
        id: CallId,
        (members, by): (Vec<Member>, u64),
        bytes: Vec<u64>,
        values: Option<Vec<Vec<u8>>>,
    ) {
        let fact = Fact::Ended(Ended { call: id, mark: data.calls[&id].mark, by, values });
        self.record(data, fact, id, After::Written { members, bytes });
    }

    pub(in crate::core) fn record(&mut self, data: &mut Data, fact: Fact, id: CallId, after: After) {
        data.calls.get_mut(&id).expect("it has been made").state = CallState::Recorded;
        self.outcomes.insert(id, after);
        data.actions.push(Action::Record(fact));
    }

    /// Lets a failure be recorded before it becomes visible. Returns whether that is necessary.
    pub(in crate::core) fn record_failure(&mut self, data: &mut Data, id: CallId, failure: &Failure) -> bool {
        if data.journal.is_on() {
            let fact = Fact::Failed { call: id, reason: failure.cause().clone() };
            self.record(data, fact, id, After::Failed(failure.clone()));
        }
        data.journal.is_on()
    }

    pub(in crate::core) fn prepare_cancellation(
        &mut self,
        data: &mut Data,
        calls: Range<CallId>,
    ) -> Vec<Range<CallId>> {
        let mut cancelled: Vec<Range<CallId>> = Vec::new();
        for id in calls {
            if !data.can_be_cancelled(id) {
                continue;
            }
            let call = data.calls.get_mut(&id).expect("it can be cancelled");
            call.state = CallState::Recorded;
            let failure = Failure::new(call.work.name(), id, Reason::cancelled());
            self.outcomes.insert(id, After::Failed(failure));
            match cancelled.last_mut() {
                Some(last) if last.end == id => last.end += 1,
                _ => cancelled.push(id..id + 1),
            }
        }
        cancelled
    }

    /// Records the end of a call, after a second copy of its output if that is large.
    pub(in crate::core) fn settle(
        &mut self,
        data: &mut Data,
        id: CallId,
        (member, by): (Member, u64),
        bytes: Vec<u64>,
        values: Option<Vec<Vec<u8>>>,
    ) {
        let size: usize = values.iter().flatten().map(Vec::len).sum();
        let values = values.filter(|_| data.journal.has_room(size));
        let to = match &values {
            None if !bytes.is_empty() => data.members.staying(bytes.iter().sum(), |to| to != member),
            _ => None,
        };
        let Some(to) = to else { return self.record_end(data, id, (vec![member], by), bytes, values) };
        let mark = data.calls[&id].mark;
        let versions: BTreeSet<_> = data.calls[&id].written(id).collect();
        for version in &versions {
            data.copy(Source { version: *version, mark, members: vec![member] }, to);
        }
        data.calls.get_mut(&id).expect("it has run").state = CallState::Recorded;
        self.settling.insert(id, Settling { member, by, to, bytes, awaited: versions });
    }

    /// Handles the arrival, or the failure, of a second copy of the output of a call. Returns whether one was
    /// expected.
    pub(in crate::core) fn is_second(
        &mut self,
        data: &mut Data,
        version: VersionId,
        member: Member,
        has_arrived: bool,
    ) -> bool {
        let id = version.call;
        let Some(settling) = self.settling.get_mut(&id).filter(|settling| settling.to == member) else {
            return false;
        };
        if !settling.awaited.contains(&version) {
            return false;
        }
        data.end_copy(version);
        if has_arrived {
            settling.awaited.remove(&version);
        }
        if settling.awaited.is_empty() || !has_arrived {
            self.settled(data, id, has_arrived);
        }
        true
    }

    fn settled(&mut self, data: &mut Data, id: CallId, has_second: bool) {
        let Some(settling) = self.settling.remove(&id) else { return };
        if !has_second {
            settling.forget_second(data, id);
        }
        let Settling { member, by, to, bytes, .. } = settling;
        let mut members = vec![member];
        members.extend(Some(to).filter(|_| has_second));
        // The member of the program first, so that it need not fetch its own data.
        members.sort_unstable();
        self.record_end(data, id, (members, by), bytes, None);
    }

    /// Handles the loss of a member with output of calls whose ends are not recorded, or with expected second
    /// copies.
    pub(in crate::core) fn on_lost(&mut self, data: &mut Data, member: Member) {
        let all = self.settling.iter();
        let lost: Vec<_> = all.clone().filter(|(_, one)| one.member == member).map(|(id, _)| *id).collect();
        let second: Vec<_> = all.filter(|(_, one)| one.to == member).map(|(id, _)| *id).collect();
        for id in lost {
            // It runs again, like a call that has not ended.
            data.calls.get_mut(&id).expect("it has run").state = CallState::Runs(member);
            if let Some(settling) = self.settling.remove(&id) {
                settling.forget_second(data, id);
            }
        }
        for id in second {
            let Some(Settling { member, by, bytes, awaited, .. }) = self.settling.remove(&id) else {
                continue;
            };
            for version in awaited {
                data.end_copy(version);
            }
            self.settle(data, id, (member, by), bytes, None);
        }
        self.early.retain(|_, early| early.remove_member(member));
        self.damaged.retain(|(_, on)| *on != member);
    }

    /// Returns the members with output of calls whose ends will be recorded: now, or when the program makes the
    /// calls again, here or on its next node. The program leaves only after this member, so the member must not
    /// wait for it.
    pub(in crate::core) fn members(&self, data: &Data) -> BTreeSet<Member> {
        let mut members = self.members_with_ends();
        if data.members.anybody_stays() {
            let early = self.members_with_early_ends();
            members.extend(early.filter(|member| *member != Member::HERE));
        }
        members
    }

    /// Notes that a version on a member is no longer readable, if its call has completed and that is not
    /// recorded.
    pub(in crate::core) fn on_unrecorded_output_corrupt(&mut self, id: VersionId, member: Member) {
        let Self { outcomes, settling, early, damaged, .. } = self;
        let call = &id.call;
        if outcomes.contains_key(call) || settling.contains_key(call) || early.contains_key(call) {
            damaged.insert((id, member));
        }
    }

    pub(in crate::core) fn is_any_damaged(&self, call: CallId, member: Member) -> bool {
        let of_call = VersionId { call, slot: 0 }..VersionId { call: call + 1, slot: 0 };
        let all = (of_call.start, Member::HERE)..(of_call.end, Member::HERE);
        self.damaged.range(all).any(|(_, on)| *on == member)
    }

    pub(in crate::core) fn forget_damages(&mut self, call: CallId) {
        if !self.damaged.is_empty() {
            self.damaged.retain(|(version, _)| version.call != call);
        }
    }

    /// Returns the status of a call that is made now.
    pub(in crate::core) fn how_made(
        &self,
        data: &Data,
        id: CallId,
        within: Option<Within>,
        has_failed: bool,
        runs_on: Option<Member>,
    ) -> Made {
        let early = self.early.get(&id).and_then(|early| early.first.as_ref());
        let is_made_again = match early {
            // The call has failed there, and not where it has completed.
            Some((_, Outcome::Ignored { .. })) => !data.journal.is_only_there(id),
            Some((_, Outcome::Failed(_))) => runs_on.is_some(),
            early => early.is_some() || runs_on.is_some(),
        };
        if has_failed {
            Made::Failed
        } else if data.journal.is_permanent(id) || (data.journal.history_has(id, within) && !is_made_again) {
            Made::Over
        } else {
            Made::Unfinished
        }
    }

    /// Returns the outcome in an earlier run of a call that this run makes now. Without a recorded end, its
    /// output was never visible, so it does not count; recorded output is taken from the journal.
    pub(in crate::core) fn take_early(
        &mut self,
        data: &mut Data,
        id: CallId,
        is_durable: bool,
        now: Made,
        mut known: Option<&mut Earlier>,
    ) -> Option<(Member, Outcome)> {
        let Early { first: mut early, mut others } = self.early.remove(&id).unwrap_or_default();
        let is_written = early.as_ref().is_some_and(|(_, outcome)| !matches!(outcome, Outcome::Failed(_)));
        let is_unseen = now != Made::Over && (is_durable || is_written);
        if now != Made::Unfinished {
            others.extend(early.take());
        }
        for (member, outcome) in others {
            self.on_other_outcome(data, id, member, &outcome, now, known.as_deref_mut());
        }
        if early.is_none() {
            self.forget_damages(id);
        }
        let counts = !data.journal.is_on() || !(is_unseen || data.journal.stands_in_journal(id));
        let Some(known) = known.filter(|_| !counts) else { return early };
        for (slot, copies) in std::mem::take(&mut known.copies) {
            let others = copies.members.into_iter();
            let others = others
                .filter(|member| early.as_ref().filter(|_| is_written).is_none_or(|(on, _)| on != member));
            data.actions.extend(others.map(|member| Action::Forget(member, VersionId { call: id, slot })));
        }
        early
    }

    /// Handles the outcome of a call on a member that differs from the one in this run: its output there is the
    /// visible one only if that execution was recorded.
    fn on_other_outcome(
        &mut self,
        data: &mut Data,
        id: CallId,
        member: Member,
        outcome: &Outcome,
        now: Made,
        known: Option<&mut Earlier>,
    ) {
        let (Outcome::Durable { bytes, .. } | Outcome::Ignored { bytes, .. }) = outcome else { return };
        let counts = now == Made::Over
            && matches!(outcome, Outcome::Durable { by, .. } if data.journal.is_permanent_execution(id, *by));
        let Some(known) = known else { return data.discard_duplicate_output(id, member, bytes.len()) };
        for (slot, bytes) in (0..).zip(bytes) {
            let version = VersionId { call: id, slot };
            let copies = known.copies.get(&slot);
            if copies.is_some_and(|copies| copies.members.contains(&member)) {
                // The version was fetched there.
            } else if counts && !self.damaged.contains(&(version, member)) {
                let new = || Copies { members: Vec::new(), bytes: *bytes };
                known.copies.entry(slot).or_insert_with(new).add(member);
            } else {
                data.actions.push(Action::Forget(member, version));
            }
        }
    }

    /// Returns whether a member's version of an earlier run does not count: it was never visible, or the
    /// journal takes precedence.
    pub(in crate::core) fn is_unseen(&mut self, data: &mut Data, id: VersionId, member: Member) -> bool {
        if data.journal.stands_in_journal(id.call) {
            if !data.versions.get(&id).is_some_and(|version| version.is_with(member)) {
                data.actions.push(Action::Forget(member, id));
            }
            return true;
        }
        let is_of_this_run = !data.journal.is_permanent(id.call) || self.new.contains(&id.call);
        if !data.is_durable(id.call) || !is_of_this_run {
            return false;
        }
        // Another execution has written it. But members report their data late, and may have received this
        // execution's output.
        let is_settling = self.settling.get(&id.call).is_some_and(|one| one.is_with(member));
        let is_with = data.versions.get(&id).is_some_and(|version| version.is_with(member));
        if !is_with && !is_settling && !data.runs_on(id.call, member) {
            data.actions.push(Action::Forget(member, id));
        }
        true
    }

    /// Returns the members with output of calls whose ends are being recorded: the output becomes visible, and
    /// is copied, only afterwards.
    fn members_with_ends(&self) -> BTreeSet<Member> {
        let members = |after: &After| match after {
            After::Written { members, .. } => members.clone(),
            After::Ignored { member, .. } => vec![*member],
            After::Failed(_) => Vec::new(),
        };
        self.outcomes.values().flat_map(members).collect()
    }

    /// Returns the members that have reported ends of calls that this run has not made yet.
    fn members_with_early_ends(&self) -> impl Iterator<Item = Member> {
        let is_there = |(_, outcome): &&(Member, Outcome)| !matches!(outcome, Outcome::Failed(_));
        self.early.values().flat_map(|early| &early.first).filter(is_there).map(|(member, _)| *member)
    }

    /// Keeps the outcome of a call of an earlier run until this run makes the call. Returns whether it was
    /// kept. The member that `was_to_end` it is the one that was known to run it.
    pub(in crate::core) fn keep_early(
        &mut self,
        is_on: bool,
        id: CallId,
        (member, outcome): (Member, &Outcome),
        was_to_end: bool,
    ) -> bool {
        let is_failed = matches!(outcome, Outcome::Failed(_)) && was_to_end;
        let is_kept =
            is_failed || is_on && matches!(outcome, Outcome::Durable { .. } | Outcome::Ignored { .. });
        if is_kept {
            // A failure leaves no data on the member, so it stays known when the member is gone.
            let member = if is_failed { Member::HERE } else { member };
            let Early { first, others } = self.early.entry(id).or_default();
            if first.is_none() && was_to_end {
                *first = Some((member, outcome.clone()));
            } else {
                others.push((member, outcome.clone()));
            }
        }
        is_kept
    }

    pub(in crate::core) fn take(&mut self, call: CallId) -> Option<After> {
        self.outcomes.remove(&call)
    }

    pub(in crate::core) fn take_reports(&mut self, call: CallId) -> impl Iterator<Item = (Member, Outcome)> {
        let Early { first, others } = self.early.remove(&call).unwrap_or_default();
        first.into_iter().chain(others)
    }

    pub(in crate::core) fn on_ended(&mut self, ended: &Ended) {
        self.new.extend(Some(ended.call).filter(|_| ended.values.is_none()));
    }

    pub(in crate::core) fn is_damaged(&self, version: VersionId, member: Member) -> bool {
        self.damaged.contains(&(version, member))
    }
}

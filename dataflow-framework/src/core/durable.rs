//! What has one outcome for ever: the ends of calls that are not run a second time, failures, and what was cancelled.
//!
//! Where there is a journal, nobody sees such an end before it stands there ([`Fact`]): what depends on it waits, and so
//! does the program. Until then the call counts as one that runs, and if its member is lost it does run again.
//!
//! ```text
//!   runs ── has ended ──► small ─────────────────────────────────► Record ──► recorded ──► what depends on it
//!                └──────► large ──► a copy with another member ──► Record ──┘
//! ```
//!
//! What such a call has written is never made again. If it is small it stands in the journal, and is restored from there
//! when it is needed and nowhere. Otherwise it stays with the members that have it until the program
//! has ended, and if all of these are lost, the program fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use super::{
    call::{Argument, CallId, CallState, Outcome},
    earlier::{Divergence, Earlier},
    fact::{Choice, Decision, Ended, Fact},
    failing::CANCELLED,
    graph::{Action, Graph},
    history::History,
    mark::Mark,
    members::Member,
    version::{Source, State, Version, VersionId},
};
use crate::failure::Failure;

/// The maximum size of everything in the journal that calls have written, in bytes. What comes later counts as large.
const VALUES_BYTES_MAX: usize = 64 << 20;

/// The maximum size of all versions that go to the journal when the last member leaves, in bytes.
const PRESERVED_BYTES_MAX: u64 = 64 << 20;

/// The number of marks that are compared when the program begins anew.
const MARKS_MAX: usize = 64;

/// What a call has written, encoded.
type Values = Vec<Arc<[u8]>>;

/// What a graph knows of what has one outcome for ever.
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// Whether there is a journal.
    pub(super) is_on: bool,
    /// By which this program is told from all others.
    key: u128,
    /// What follows for calls when their ends are recorded.
    recording: BTreeMap<CallId, After>,
    /// Calls that have ended, of which something is copied to a second member.
    settling: BTreeMap<CallId, Settling>,
    /// Ends of calls of an earlier run, which this one has not made yet.
    early: BTreeMap<CallId, (Member, Outcome)>,
    /// The calls that are not run a second time.
    ended: BTreeMap<CallId, (Mark, Option<Values>)>,
    values_bytes: usize,
    /// What was written to the journal since everybody leaves.
    preserved: BTreeSet<VersionId>,
    preserved_bytes: u64,
    /// The last call, or data, of this run.
    last: Option<(CallId, Mark)>,
    /// Some of the calls and data of this run and of earlier ones, at least so many calls from one to the next.
    marks: BTreeMap<CallId, Mark>,
    spacing: u64,
    /// The last one that was returned.
    told: Option<CallId>,
}

/// What follows when the end of a call is recorded.
#[derive(Debug)]
enum After {
    Written { members: Vec<Member>, bytes: Vec<u64> },
    Ignored { member: Member, bytes: Vec<u64>, reason: String },
    Failed(Failure),
}

/// A call that has ended, of which something is copied to a second member.
#[derive(Debug)]
struct Settling {
    member: Member,
    to: Member,
    bytes: Vec<u64>,
    /// What has not arrived yet.
    awaited: BTreeSet<VersionId>,
}

impl Durable {
    /// Keeps how a call of an earlier run has ended until this run makes it. Returns whether that is so.
    pub(super) fn keeps_early(&mut self, id: CallId, member: Member, outcome: &Outcome) -> bool {
        let is_kept = self.is_on && matches!(outcome, Outcome::Durable { .. } | Outcome::Ignored { .. });
        if is_kept {
            self.early.insert(id, (member, outcome.clone()));
        }
        is_kept
    }
}

impl Graph {
    /// Has ends of calls recorded that have one outcome for ever.
    pub(crate) fn records(&mut self) {
        self.durable.is_on = true;
    }

    /// Takes in what tells the program from all others.
    pub(crate) fn has_key(&mut self, key: u128) {
        self.durable.key = key;
    }

    /// Takes in what was recorded in earlier runs, before this one has made a call.
    pub(crate) fn recalls(&mut self, fact: Fact) {
        match fact {
            Fact::Ended(Ended { call, mark, values }) => {
                self.history.ends(call);
                self.news.ends(call);
                self.is_durable_now(call, mark, values);
            }
            Fact::Ignored(call) => self.is_ignored(call),
            Fact::Failed { call, reason } => self.has_failed(call, &reason),
            Fact::Decided(Decision { choice: Choice::Cancelled(calls), .. }) => {
                calls.into_iter().flatten().for_each(|call| self.has_failed(call, CANCELLED));
            }
            Fact::History(history) => self.remembers(history),
            Fact::Decided(_) | Fact::Kept { .. } => {}
        }
    }

    /// Takes in marks of earlier runs, with which the program is compared.
    pub(crate) fn recalls_marks(&mut self, marks: Vec<(CallId, Mark)>) {
        self.durable.marks.extend(marks);
    }

    /// Returns marks with which a later run can be compared: that of the last call, and some of those before; `None` if
    /// they say nothing that was not returned before.
    pub(crate) fn marks(&mut self) -> Option<Vec<(CallId, Mark)>> {
        let Durable { last, marks, told, spacing, .. } = &mut self.durable;
        let (call, mark) = (*last)?;
        let before = marks.last_key_value().map(|(before, _)| *before);
        if told.replace(call) == Some(call) || before.is_some_and(|before| call <= before) {
            return None;
        }
        if before.is_none_or(|before| call >= before + *spacing) {
            marks.insert(call, mark);
        }
        if marks.len() > MARKS_MAX {
            // Half of them, at equal distances.
            *spacing = call / (MARKS_MAX as u64 / 2) + 1;
            let mut next = 0;
            marks.retain(|call, _| {
                let stays = *call >= next;
                next = if stays { *call + *spacing } else { next };
                stays
            });
        }
        let before = marks.iter().map(|(call, mark)| (*call, *mark)).filter(|(before, _)| *before != call);
        Some(before.chain([(call, mark)]).collect())
    }

    /// Notes the mark of a call, or of data, and compares it with what was recorded of earlier runs.
    pub(super) fn compares(&mut self, call: CallId, is: Mark) {
        let Durable { ended, marks, last, .. } = &mut self.durable;
        *last = Some((call, is));
        let was = ended.get(&call).map(|(mark, _)| *mark).or_else(|| marks.get(&call).copied());
        if let Some(was) = was.filter(|was| *was != is) {
            self.diverges(Divergence { call, was, is });
        }
    }

    /// Returns facts that say everything that was recorded, but for what the program has decided.
    pub(crate) fn recorded_so_far(&self) -> Vec<Fact> {
        let ended = self.durable.ended.iter().map(|(call, (mark, values))| {
            let values = values.as_ref().map(|values| values.iter().map(|value| value.to_vec()).collect());
            Fact::Ended(Ended { call: *call, mark: *mark, values })
        });
        ended.chain(self.history.pieces().into_iter().map(Fact::History)).collect()
    }

    /// Returns the number by which whatever is outside recognises another execution of the same call; `None` if the call
    /// is of a task that may be executed again at any time.
    pub(super) fn once_token(&self, id: CallId, mark: Mark) -> Option<u128> {
        self.calls[&id].options.is_durable().then(|| mark.token(self.durable.key, id))
    }

    /// Returns whether a call is never run again once it has ended.
    pub(super) fn is_durable(&self, call: CallId) -> bool {
        self.durable.is_on && self.calls.get(&call).is_some_and(|call| call.options.is_durable())
    }

    /// Returns whether a version can neither be made again nor restored, so that it stays where it is.
    pub(super) fn is_precious(&self, id: VersionId) -> bool {
        matches!(self.durable.ended.get(&id.call), Some((_, None)))
    }

    /// Takes in how a call has ended that is not assigned any more, if others may see that only when it is recorded.
    /// Returns it otherwise.
    pub(super) fn is_to_be_recorded(
        &mut self,
        id: CallId,
        member: Member,
        outcome: Outcome,
    ) -> Option<Outcome> {
        if !self.durable.is_on {
            return Some(match outcome {
                Outcome::Durable { bytes, ns, .. } => Outcome::Written { bytes, ns },
                other => other,
            });
        }
        match outcome {
            Outcome::Durable { bytes, ns, values } => {
                self.members.took(ns);
                self.settle(id, member, bytes, values);
                None
            }
            Outcome::Ignored { bytes, reason } if !self.history.is_ignored(id) => {
                self.record(Fact::Ignored(id), id, After::Ignored { member, bytes, reason });
                None
            }
            other => Some(other),
        }
    }

    /// Records the end of a call, first with a second copy of what it has written if that is large.
    fn settle(&mut self, id: CallId, member: Member, bytes: Vec<u64>, values: Option<Vec<Vec<u8>>>) {
        let size: usize = values.iter().flatten().map(Vec::len).sum();
        let values = values.filter(|_| self.durable.values_bytes + size <= VALUES_BYTES_MAX);
        let to = match &values {
            None if !bytes.is_empty() => self.members.another_stays(bytes.iter().sum(), member),
            _ => None,
        };
        let Some(to) = to else { return self.record_end(id, vec![member], bytes, values) };
        let mark = self.calls[&id].mark;
        let versions: BTreeSet<_> = self.calls[&id].written(id).collect();
        for version in &versions {
            self.copy(Source { version: *version, mark, members: vec![member] }, to);
        }
        self.durable.settling.insert(id, Settling { member, to, bytes, awaited: versions });
    }

    fn record_end(
        &mut self,
        id: CallId,
        members: Vec<Member>,
        bytes: Vec<u64>,
        values: Option<Vec<Vec<u8>>>,
    ) {
        let fact = Fact::Ended(Ended { call: id, mark: self.calls[&id].mark, values });
        self.record(fact, id, After::Written { members, bytes });
    }

    fn record(&mut self, fact: Fact, id: CallId, after: After) {
        self.calls.get_mut(&id).expect("it has been made").state = CallState::Recorded;
        self.durable.recording.insert(id, after);
        self.actions.push(Action::Record(fact));
    }

    /// Has a failure recorded before anybody sees it. Returns whether that is necessary.
    pub(super) fn records_failure(&mut self, id: CallId, failure: &Failure) -> bool {
        if self.durable.is_on {
            let fact = Fact::Failed { call: id, reason: failure.reason().to_owned() };
            self.record(fact, id, After::Failed(failure.clone()));
        }
        self.durable.is_on
    }

    /// Prepares to cancel calls that have not begun: they do not begin any more, but nobody sees that until it is
    /// [recorded](Self::recorded). Returns them.
    pub(crate) fn begins_to_cancel(&mut self, calls: Range<CallId>) -> Vec<Range<CallId>> {
        let mut cancelled: Vec<Range<CallId>> = Vec::new();
        for id in calls {
            if !self.can_be_cancelled(id) {
                continue;
            }
            let call = self.calls.get_mut(&id).expect("it can be cancelled");
            call.state = CallState::Recorded;
            let failure = Failure::new(call.task.name, id, CANCELLED);
            self.durable.recording.insert(id, After::Failed(failure));
            match cancelled.last_mut() {
                Some(last) if last.end == id => last.end += 1,
                _ => cancelled.push(id..id + 1),
            }
        }
        cancelled
    }

    /// Tells that a fact is recorded: from now on others may see it.
    pub(crate) fn recorded(&mut self, fact: Fact) {
        let calls = fact.calls();
        if let Fact::Ended(Ended { call, mark, values }) = fact {
            self.is_durable_now(call, mark, values);
        }
        for id in calls {
            match self.durable.recording.remove(&id) {
                Some(After::Written { members, bytes }) => {
                    self.is_written_for_ever(id, &members, &bytes);
                    self.cuts_lineage(id);
                }
                Some(After::Ignored { member, bytes, reason }) => {
                    self.ignored(id, &reason);
                    if self.members.has(member) {
                        self.written(id, member, &bytes);
                    } else {
                        // It writes the defaults again.
                        self.begins_again(id);
                    }
                }
                Some(After::Failed(failure)) => self.fails_for_good(id, &failure),
                None => {}
            }
        }
    }

    fn is_durable_now(&mut self, call: CallId, mark: Mark, values: Option<Vec<Vec<u8>>>) {
        let values = values.map(|values| values.into_iter().map(Arc::from).collect::<Values>());
        let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
        if self.durable.ended.insert(call, (mark, values)).is_none() {
            self.durable.values_bytes += bytes;
        }
    }

    fn is_written_for_ever(&mut self, id: CallId, members: &[Member], bytes: &[u64]) {
        let mut there =
            members.iter().copied().filter(|member| self.members.has(*member)).collect::<Vec<_>>();
        let last = there.pop();
        for member in there {
            for (version, bytes) in self.calls[&id].written(id).zip(bytes) {
                self.is_there(version, member, *bytes);
            }
        }
        if let Some(member) = last {
            return self.written(id, member, bytes);
        }
        self.has_ended_nowhere(id);
        for version in self.versions_of(id) {
            if self.versions.get(&version).is_some_and(Version::is_awaited) {
                self.make_again(version);
            }
        }
    }

    /// Forgets what was only needed to run a call again that is not.
    pub(super) fn cuts_lineage(&mut self, id: CallId) {
        if !self.durable.ended.contains_key(&id) {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        let arguments = std::mem::replace(&mut call.arguments, Arc::new([]));
        for version in arguments.iter().flat_map(Argument::versions) {
            self.version_mut(*version).dependants -= 1;
            self.forget_unless_needed(*version);
        }
    }

    fn versions_of(&self, id: CallId) -> Vec<VersionId> {
        self.calls.get(&id).map(|call| call.written(id).collect()).unwrap_or_default()
    }

    /// Ends a call whose versions are lost by now.
    fn has_ended_nowhere(&mut self, id: CallId) {
        let versions = self.versions_of(id);
        let call = self.calls.get_mut(&id).expect("it was recorded");
        call.state = CallState::Done;
        let arguments = Arc::clone(&call.arguments);
        self.unfinished -= 1;
        self.has_ended(id);
        for version in versions {
            if let Some(version) = self.versions.get_mut(&version) {
                version.state = State::Gone;
            }
        }
        self.is_over(id, &arguments);
    }

    /// Takes a version that is gone from the journal, if its call is not to run again. Returns whether that is so.
    pub(super) fn restores(&mut self, id: VersionId) -> bool {
        let Some((mark, values)) = self.durable.ended.get(&id.call) else { return false };
        let value = values.as_ref().and_then(|values| values.get(id.slot as usize));
        let Some(value) = value else {
            let task = self.calls.get(&id.call).map_or("", |call| call.task.name);
            let reason = "what it has written was with nodes that are lost, and it must not run again, since it has an \
                          effect or might write something else: it is larger than what goes to the journal";
            let failure = Failure::new(task, id.call, reason);
            self.fatal.get_or_insert(failure);
            return true;
        };
        let (mark, value) = (*mark, Arc::clone(value));
        let bytes = value.len() as u64;
        self.actions.push(Action::Restore { version: id, mark, value });
        self.is_there(id, Member::HERE, bytes);
        true
    }

    /// Notes the arrival of a second copy of what a call has written, or that it does not arrive. Returns whether one was
    /// awaited.
    pub(super) fn is_second(&mut self, version: VersionId, member: Member, has_arrived: bool) -> bool {
        let id = version.call;
        let Some(settling) = self.durable.settling.get_mut(&id).filter(|settling| settling.to == member)
        else {
            return false;
        };
        if !settling.awaited.remove(&version) {
            return false;
        }
        self.copying.remove(&version);
        if settling.awaited.is_empty() || !has_arrived {
            self.settled(id, has_arrived);
        }
        true
    }

    /// Records the end of a call, with a second copy or without one.
    fn settled(&mut self, id: CallId, has_second: bool) {
        let Some(Settling { member, to, bytes, awaited }) = self.durable.settling.remove(&id) else { return };
        for version in awaited {
            self.copying.remove(&version);
        }
        let members = if has_second { vec![to, member] } else { vec![member] };
        self.record_end(id, members, bytes, None);
    }

    /// Takes in that a member is lost on which calls have ended whose ends are not recorded, or which was to have second
    /// copies.
    pub(super) fn durable_is_lost(&mut self, member: Member) {
        let all = self.durable.settling.iter();
        let lost: Vec<_> = all.clone().filter(|(_, one)| one.member == member).map(|(id, _)| *id).collect();
        let second: Vec<_> = all.filter(|(_, one)| one.to == member).map(|(id, _)| *id).collect();
        for id in lost {
            // It runs again, like one that has not ended.
            let settling = self.durable.settling.remove(&id);
            for version in settling.into_iter().flat_map(|settling| settling.awaited) {
                self.copying.remove(&version);
            }
        }
        for id in second {
            let Some(Settling { member, bytes, awaited, .. }) = self.durable.settling.remove(&id) else {
                continue;
            };
            for version in awaited {
                self.copying.remove(&version);
            }
            self.settle(id, member, bytes, None);
        }
        self.durable.early.retain(|_, (on, _)| *on != member);
    }

    /// Returns how a call has ended in an earlier run, which this run makes now. What is there of a call whose end is
    /// not recorded was seen by nobody, so it does not count; and what stands in the journal is taken from there.
    pub(super) fn take_early(
        &mut self,
        id: CallId,
        (is_durable, is_over): (bool, bool),
        known: Option<&mut Earlier>,
    ) -> Option<(Member, Outcome)> {
        let early = self.durable.early.remove(&id).filter(|_| !is_over);
        let is_unseen = !is_over && (is_durable || early.is_some());
        let counts = !self.durable.is_on || !(is_unseen || self.stands_in_journal(id));
        let Some(known) = known.filter(|_| !counts) else { return early };
        for (slot, copies) in std::mem::take(&mut known.copies) {
            let others = copies.members.into_iter();
            let others = others.filter(|member| early.as_ref().is_none_or(|(on, _)| on != member));
            self.actions.extend(others.map(|member| Action::Forget(member, VersionId { call: id, slot })));
        }
        early
    }

    fn stands_in_journal(&self, call: CallId) -> bool {
        matches!(self.durable.ended.get(&call), Some((_, Some(_))))
    }

    /// Returns whether a version does not count that a member has of an earlier run: nobody has seen it, or what stands
    /// in the journal counts.
    pub(super) fn is_unseen(&mut self, id: VersionId, member: Member) -> bool {
        if self.stands_in_journal(id.call) {
            if !self.versions.get(&id).is_some_and(|version| version.is_with(member)) {
                self.actions.push(Action::Forget(member, id));
            }
            return true;
        }
        // Its end is told next.
        self.is_durable(id.call) && !self.history.has_ended(id.call)
    }

    /// Has a member forget what it has written for a call that ran elsewhere, too: it may be something else.
    pub(super) fn is_not_for_ever(&mut self, call: CallId, member: Member, writes: usize) {
        for slot in (0..).take(writes) {
            let version = VersionId { call, slot };
            if !self.versions.get(&version).is_some_and(|known| known.is_with(member)) {
                self.actions.push(Action::Forget(member, version));
            }
        }
    }

    /// Has a version written to the journal, since all members leave.
    pub(super) fn preserve(&mut self, id: VersionId) {
        let Some(version) = self.versions.get(&id).filter(|_| self.durable.is_on) else { return };
        let State::Present(copies) = &version.state else { return };
        let is_in_journal = self.durable.ended.get(&id.call).is_some_and(|(_, values)| values.is_some());
        let bytes = self.durable.preserved_bytes + copies.bytes;
        if is_in_journal || self.durable.preserved.contains(&id) || bytes > PRESERVED_BYTES_MAX {
            return;
        }
        let source = Source { version: id, mark: version.mark, members: copies.members.clone() };
        if copies.members.contains(&Member::HERE) {
            self.durable.preserved.insert(id);
            self.durable.preserved_bytes = bytes;
            self.actions.push(Action::Preserve { version: id, mark: source.mark });
        } else {
            self.copy(source, Member::HERE);
        }
    }

    /// Has the history recorded if nobody is left to remember it.
    pub(super) fn records_history(&mut self) {
        if self.durable.is_on && !self.members.anybody_stays() {
            let pieces: Vec<History> = self.history.pieces();
            self.actions.extend(pieces.into_iter().map(|piece| Action::Record(Fact::History(piece))));
        }
    }
}

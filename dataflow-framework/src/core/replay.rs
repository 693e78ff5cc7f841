//! Restart of a program: reuse of the results of its earlier runs.
//!
//! When the node of the program is lost, or leaves, the program restarts on another one. It makes the same
//! calls, so they have the same numbers. The other nodes report their state of the previous run: the versions
//! that they keep, the calls that they run, and the completed calls ([`History`](super::History)). A completed call does not
//! run again; it is known as the recipe of its output, like any call completed in this run, and its versions
//! are with the members that keep them, or gone. So only data that is needed and lost is recomputed. Running
//! calls continue, and count.
//!
//! That is correct only if the program does make the same calls. So each version has a [`Mark`], and a version
//! with another mark ends the program: its result would mix two different runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    action::Action,
    call::{NewCall, Outcome},
    data::Data,
    journal::recording::Recording,
    mark::Mark,
    members::{Claim, Member},
    version::{Copies, Source},
};
use crate::ids::{CallId, NESTED_BIT, VersionId};

/// The number of marks that are compared when the program restarts.
const MARKS_MAX: usize = 64;

/// The state of earlier runs, and the calls of this run, which are compared with it.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The least number that the next call may have.
    next: CallId,
    /// The mark of the last call.
    mark: Mark,
    marks: Marks,
    /// The state of other nodes from earlier runs, by the calls that this run has not made yet.
    earlier: BTreeMap<CallId, Earlier>,
    /// The nested calls among them, by the call of the program to which they belong.
    by_root: BTreeMap<CallId, BTreeSet<CallId>>,
    divergence: Option<Divergence>,
}

/// A version that a member keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
}

/// The state of a call from earlier runs of the program, before this run makes it.
#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) mark: Mark,
    /// The versions that it has written, by their slots.
    pub(super) copies: BTreeMap<u32, Copies>,
    pub(super) runs_on: Option<Member>,
}

impl Earlier {
    fn forget(self, data: &mut Data, call: CallId) {
        if let Some(member) = self.runs_on {
            data.members.ended(member, Claim::UNKNOWN);
        }
        for (slot, copies) in self.copies {
            let version = VersionId { call, slot };
            data.actions.extend(copies.members.into_iter().map(|member| Action::Forget(member, version)));
        }
    }
}

/// A call that differs from the one of the same number in an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) call: CallId,
    pub(crate) was: Mark,
    pub(crate) is: Mark,
}

/// The status of a new call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// One of its inputs has failed, or the call itself in an earlier run.
    Failed,
    /// It has completed in an earlier run, and does not run again.
    Over,
    /// It must run, or runs.
    Unfinished,
}

/// Some of the calls and data of a program, by which a later run is compared with it.
#[derive(Debug, Default)]
struct Marks {
    /// The last call, or data, of this run.
    last: Option<(CallId, Mark)>,
    /// Marks of this run and of earlier ones, with a minimum distance in calls.
    some: BTreeMap<CallId, Mark>,
    spacing: u64,
    /// The last call whose mark was returned.
    told: Option<CallId>,
}

impl Marks {
    /// Returns the mark of the last call and a sample of the earlier marks. If they are unchanged, returns `None` unless
    /// `even_unchanged`.
    fn take_some(&mut self, even_unchanged: bool) -> Option<Vec<(CallId, Mark)>> {
        let (call, mark) = self.last?;
        let before = self.some.last_key_value().map(|(before, _)| *before);
        let is_known = self.told.replace(call) == Some(call) || before.is_some_and(|before| call <= before);
        if is_known && !even_unchanged {
            return None;
        }
        if before.is_none_or(|before| call >= before + self.spacing) {
            self.some.insert(call, mark);
        }
        if self.some.len() > MARKS_MAX {
            self.thin_out(call);
        }
        let before =
            self.some.iter().map(|(call, mark)| (*call, *mark)).filter(|(before, _)| *before != call);
        Some(before.chain([(call, mark)]).collect())
    }

    fn thin_out(&mut self, last: CallId) {
        self.spacing = last / (MARKS_MAX as u64 / 2) + 1;
        let mut next = 0;
        self.some.retain(|call, _| {
            let stays = *call >= next;
            next = if stays { *call + self.spacing } else { next };
            stays
        });
    }
}

impl Replay {
    pub(super) fn next(&self) -> CallId {
        self.next
    }

    pub(super) fn number(&mut self, id: CallId) {
        assert!(id >= self.next, "calls are numbered in their order, and {id} comes after {}", self.next);
        self.next = id + 1;
    }

    fn known_of(&mut self, call: CallId, mark: Mark) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if earlier.mark == mark {
            return Some(earlier);
        }
        self.record_divergence(Divergence { call, was: earlier.mark, is: mark });
        None
    }

    fn earlier(&mut self, call: CallId, mark: Mark) -> &mut Earlier {
        if let Some(root) = mark.root {
            self.by_root.entry(root).or_default().insert(call);
        }
        let new = || Earlier { mark, copies: BTreeMap::new(), runs_on: None };
        self.earlier.entry(call).or_insert_with(new)
    }

    pub(super) fn take_within(&mut self, root: CallId, call: CallId) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if let Some(calls) = self.by_root.get_mut(&root) {
            calls.remove(&call);
        }
        Some(earlier)
    }

    /// Returns whether this run of the program may still make a call, or create data.
    fn is_to_come(&self, data: &Data, call: CallId, mark: Mark) -> bool {
        let Some(root) = mark.root else { return call >= self.next() };
        let is_known =
            data.calls.contains_key(&call) || data.versions.contains_key(&VersionId { call, slot: 0 });
        !is_known && (root >= self.next() || data.is_unfinished(root))
    }

    /// Returns whether a call of an earlier run was not made yet in this one.
    pub(super) fn is_unmade(&self, data: &Data, id: CallId) -> bool {
        let is_nested = id >= NESTED_BIT;
        if is_nested {
            !data.calls.contains_key(&id) && self.earlier.contains_key(&id)
        } else {
            id >= self.next
        }
    }

    /// Handles the end of a call of an earlier run that this run has not made yet. Its output was reported
    /// before.
    pub(super) fn ended_early(
        &mut self,
        data: &mut Data,
        recording: &mut Recording,
        id: CallId,
        member: Member,
        outcome: &Outcome,
    ) {
        let Some(earlier) = self.earlier.get_mut(&id).filter(|earlier| earlier.runs_on == Some(member))
        else {
            // Another member is known to run it.
            recording.keep_early(data.journal.is_on(), id, (member, outcome), false);
            return;
        };
        earlier.runs_on = None;
        let root = earlier.mark.root;
        data.members.ended(member, Claim::UNKNOWN);
        if recording.keep_early(data.journal.is_on(), id, (member, outcome), true) {
            return;
        }
        match outcome {
            Outcome::Written { .. } | Outcome::Durable { .. } => data.add_end_within(id, root),
            Outcome::Ignored { .. } => {
                data.journal.add_ignored(id);
                data.add_end_within(id, root);
            }
            // The call is retried.
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    pub(super) fn on_damaged(&mut self, id: VersionId, member: Member) {
        let Some(earlier) = self.earlier.get_mut(&id.call) else { return };
        if let Some(copies) = earlier.copies.get_mut(&id.slot) {
            copies.members.retain(|other| *other != member);
            if copies.members.is_empty() {
                earlier.copies.remove(&id.slot);
            }
        }
    }

    /// Forgets the reports about calls within a completed call of the program: they are not made again.
    pub(super) fn on_over(&mut self, data: &mut Data, recording: &mut Recording, root: CallId) {
        for call in self.by_root.remove(&root).into_iter().flatten() {
            if let Some(earlier) = self.earlier.remove(&call) {
                earlier.forget(data, call);
            }
            for (member, outcome) in recording.take_reports(call) {
                if let Outcome::Durable { bytes, .. } | Outcome::Ignored { bytes, .. } = outcome {
                    data.discard_duplicate_output(call, member, bytes.len());
                }
            }
        }
    }

    /// Reverts that a member runs a call of an earlier run that was not made yet.
    pub(super) fn on_not_running(&mut self, data: &mut Data, member: Member, call: CallId) {
        if let Some(earlier) = self.earlier.get_mut(&call)
            && earlier.runs_on == Some(member)
        {
            earlier.runs_on = None;
            data.members.ended(member, Claim::UNKNOWN);
        }
    }

    pub(super) fn record_divergence(&mut self, divergence: Divergence) {
        self.divergence.get_or_insert(divergence);
    }

    pub(super) fn divergence(&self) -> Option<Divergence> {
        self.divergence
    }

    /// Forgets reports about calls before this one that came after they were made: data of the program, which
    /// [`next`](Self::next) does not count.
    fn forget_earlier(&mut self, data: &mut Data, call: CallId) {
        while let Some(entry) = self.earlier.first_entry().filter(|entry| *entry.key() < call) {
            let (call, earlier) = entry.remove_entry();
            earlier.forget(data, call);
        }
    }

    pub(super) fn on_lost(&mut self, member: Member) {
        for earlier in self.earlier.values_mut() {
            earlier.runs_on = earlier.runs_on.filter(|on| *on != member);
            earlier.copies.retain(|_, copies| {
                copies.members.retain(|other| *other != member);
                !copies.members.is_empty()
            });
        }
    }

    /// Copies versions that are only with leaving members, and whose calls the program has not made yet: it may
    /// need them later.
    pub(super) fn rescue(&mut self, data: &mut Data) {
        if !data.members.any_leaves() {
            return;
        }
        let slots = |(call, earlier): (&CallId, &Earlier)| {
            let call = *call;
            earlier.copies.keys().map(|slot| VersionId { call, slot: *slot }).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.earlier.iter().flat_map(slots).collect();
        for id in all {
            self.rescue_one(data, id);
        }
    }

    pub(super) fn rescue_one(&mut self, data: &mut Data, id: VersionId) {
        let Some(Earlier { mark, copies, .. }) = self.earlier.get(&id.call) else { return };
        let Some(Copies { members, bytes }) = copies.get(&id.slot) else { return };
        data.rescue_from(Source { version: id, mark: *mark, members: members.clone() }, *bytes);
    }

    /// Handles a copy of a version whose call the program has not made yet.
    pub(super) fn on_copied(&mut self, data: &mut Data, id: VersionId, member: Member) {
        let copies = self.earlier.get_mut(&id.call).and_then(|earlier| earlier.copies.get_mut(&id.slot));
        match copies {
            Some(copies) => copies.add(member),
            None => data.actions.push(Action::Forget(member, id)),
        }
        if data.is_copied(id, member) {
            // That member may be leaving too.
            self.rescue_one(data, id);
        }
    }

    pub(crate) fn recall_marks(&mut self, marks: Vec<(CallId, Mark)>) {
        self.marks.some.extend(marks);
    }

    pub(crate) fn marks(&mut self, even_unchanged: bool) -> Option<Vec<(CallId, Mark)>> {
        self.marks.take_some(even_unchanged)
    }

    /// Moves to a call of the program that is made now. Returns its state from earlier runs.
    pub(super) fn on_call(&mut self, data: &mut Data, id: CallId, new: &NewCall) -> Option<Earlier> {
        self.forget_earlier(data, id);
        self.follow(data, id, self.mark.then_call(id, new.number, &new.arguments, new.writes))
    }

    /// Moves to a call, or data, that the program makes now, and compares it with earlier runs. Returns its state there.
    pub(super) fn follow(&mut self, data: &Data, call: CallId, is: Mark) -> Option<Earlier> {
        self.mark = is;
        let known = self.known_of(call, is);
        self.marks.last = Some((call, is));
        let was = data.journal.once(call).map(|once| once.mark);
        let was = was.or_else(|| self.marks.some.get(&call).copied());
        if let Some(was) = was.filter(|was| *was != is) {
            self.record_divergence(Divergence { call, was, is });
        }
        known
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Handles a member that keeps a version of an earlier run. Returns whether this run has not made its call yet.
    pub(super) fn on_held(&mut self, data: &mut Data, member: Member, held: Held) -> bool {
        let Held { version: id, mark, bytes } = held;
        if !self.is_to_come(data, id.call, mark) {
            return false;
        }
        let earlier = self.earlier(id.call, mark);
        if earlier.mark == mark {
            let copies = earlier.copies.entry(id.slot);
            copies.or_insert_with(|| Copies { members: Vec::new(), bytes }).add(member);
            if data.members.is_leaving(member) {
                self.rescue_one(data, id);
            }
        } else {
            // It belongs to an older run.
            data.actions.push(Action::Forget(member, id));
        }
        true
    }

    /// Handles a member that runs a call of an earlier run. Returns whether this run has not made the call yet.
    pub(super) fn on_running(&mut self, data: &mut Data, member: Member, id: CallId, mark: Mark) -> bool {
        if !self.is_to_come(data, id, mark) {
            return false;
        }
        let earlier = self.earlier(id, mark);
        if earlier.mark == mark && earlier.runs_on.is_none() {
            earlier.runs_on = Some(member);
            data.members.on_assigned(member, Claim::UNKNOWN, false);
        } else if earlier.mark == mark && earlier.runs_on != Some(member) {
            // One execution suffices, and only that one would be cancelled with the call.
            data.actions.push(Action::Cancel(member, id));
        }
        true
    }
}

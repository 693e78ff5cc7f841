//! A program that is started again: what it does not need to do a second time.
//!
//! When the node of the program is lost, or leaves, the program begins anew on another one. It makes the same calls, so
//! they have the same numbers. The other nodes tell what they still have of the run before: the versions that they
//! keep, the calls that they run, and which calls have ended ([`History`]). A call that has ended is not run again; it
//! is known as the recipe of what it has written, like any that has ended in this run, and its versions are where they
//! are kept, or gone. So only that is made again which somebody needs and nobody has. What runs goes on, and counts.
//!
//! That is right only if the program does make the same calls. So each version has a [`Mark`], and a version of another
//! mark ends the program: it would be made of two that differ.

use std::collections::BTreeMap;

use super::{
    call::{CallState, Origin, Outcome},
    graph::{Action, Graph},
    history::History,
    mark::Mark,
    members::{Claim, Member},
    seen::Seen,
    state::{
        durable::Early,
        earlier::{Divergence, Earlier, Held},
    },
    version::{Copies, Source, State},
};
use crate::ids::{CallId, NESTED, VersionId};

impl Graph {
    /// Tells that a member keeps a version of an earlier run.
    pub(crate) fn holds(&mut self, member: Member, held: Held) {
        let Held { version: id, mark, bytes } = held;
        if self.is_to_come(id.call, mark) {
            let earlier = self.earlier(id.call, mark);
            if earlier.mark == mark {
                let copies = earlier.copies.entry(id.slot);
                copies.or_insert_with(|| Copies { members: Vec::new(), bytes }).add(member);
                if self.members.is_leaving(member) {
                    self.rescue_one_of_earlier(id);
                }
            } else {
                // Of a run before that.
                self.actions.push(Action::Forget(member, id));
            }
            return;
        }
        if self.kept.has(id, member) {
            // It was brought there in this run, before the member has told of what it had.
            return;
        }
        match self.versions.get(&id).map(|version| version.mark) {
            Some(known) if known == mark => {
                if self.is_unseen(id, member) {
                    return;
                }
                self.is_there(id, member, bytes);
                self.forget_unless_needed(id);
            }
            Some(known) if id.call < NESTED => {
                self.diverges(Divergence { call: id.call, was: mark, is: known });
            }
            // It is not needed any more; or its task was run again, and does something else, which is noticed there.
            Some(_) | None => self.actions.push(Action::Forget(member, id)),
        }
    }

    /// Tells that a member runs a call of an earlier run.
    pub(crate) fn runs(&mut self, member: Member, id: CallId, mark: Mark) {
        if self.is_to_come(id, mark) {
            let earlier = self.earlier(id, mark);
            if earlier.mark == mark && earlier.runs_on.is_none() {
                earlier.runs_on = Some(member);
                self.members.assigned(member, Claim::UNKNOWN, false);
            }
            return;
        }
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.mark == mark) else { return };
        if matches!(call.state, CallState::Inputs(_) | CallState::Worker) {
            (call.state, call.is_earlier) = (CallState::Runs(member), true);
            self.see(Seen::Assigns { call: id, to: member.0 });
            self.occupies(id, member);
        }
    }

    /// Tells which calls have ended in earlier runs, before this one has made them. What was not known is news for the
    /// others: that member may be the only one that knows, and leave.
    pub(crate) fn remembers(&mut self, history: History) {
        let news = history.without(&self.history);
        self.history.add(news.clone());
        self.news.add(news);
    }

    /// Takes in that a call of an earlier run has ended that the program has not made yet. What it has written was told
    /// before.
    pub(super) fn ended_early(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        let Some(earlier) = self.earlier.get_mut(&id).filter(|earlier| earlier.runs_on == Some(member))
        else {
            // Another one is known to run it.
            self.durable.keeps_early(id, member, outcome, false);
            return;
        };
        earlier.runs_on = None;
        let root = earlier.mark.root;
        self.members.ended(member, Claim::UNKNOWN);
        if self.durable.keeps_early(id, member, outcome, true) {
            return;
        }
        match outcome {
            Outcome::Written { .. } | Outcome::Durable { .. } => self.ends_in_history(id, root),
            Outcome::Ignored { .. } => {
                self.is_ignored(id);
                self.ends_in_history(id, root);
            }
            // It is tried again.
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    /// Takes in that what a member had of earlier runs is damaged.
    pub(super) fn damaged_before_it_is_made(&mut self, id: VersionId, member: Member) {
        let Some(earlier) = self.earlier.get_mut(&id.call) else { return };
        if let Some(copies) = earlier.copies.get_mut(&id.slot) {
            copies.members.retain(|other| *other != member);
            if copies.members.is_empty() {
                earlier.copies.remove(&id.slot);
            }
        }
    }

    /// Returns whether a call, or data, may be made yet in this run of the program.
    pub(super) fn is_to_come(&self, call: CallId, mark: Mark) -> bool {
        let Some(root) = mark.root else { return call >= self.next() };
        let is_known =
            self.calls.contains_key(&call) || self.versions.contains_key(&VersionId { call, slot: 0 });
        !is_known && (root >= self.next() || self.is_unfinished(root))
    }

    /// Takes what is known of a call, or of data, that is made now within a call of the program.
    pub(super) fn earlier_within(&mut self, root: CallId, call: CallId) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if let Some(calls) = self.nests.earlier.get_mut(&root) {
            calls.remove(&call);
        }
        Some(earlier)
    }

    /// Takes in that a call that is made now has ended in an earlier run.
    pub(super) fn has_ended_before(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).expect("it was made");
        call.state = CallState::Done;
        let (origin, writes) = (call.origin, call.writes);
        if let Origin::Program = origin {
            // If it runs again, its task makes its calls anew.
            self.earlier_is_over(id);
        }
        self.cuts_lineage(id);
        if writes == 0 {
            self.forget_call(id);
        }
    }

    /// Forgets what was told of calls within one of the program that has ended: they are not made again.
    pub(super) fn earlier_is_over(&mut self, root: CallId) {
        for call in self.nests.earlier.remove(&root).into_iter().flatten() {
            if let Some(earlier) = self.earlier.remove(&call) {
                if let Some(member) = earlier.runs_on {
                    self.members.ended(member, Claim::UNKNOWN);
                }
                self.forget_copies(call, earlier);
            }
            let Early { first, others } = self.durable.early.remove(&call).unwrap_or_default();
            for (member, outcome) in first.into_iter().chain(others) {
                if let Outcome::Durable { bytes, .. } | Outcome::Ignored { bytes, .. } = outcome {
                    self.is_not_for_ever(call, member, bytes.len());
                }
            }
        }
    }

    /// Takes back that a member runs a call of an earlier run that was not made yet.
    pub(super) fn runs_no_more(&mut self, member: Member, call: CallId) {
        if let Some(earlier) = self.earlier.get_mut(&call)
            && earlier.runs_on == Some(member)
        {
            earlier.runs_on = None;
            self.members.ended(member, Claim::UNKNOWN);
        }
    }

    fn forget_copies(&mut self, call: CallId, earlier: Earlier) {
        for (slot, copies) in earlier.copies {
            let version = VersionId { call, slot };
            self.actions.extend(copies.members.into_iter().map(|member| Action::Forget(member, version)));
        }
    }

    fn earlier(&mut self, call: CallId, mark: Mark) -> &mut Earlier {
        if let Some(root) = mark.root {
            self.nests.earlier.entry(root).or_default().insert(call);
        }
        let new = || Earlier { mark, copies: BTreeMap::new(), runs_on: None };
        self.earlier.entry(call).or_insert_with(new)
    }

    /// Returns what is known of a call, or of data, that is made now.
    pub(super) fn known_of(&mut self, call: CallId, mark: Mark) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if earlier.mark == mark {
            return Some(earlier);
        }
        self.diverges(Divergence { call, was: earlier.mark, is: mark });
        None
    }

    pub(super) fn diverges(&mut self, divergence: Divergence) {
        self.divergence.get_or_insert(divergence);
    }

    /// Returns the call by which it was noticed that the program differs from its earlier run.
    pub(crate) fn divergence(&self) -> Option<Divergence> {
        self.divergence
    }

    /// Forgets what was told of calls before this one after they were made: data of the program, which is not counted
    /// by [`next`](Self::next).
    pub(super) fn forget_earlier(&mut self, call: CallId) {
        while let Some(entry) = self.earlier.first_entry().filter(|entry| *entry.key() < call) {
            let (call, earlier) = entry.remove_entry();
            if let Some(member) = earlier.runs_on {
                self.members.ended(member, Claim::UNKNOWN);
            }
            self.forget_copies(call, earlier);
        }
    }

    /// Forgets what was known of a member from earlier runs.
    pub(super) fn earlier_is_lost(&mut self, member: Member) {
        for earlier in self.earlier.values_mut() {
            earlier.runs_on = earlier.runs_on.filter(|on| *on != member);
            earlier.copies.retain(|_, copies| {
                copies.members.retain(|other| *other != member);
                !copies.members.is_empty()
            });
        }
    }

    /// Has versions copied that are only with members that leave, and whose calls the program has not made yet: it may
    /// need them when it has come so far.
    pub(super) fn rescue_earlier(&mut self) {
        if !self.members.any_leaves() {
            return;
        }
        let slots = |(call, earlier): (&CallId, &Earlier)| {
            let call = *call;
            earlier.copies.keys().map(|slot| VersionId { call, slot: *slot }).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.earlier.iter().flat_map(slots).collect();
        for id in all {
            self.rescue_one_of_earlier(id);
        }
    }

    pub(super) fn rescue_one_of_earlier(&mut self, id: VersionId) {
        let Some(Earlier { mark, copies, .. }) = self.earlier.get(&id.call) else { return };
        let Some(Copies { members, bytes }) = copies.get(&id.slot) else { return };
        let all_leave = members.iter().all(|member| self.members.is_leaving(*member));
        if !all_leave || self.copying.contains_key(&id) {
            return;
        }
        let (source, bytes) = (Source { version: id, mark: *mark, members: members.clone() }, *bytes);
        match self.members.stays(bytes) {
            Some(to) => self.copy(source, to),
            None => self.preserve(source, bytes),
        }
    }

    /// Takes in that a member has got a version whose call the program has not made yet.
    pub(super) fn earlier_is_copied(&mut self, id: VersionId, member: Member) {
        let copies = self.earlier.get_mut(&id.call).and_then(|earlier| earlier.copies.get_mut(&id.slot));
        match copies {
            Some(copies) => copies.add(member),
            None => self.actions.push(Action::Forget(member, id)),
        }
        if self.is_copied(id, member) {
            // That member may leave by now, too.
            self.rescue_one_of_earlier(id);
        }
    }

    /// Adds what has ended to what other nodes are told.
    pub(super) fn has_ended(&mut self, id: CallId) {
        match self.calls.get(&id).map(|call| call.origin) {
            Some(Origin::Task(within)) => self.ends_in_history(id, Some(within.root)),
            Some(Origin::Get(_)) => {}
            Some(Origin::Program) | None => self.ends_in_history(id, None),
        }
    }

    /// The same for one that was made within a call of the program, or by that itself.
    pub(super) fn ends_in_history(&mut self, id: CallId, root: Option<CallId>) {
        if !self.has_losses {
            return;
        }
        for history in [&mut self.history, &mut self.news] {
            match root {
                Some(root) => history.ends_within(root, id),
                None => history.ends(id),
            }
        }
    }

    /// Returns whether a call has ended in an earlier run.
    pub(super) fn history_has(&self, id: CallId, origin: Origin) -> bool {
        match origin {
            Origin::Program => self.history.has_ended(id),
            Origin::Task(within) => self.history.has_ended_within(within.root, id),
            Origin::Get(_) => false,
        }
    }

    /// The same for a call that has failed and has written defaults.
    pub(super) fn is_ignored(&mut self, id: CallId) {
        self.history.ignores(id);
        self.news.ignores(id);
    }

    /// The same for a call that has failed for good.
    pub(super) fn has_failed(&mut self, id: CallId, reason: &str) {
        if self.has_losses {
            self.history.fails(id, reason);
            self.news.fails(id, reason);
        }
    }

    /// Returns which calls have ended altogether, in this run and before.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns which calls have ended since this was last asked.
    pub(crate) fn take_news(&mut self) -> History {
        std::mem::take(&mut self.news)
    }

    /// Takes in what a member has written for a call that was not assigned to it, or taken from it.
    pub(super) fn is_left_over(&mut self, call: CallId, member: Member, bytes: &[u64]) {
        if !self.members.has(member) {
            return;
        }
        for (slot, bytes) in (0..).zip(bytes) {
            let id = VersionId { call, slot };
            match self.versions.get(&id).map(|version| &version.state) {
                // It is as good as any other copy.
                Some(State::Present(_) | State::Awaited | State::Gone) => {
                    self.is_there(id, member, *bytes);
                    self.forget_unless_needed(id);
                }
                None if self.kept.has(id, member) => {}
                Some(State::Failed(_)) | None => self.actions.push(Action::Forget(member, id)),
            }
        }
    }
}

//! Restart of a program: reuse of the results of its earlier runs.
//!
//! When the node of the program is lost, or leaves, the program restarts on another one. It makes the same
//! calls, so they have the same numbers. The other nodes report their state of the previous run: the versions
//! that they keep, the calls that they run, and the completed calls ([`History`]). A completed call does not
//! run again; it is known as the recipe of its output, like any call completed in this run, and its versions
//! are with the members that keep them, or gone. So only data that is needed and lost is recomputed. Running
//! calls continue, and count.
//!
//! That is correct only if the program does make the same calls. So each version has a [`Mark`], and a version
//! with another mark ends the program: its result would mix two different runs.

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
use crate::ids::{CallId, NESTED_BIT, VersionId};

impl Graph {
    /// Handles a member that keeps a version of an earlier run.
    pub(crate) fn on_held(&mut self, member: Member, held: Held) {
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
                // It belongs to an older run.
                self.actions.push(Action::Forget(member, id));
            }
            return;
        }
        if self.kept.has(id, member) {
            // The member fetched it in this run, before it has reported its data.
            return;
        }
        match self.versions.get(&id).map(|version| version.mark) {
            Some(known) if known == mark => {
                if self.is_unseen(id, member) {
                    return;
                }
                self.on_present(id, member, bytes);
                self.forget_unless_needed(id);
            }
            Some(known) if id.call < NESTED_BIT => {
                self.record_divergence(Divergence { call: id.call, was: mark, is: known });
            }
            // It is no longer needed; or its task ran again with other calls, which is detected there.
            Some(_) | None => self.actions.push(Action::Forget(member, id)),
        }
    }

    /// Handles a member that runs a call of an earlier run.
    pub(crate) fn on_running(&mut self, member: Member, id: CallId, mark: Mark) {
        if self.is_to_come(id, mark) {
            let earlier = self.earlier(id, mark);
            if earlier.mark == mark && earlier.runs_on.is_none() {
                earlier.runs_on = Some(member);
                self.members.on_assigned(member, Claim::UNKNOWN, false);
            }
            return;
        }
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.mark == mark) else { return };
        if matches!(call.state, CallState::Inputs(_) | CallState::Worker) {
            (call.state, call.is_earlier) = (CallState::Runs(member), true);
            self.see(Seen::Assigns { call: id, to: member.0 });
            self.occupy(id, member);
        }
    }

    /// Adds calls completed in earlier runs, before this run has made them. New ones are forwarded to the other
    /// nodes: the reporting member may be the only one that knows them, and may leave.
    pub(crate) fn add_history(&mut self, history: History) {
        let news = history.without(&self.history);
        self.history.add(news.clone());
        self.news.add(news);
    }

    /// Handles the end of a call of an earlier run that this run has not made yet. Its output was reported
    /// before.
    pub(super) fn ended_early(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        let Some(earlier) = self.earlier.get_mut(&id).filter(|earlier| earlier.runs_on == Some(member))
        else {
            // Another member is known to run it.
            self.durable.keep_early(id, member, outcome, false);
            return;
        };
        earlier.runs_on = None;
        let root = earlier.mark.root;
        self.members.ended(member, Claim::UNKNOWN);
        if self.durable.keep_early(id, member, outcome, true) {
            return;
        }
        match outcome {
            Outcome::Written { .. } | Outcome::Durable { .. } => self.add_end_within(id, root),
            Outcome::Ignored { .. } => {
                self.add_ignored(id);
                self.add_end_within(id, root);
            }
            // The call is retried.
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    /// Handles damage to the data of a member from earlier runs.
    pub(super) fn on_early_damage(&mut self, id: VersionId, member: Member) {
        let Some(earlier) = self.earlier.get_mut(&id.call) else { return };
        if let Some(copies) = earlier.copies.get_mut(&id.slot) {
            copies.members.retain(|other| *other != member);
            if copies.members.is_empty() {
                earlier.copies.remove(&id.slot);
            }
        }
    }

    /// Returns whether this run of the program may still make a call, or create data.
    pub(super) fn is_to_come(&self, call: CallId, mark: Mark) -> bool {
        let Some(root) = mark.root else { return call >= self.next() };
        let is_known =
            self.calls.contains_key(&call) || self.versions.contains_key(&VersionId { call, slot: 0 });
        !is_known && (root >= self.next() || self.is_unfinished(root))
    }

    /// Takes the state of earlier runs for a call, or data, that is made now within a call of the program.
    pub(super) fn earlier_within(&mut self, root: CallId, call: CallId) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if let Some(calls) = self.nests.earlier.get_mut(&root) {
            calls.remove(&call);
        }
        Some(earlier)
    }

    /// Handles a new call that has completed in an earlier run.
    pub(super) fn on_ended_before(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).expect("it was made");
        call.state = CallState::Done;
        let (origin, writes) = (call.origin, call.writes);
        if let Origin::Program = origin {
            // If it runs again, its task repeats its calls.
            self.on_earlier_over(id);
        }
        self.cut_lineage(id);
        if writes == 0 {
            self.forget_call(id);
        }
    }

    /// Forgets the reports about calls within a completed call of the program: they are not made again.
    pub(super) fn on_earlier_over(&mut self, root: CallId) {
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
                    self.discard_duplicate_output(call, member, bytes.len());
                }
            }
        }
    }

    /// Reverts that a member runs a call of an earlier run that was not made yet.
    pub(super) fn on_not_running(&mut self, member: Member, call: CallId) {
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

    /// Returns the state of earlier runs for a call, or data, that is made now.
    pub(super) fn known_of(&mut self, call: CallId, mark: Mark) -> Option<Earlier> {
        let earlier = self.earlier.remove(&call)?;
        if earlier.mark == mark {
            return Some(earlier);
        }
        self.record_divergence(Divergence { call, was: earlier.mark, is: mark });
        None
    }

    pub(super) fn record_divergence(&mut self, divergence: Divergence) {
        self.divergence.get_or_insert(divergence);
    }

    /// Returns the call in which the program differs from its earlier run.
    pub(crate) fn divergence(&self) -> Option<Divergence> {
        self.divergence
    }

    /// Forgets reports about calls before this one that came after they were made: data of the program, which
    /// [`next`](Self::next) does not count.
    pub(super) fn forget_earlier(&mut self, call: CallId) {
        while let Some(entry) = self.earlier.first_entry().filter(|entry| *entry.key() < call) {
            let (call, earlier) = entry.remove_entry();
            if let Some(member) = earlier.runs_on {
                self.members.ended(member, Claim::UNKNOWN);
            }
            self.forget_copies(call, earlier);
        }
    }

    /// Forgets the state of a member from earlier runs.
    pub(super) fn on_earlier_lost(&mut self, member: Member) {
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
        match self.members.staying_member(bytes) {
            Some(to) => self.copy(source, to),
            None => self.preserve(source, bytes),
        }
    }

    /// Handles a copy of a version whose call the program has not made yet.
    pub(super) fn on_earlier_copied(&mut self, id: VersionId, member: Member) {
        let copies = self.earlier.get_mut(&id.call).and_then(|earlier| earlier.copies.get_mut(&id.slot));
        match copies {
            Some(copies) => copies.add(member),
            None => self.actions.push(Action::Forget(member, id)),
        }
        if self.is_copied(id, member) {
            // That member may be leaving too.
            self.rescue_one_of_earlier(id);
        }
    }

    /// Adds a completed call to the news for the other nodes.
    pub(super) fn add_end(&mut self, id: CallId) {
        match self.calls.get(&id).map(|call| call.origin) {
            Some(Origin::Task(within)) => self.add_end_within(id, Some(within.root)),
            Some(Origin::Get(_)) => {}
            Some(Origin::Program) | None => self.add_end_within(id, None),
        }
    }

    /// Adds a completed call to the news for the other nodes: one within `root`, or one of the program.
    pub(super) fn add_end_within(&mut self, id: CallId, root: Option<CallId>) {
        if !self.has_losses {
            return;
        }
        for history in [&mut self.history, &mut self.news] {
            match root {
                Some(root) => history.add_end_within(root, id),
                None => history.add_end(id),
            }
        }
    }

    /// Returns whether a call has completed in an earlier run.
    pub(super) fn history_has(&self, id: CallId, origin: Origin) -> bool {
        match origin {
            Origin::Program => self.history.has_ended(id),
            Origin::Task(within) => self.history.has_ended_within(within.root, id),
            Origin::Get(_) => false,
        }
    }

    /// Adds a call that has failed and has written defaults.
    pub(super) fn add_ignored(&mut self, id: CallId) {
        self.history.add_ignored(id);
        self.news.add_ignored(id);
    }

    /// Adds a call that has failed permanently.
    pub(super) fn add_failure(&mut self, id: CallId, reason: &str) {
        if self.has_losses {
            self.history.add_failure(id, reason);
            self.news.add_failure(id, reason);
        }
    }

    /// Returns all completed calls, of this run and earlier ones.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the calls that have completed since the last time.
    pub(crate) fn take_news(&mut self) -> History {
        std::mem::take(&mut self.news)
    }

    /// Handles the output of a call on a member to which it was not assigned, or no longer is.
    pub(super) fn on_left_over(&mut self, call: CallId, member: Member, bytes: &[u64]) {
        if !self.members.has(member) {
            return;
        }
        for (slot, bytes) in (0..).zip(bytes) {
            let id = VersionId { call, slot };
            match self.versions.get(&id).map(|version| &version.state) {
                // It is as good as any other copy.
                Some(State::Present(_) | State::Awaited | State::Gone) => {
                    self.on_present(id, member, *bytes);
                    self.forget_unless_needed(id);
                }
                None if self.kept.has(id, member) => {}
                Some(State::Failed(_)) | None => self.actions.push(Action::Forget(member, id)),
            }
        }
    }
}

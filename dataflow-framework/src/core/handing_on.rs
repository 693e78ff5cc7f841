//! Completion of calls with nested calls: a call completes once its nested calls have completed and its
//! forwarded results exist. See `nested.rs`.

use super::{
    call::{Origin, Outcome},
    graph::{Action, Graph},
    members::Member,
    state::nests::Nest,
    version::{Copies, State, Version},
};
use crate::ids::{CallId, VersionId};

impl Graph {
    /// Handles the outcome of the task of a call. Returns it if the call has the same outcome now; otherwise
    /// nested calls are unfinished.
    pub(super) fn of_nest(&mut self, id: CallId, outcome: Outcome) -> Option<Outcome> {
        if let Some(Origin::Get(_)) = self.calls.get(&id).map(|call| call.origin) {
            // The task itself reports the value that it waits for.
            return None;
        }
        let Some(nest) = self.nests.by_call.get_mut(&id).filter(|nest| nest.runs.is_some()) else {
            return Some(outcome);
        };
        if let Outcome::Unfit(_) = outcome {
            // It runs again elsewhere, and makes the same calls.
            self.reclaim_worker(id);
            return Some(outcome);
        }
        let Outcome::Written { .. } = outcome else {
            self.reclaim_worker(id);
            self.nest(id).runs = None;
            self.nest_ends(id);
            return Some(outcome);
        };
        nest.outcome = Some(outcome);
        self.lend_worker(id);
        self.complete(id);
        None
    }

    /// Completes a call whose task has ended, if all its nested calls have ended too.
    pub(super) fn complete(&mut self, id: CallId) {
        let Some(nest) = self.nests.by_call.get_mut(&id) else { return };
        let Some((member, _)) = nest.runs.filter(|_| nest.outcome.is_some() && nest.unfinished.is_empty())
        else {
            return;
        };
        let handed_on = nest.handed_on.clone();
        let is_awaited = |version: &VersionId| matches!(self.versions[version].state, State::Awaited);
        if handed_on.iter().any(|(_, version)| is_awaited(version)) {
            return;
        }
        let gone: Vec<_> = handed_on.iter().map(|(_, version)| *version).collect();
        let gone = gone.into_iter().filter(|version| matches!(self.versions[version].state, State::Gone));
        let gone: Vec<_> = gone.collect();
        if !gone.is_empty() {
            return self.recompute_forwarded(id, &gone);
        }
        let reason = self.untold(id);
        if reason.is_none() && !self.are_named(id, &handed_on) {
            return;
        }
        self.reclaim_worker(id);
        self.free(id, member);
        let nest = self.nest(id);
        nest.runs = None;
        let Some(Outcome::Written { bytes, ns }) = nest.outcome.take() else {
            unreachable!("other ends are at once")
        };
        if let Some(reason) = reason {
            let failure = self.failure_of(id, reason);
            self.nest_ends(id);
            return self.failed(id, &failure);
        }
        self.members.took(self.calls[&id].task, ns);
        self.hand_on(id, &handed_on);
        self.written(id, member, &bytes);
    }

    /// Recomputes versions that a task forwards. Versions in the journal are restored immediately, without the
    /// end of a call.
    fn recompute_forwarded(&mut self, id: CallId, gone: &[VersionId]) {
        for version in gone {
            self.make_again(*version);
        }
        let is_present = |version| self.versions.get(version).is_some_and(Version::is_present);
        if gone.iter().all(is_present) {
            self.complete(id);
        }
    }

    /// Lets members keep the forwarded versions of a task as the output of its call. Returns whether that is
    /// done everywhere: a member that is asked for the new name must have it.
    fn are_named(&mut self, id: CallId, versions: &[(u32, VersionId)]) -> bool {
        let mark = self.calls[&id].mark;
        for (slot, from) in versions {
            let State::Present(Copies { members, .. }) = &self.versions[from].state else { continue };
            let here = members.contains(&Member::HERE).then_some(Member::HERE);
            let Some(member) = here.or(members.first().copied()) else { continue };
            let nest = self.nests.by_call.get_mut(&id).expect("its task makes calls");
            if !nest.named.contains_key(slot) {
                nest.named.insert(*slot, (member, member == Member::HERE));
                self.actions.push(Action::Alias(member, *from, VersionId { call: id, slot: *slot }, mark));
            }
        }
        self.nest(id).named.values().all(|(_, is_done)| *is_done)
    }

    /// Handles a member that has renamed a version, or does not have it. Returns whether it was ordered to.
    pub(super) fn is_named(&mut self, id: VersionId, member: Member, is_done: bool) -> bool {
        let Some(nest) = self.nests.by_call.get_mut(&id.call) else { return false };
        if nest.named.get(&id.slot) != Some(&(member, false)) {
            return false;
        }
        if is_done {
            nest.named.insert(id.slot, (member, true));
        } else {
            nest.named.remove(&id.slot);
            let from = nest.handed_on.iter().find(|(slot, _)| *slot == id.slot).map(|(_, from)| *from);
            if let Some(from) = from {
                self.on_fetch_failed(from, &[member]);
            }
        }
        self.complete(id.call);
        true
    }

    /// Moves the renaming of versions from a lost member to another one.
    pub(super) fn move_names(&mut self, member: Member) {
        let is_lost = |nest: &Nest| nest.named.values().any(|(on, _)| *on == member);
        let lost = self.nests.by_call.iter().filter(|(_, nest)| is_lost(nest)).map(|(id, _)| *id);
        for id in lost.collect::<Vec<_>>() {
            if let Some(nest) = self.nests.by_call.get_mut(&id) {
                nest.named.retain(|_, (on, _)| *on != member);
                self.complete(id);
            }
        }
    }

    /// Returns the reason why a call fails although its task has returned normally: a failure that its
    /// forwarded output depends on, or one that the task has not received.
    fn untold(&mut self, id: CallId) -> Option<String> {
        let nest = &self.nests.by_call[&id];
        if let Some(failure) = &nest.fails {
            return Some(failure.reason().to_owned());
        }
        let handed_on = nest.handed_on.iter().find_map(|(_, version)| match &self.versions[version].state {
            State::Failed(failure) => Some(failure),
            _ => None,
        });
        let failure = handed_on.or_else(|| nest.failures.iter().find(|failure| !failure.is_seen()))?;
        Some(failure.to_string())
    }

    /// Makes the forwarded versions of a task the output of its call.
    fn hand_on(&mut self, id: CallId, versions: &[(u32, VersionId)]) {
        for (slot, from) in versions {
            let to = VersionId { call: id, slot: *slot };
            let State::Present(Copies { bytes, .. }) = self.versions[from].state else {
                unreachable!("it is there, or the call has failed")
            };
            let depth = self.versions[from].depth;
            if let Some(version) = self.versions.get_mut(&to) {
                version.depth = version.depth.max(depth);
            }
            let (member, _) = self.nests.by_call[&id].named[slot];
            self.on_present(to, member, bytes);
        }
    }

    /// Returns whether a version written here is forwarded output of a task.
    pub(super) fn is_handed_on(&self, version: VersionId) -> bool {
        let nest = self.nests.by_call.get(&version.call);
        nest.is_some_and(|nest| nest.handed_on.iter().any(|(slot, _)| *slot == version.slot))
    }
}

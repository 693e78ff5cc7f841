//! What is forgotten, and how it is made again.
//!
//! A version that nobody needs is forgotten where it is. The call that has written it stays known as long as something
//! depends on it that may be needed again: with the calls before, it is the recipe for that. So when a member is lost,
//! what is needed and nowhere else is made again by its call, which needs what it has read, and so on, back to what is
//! still there. Nothing else is made again.
//!
//! A task is a function: run again on the same inputs it writes the same versions. Data that the program has brought in
//! has no call, so it stays as long as something depends on it.

use std::sync::Arc;

use super::{
    call::{Call, CallState},
    graph::{Action, Graph},
    members::Member,
    rescue::Keeping,
    version::{Source, State},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId, NESTED, VersionId},
};

/// The number of members that may be lost with a call before that is held to be the reason. Others that waited there
/// are lost with it, but have another place and other neighbours the next time.
pub(super) const DEATHS_MAX: u32 = 4;

impl Graph {
    /// Tells that a member was lost, with everything that it had.
    pub(crate) fn lost(&mut self, member: Member) {
        self.nests_are_lost(member);
        self.members.remove(member);
        self.ready.is_lost(member);
        self.earlier_is_lost(member);
        self.durable_is_lost(member);
        self.kept.is_lost(member);
        let lost = self.versions.iter().filter(|(_, version)| version.is_with(member)).map(|(id, _)| *id);
        let mut lost: Vec<_> = lost.collect();
        // The order of a hash table is not the same each time.
        lost.sort_unstable();
        for id in &lost {
            let version = self.version_mut(*id);
            let State::Present(copies) = &mut version.state else { continue };
            copies.members.retain(|other| *other != member);
            if copies.members.is_empty() {
                version.state = State::Gone;
            }
        }
        // First the calls, so that each waits for what it really misses.
        let affected: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| match call.state {
                CallState::Runs(on) => on == member,
                CallState::Inputs(_) | CallState::Worker => true,
                CallState::Done | CallState::Recorded => false,
            })
            .map(|(id, _)| id)
            .collect();
        for id in affected {
            self.misses_again(id, member);
        }
        for id in lost {
            let Some(version) = self.versions.get(&id) else { continue };
            let (is_present, is_wanted) = (version.is_present(), version.is_wanted);
            if is_present {
                // Those that are left may be about to leave.
                self.rescue(id);
            } else {
                self.copying.remove(&id);
            }
            if is_wanted {
                self.want_again(id);
            }
            // It may have been known only because it was being copied.
            self.forget_unless_needed(id);
        }
        self.copies_are_lost(member);
        self.rescue_earlier();
        self.names_are_lost(member);
        self.nobody_stays();
    }

    /// Has a member forget what a call would have changed in place there, if it had begun. Of other things that it reads
    /// the member tells if it gets them, and that may be under way.
    pub(super) fn misses_what_it_took(&mut self, id: CallId, member: Member) {
        let taken = self.calls.get_mut(&id).map(|call| std::mem::take(&mut call.taken));
        for version in taken.into_iter().flatten() {
            let is_to_come = self.copying.get(&version) == Some(&member);
            if !is_to_come && !self.versions[&version].is_with(member) {
                self.actions.push(Action::Forget(member, version));
            }
        }
    }

    /// Lets a call wait for what it misses now, if that has changed.
    fn misses_again(&mut self, id: CallId, lost: Member) {
        // One of those before may have failed, and this one with it.
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.state == CallState::Runs(lost) {
            call.deaths += 1;
            if call.deaths > DEATHS_MAX {
                let reason =
                    format!("{} nodes were lost to which it was assigned, one after another", call.deaths);
                let failure = Failure::new(call.task.name, id, reason);
                if !self.records_failure(id, &failure) {
                    self.fails_for_good(id, &failure);
                }
                return;
            }
        }
        self.looks_again(id);
    }

    /// Lets a call wait for what it misses now, if that is something else than before.
    fn looks_again(&mut self, id: CallId) {
        let Some(call) = self.calls.get(&id) else { return };
        let reads = call.arguments.iter().flat_map(Argument::versions);
        let missing = reads.filter(|input| !self.versions[input].is_present()).count();
        match call.state {
            CallState::Inputs(before) if before == missing => {}
            CallState::Worker if missing == 0 => {}
            // It was cancelled with one before.
            CallState::Done | CallState::Recorded => {}
            _ => self.begins_again(id),
        }
    }

    /// Tells that a version could not be brought to where the program runs from those that were `tried`.
    pub(crate) fn not_brought(&mut self, id: VersionId, tried: &[Member]) {
        if self.versions.get(&id).is_some_and(|version| version.is_wanted) {
            self.on_fetch_failed(id, tried);
            self.want_again(id);
        }
        self.not_copied(id, Member::HERE, tried);
    }

    /// Gives a version up with the members that were `tried`, and do not send it. If nobody else has it, it is made
    /// again. A member to which it was brought meanwhile was not asked, and keeps it.
    pub(super) fn on_fetch_failed(&mut self, id: VersionId, tried: &[Member]) {
        // Data that the program has brought in cannot be made again.
        let Some(version) = self.versions.get_mut(&id).filter(|_| self.calls.contains_key(&id.call)) else {
            return;
        };
        let State::Present(copies) = &mut version.state else { return };
        let is_unreachable = |member: &mut Member| *member != Member::HERE && tried.contains(member);
        let unreachable = copies.members.extract_if(.., is_unreachable);
        self.actions.extend(unreachable.map(|member| Action::Forget(member, id)));
        if copies.members.is_empty() {
            version.state = State::Gone;
            for reader in version.readers.clone() {
                self.looks_again_unless_it_runs(reader);
            }
        }
    }

    /// Does what [`looks_again`](Self::looks_again) does; but those that run have got what they read, or will tell that
    /// they could not.
    pub(super) fn looks_again_unless_it_runs(&mut self, id: CallId) {
        let runs = |call: &Call| matches!(call.state, CallState::Runs(_));
        if !self.calls.get(&id).is_some_and(runs) {
            self.looks_again(id);
        }
    }

    /// Returns whether a version is there, or never will be. If it is lost, it is made again.
    pub(crate) fn has_outcome(&mut self, id: VersionId) -> bool {
        match &self.version_mut(id).state {
            State::Failed(_) | State::Present(_) => true,
            State::Awaited => false,
            State::Gone => {
                self.make_again(id);
                self.versions[&id].is_present()
            }
        }
    }

    /// Has a version brought or made again for which the program waits.
    pub(super) fn want_again(&mut self, id: VersionId) {
        match &self.versions[&id].state {
            State::Gone => self.make_again(id),
            State::Present(copies) if !copies.members.contains(&Member::HERE) => {
                let (mark, members) = (self.versions[&id].mark, copies.members.clone());
                self.actions.push(Action::Bring(Source { version: id, mark, members }));
            }
            _ => {}
        }
    }

    /// Has a version made again that is gone, and everything for that which is gone, too.
    pub(super) fn make_again(&mut self, id: VersionId) {
        let (asked, mut gone) = (id, vec![id]);
        while let Some(id) = gone.pop() {
            // Its readers may have been given up, since another thing that they read has failed.
            let Some(version) = self.versions.get(&id) else { continue };
            if !version.is_awaited() && (id != asked || version.handles == 0) {
                continue;
            }
            if !matches!(version.state, State::Gone) || self.is_still_kept(id) || self.restores(id) {
                continue;
            }
            let version = self.version_mut(id);
            version.state = State::Awaited;
            let Some(call) = self.calls.get_mut(&id.call) else {
                if id.call < NESTED {
                    // It is not forgotten, but may have been damaged before the last other copy was lost.
                    self.is_lost_for_good(
                        id,
                        "the program has brought it in, and the nodes are lost that had it",
                    );
                } else if self.task_with_handle(id).is_none() {
                    self.is_lost_for_good(
                        id,
                        "the task that has brought it in has ended, and the nodes are lost that had it",
                    );
                }
                // Otherwise the task brings it in again that has done so, since that was lost, too.
                continue;
            };
            if call.state != CallState::Done {
                // It runs again for another of its versions.
                continue;
            }
            self.unfinished += 1;
            self.child_begins(id.call);
            let call = &self.calls[&id.call];
            self.figures.repeated += 1;
            self.observed.of(call.task).repeated += 1;
            let arguments = Arc::clone(&call.arguments);
            let (mut missing, mut has_failed) = (0, false);
            for input in arguments.iter().flat_map(Argument::versions) {
                let version = self.version_mut(*input);
                version.readers.push(id.call);
                missing += usize::from(!version.is_present());
                has_failed |= matches!(version.state, State::Failed(_));
                if matches!(version.state, State::Gone) {
                    gone.push(*input);
                }
            }
            self.calls.get_mut(&id.call).expect("it is known").state = CallState::Inputs(missing);
            // One that has failed may have been there when the call ran before.
            if missing == 0 || has_failed {
                self.begins_again(id.call);
            }
        }
    }

    /// Forgets a version if nobody needs it, and the calls that are not needed to make anything again.
    pub(super) fn forget_unless_needed(&mut self, id: VersionId) {
        // Nearly always there is only the first one.
        let (mut first, mut unneeded) = (Some(id), Vec::new());
        while let Some(id) = first.take().or_else(|| unneeded.pop()) {
            let Some(version) = self.versions.get_mut(&id) else { continue };
            // What is awaited has to be known when its call ends.
            let is_copied = self.copying.contains_key(&id);
            let is_awaited = matches!(version.state, State::Awaited) && self.calls.contains_key(&id.call);
            if version.is_needed() || is_copied || is_awaited {
                continue;
            }
            // Data that the program has brought in cannot be made again.
            if version.dependants > 0 && version.is_present() && !self.calls.contains_key(&id.call) {
                continue;
            }
            // Nor can what was written for ever, and is not in the journal.
            if self.is_precious(id) && self.versions[&id].is_present() {
                continue;
            }
            let keeper = match self.keep(id) {
                Keeping::UnderWay => continue,
                Keeping::With(member) => Some(member),
                Keeping::No => None,
            };
            let Some(version) = self.versions.get_mut(&id) else { continue };
            if let State::Present(copies) = &version.state {
                let others = copies.members.iter().filter(|member| Some(**member) != keeper);
                self.actions.extend(others.map(|member| Action::Forget(*member, id)));
            }
            if version.dependants > 0 {
                if version.is_present() {
                    version.state = State::Gone;
                }
                continue;
            }
            self.versions.remove(&id);
            let Some(call) = self.calls.get_mut(&id.call) else { continue };
            call.known -= 1;
            if call.known == 0 && call.state == CallState::Done {
                unneeded.extend(self.remove_call(id.call));
            }
        }
    }

    /// Forgets a call that has ended, and what was only needed to run it again.
    pub(super) fn forget_call(&mut self, id: CallId) {
        for version in self.remove_call(id) {
            self.forget_unless_needed(version);
        }
    }

    /// Removes a call, and returns what it has read.
    fn remove_call(&mut self, id: CallId) -> Vec<VersionId> {
        let Some(call) = self.calls.remove(&id) else { return Vec::new() };
        let read: Vec<_> = call.reads().collect();
        for version in &read {
            self.version_mut(*version).dependants -= 1;
        }
        read
    }

    /// Returns whether nothing is known, as at first.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.versions.is_empty()
            && self.ready.len() == 0
            && self.lanes.is_empty()
            && self.unfinished == 0
            && self.nests.by_call.is_empty()
            && self.reductions.is_empty()
            && self.chains.is_empty()
    }
}

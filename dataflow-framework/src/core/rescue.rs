//! Copies made in advance: of all data that only a leaving member has, so that nothing must be recomputed; and
//! of data that the program has read, so that it can be read again after a restart.

use std::collections::BTreeSet;

use super::{
    graph::{Action, Graph},
    members::Member,
    state::kept::Kept,
    version::{Source, State},
};
use crate::ids::{CallId, VersionId};

impl Graph {
    /// Handles a leaving member: it receives no more calls, and data that only it has is copied to others.
    /// [`Action::LetGo`] reports when it may go.
    pub(crate) fn on_leaving(&mut self, member: Member) {
        self.members.leave(member);
        if !self.has_losses {
            return;
        }
        let held = self.versions.iter().filter(|(_, version)| version.is_with(member)).map(|(id, _)| *id);
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        if !self.members.anybody_stays() {
            // As many as fit, but first those that cannot be recomputed.
            held.sort_by_key(|id| (!self.is_precious(*id), self.versions[id].bytes()));
        }
        for id in held {
            self.rescue(id);
        }
        self.rescue_earlier();
        for id in self.kept.with(member) {
            self.rescue_kept(id);
        }
    }

    /// Handles a new member. Data that is kept on the node of the program, for lack of another member, is
    /// copied to it.
    pub(super) fn copy_kept_to(&mut self, member: Member) {
        if member == Member::HERE {
            return;
        }
        for id in self.kept.with(Member::HERE) {
            let Some(Kept { mark, bytes, .. }) = self.kept.versions.get(&id).copied() else { continue };
            if !self.is_there_or_made_again(id) && !self.copying.contains_key(&id) {
                self.members.on_given(member, bytes);
                self.copy(Source { version: id, mark, members: vec![Member::HERE] }, member);
            }
        }
    }

    /// Returns whether a version is available or will be, although it was not needed when it was kept.
    fn is_there_or_made_again(&self, id: VersionId) -> bool {
        self.versions.get(&id).is_some_and(|version| !matches!(version.state, State::Gone))
    }

    /// Copies a kept version that is on a leaving member.
    pub(super) fn rescue_kept(&mut self, id: VersionId) {
        if !self.is_there_or_made_again(id) {
            self.rescue_from_keeper(id);
        }
    }

    fn rescue_from_keeper(&mut self, id: VersionId) {
        let Some(Kept { member, mark, bytes }) = self.kept.versions.get(&id).copied() else { return };
        if !self.members.is_leaving(member) || self.copying.contains_key(&id) {
            return;
        }
        let source = Source { version: id, mark, members: vec![member] };
        match self.members.other_stays(bytes).or_else(|| self.members.staying_member(bytes)) {
            Some(to) => self.copy(source, to),
            None => self.preserve(source, bytes),
        }
    }

    /// Copies a needed version that is only on leaving members.
    pub(super) fn rescue(&mut self, id: VersionId) {
        if !self.members.any_leaves() || self.copying.contains_key(&id) {
            return;
        }
        // A restarted program creates its own data again.
        let Some(version) = self.versions.get(&id).filter(|_| self.calls.contains_key(&id.call)) else {
            return;
        };
        let State::Present(copies) = &version.state else { return };
        if !(version.is_needed() || self.is_precious(id))
            || copies.members.iter().any(|member| !self.members.is_leaving(*member))
        {
            return;
        }
        let bytes = copies.bytes;
        let source = Source { version: id, mark: version.mark, members: copies.members.clone() };
        match self.members.staying_member(bytes) {
            Some(to) => self.copy(source, to),
            None => self.preserve(source, bytes),
        }
    }

    pub(super) fn copy(&mut self, source: Source, to: Member) {
        self.copying.insert(source.version, to);
        self.actions.push(match to {
            Member::HERE => Action::Bring(source),
            to => Action::Copy(to, source),
        });
    }

    /// Handles a copy that has arrived, or has failed. Returns whether one was expected there.
    pub(super) fn is_copied(&mut self, id: VersionId, to: Member) -> bool {
        let was_awaited = self.copying.get(&id) == Some(&to);
        if was_awaited {
            self.copying.remove(&id);
            self.forget_unless_needed(id);
        }
        was_awaited
    }

    /// Handles a member's copy of a version that is no longer known. Returns whether the member must keep it.
    pub(super) fn is_kept_by(&mut self, id: VersionId, member: Member) -> bool {
        let is_awaited = self.copying.get(&id) == Some(&member);
        let Some(kept) = self.kept.versions.get_mut(&id) else { return false };
        if is_awaited && kept.member != member {
            let before = std::mem::replace(&mut kept.member, member);
            self.actions.push(Action::Forget(before, id));
        }
        kept.member == member
    }

    /// Handles a member that could not copy a version from the members `tried`.
    pub(crate) fn not_copied(&mut self, id: VersionId, to: Member, tried: &[Member]) {
        if self.is_named(id, to, false) || self.is_second(id, to, false) {
            return;
        }
        if let Some(version) = self.versions.get_mut(&id) {
            version.was_read = false;
        }
        if self.is_copied(id, to) {
            // Those members do not have it; but others may, and leave too.
            self.on_fetch_failed(id, tried);
            for member in tried.iter().copied().filter(|member| *member != Member::HERE) {
                self.on_not_kept(id, member);
            }
            self.rescue_again(id);
        }
    }

    /// Handles a member that does not send its kept version, or one of an earlier run.
    fn on_not_kept(&mut self, id: VersionId, member: Member) {
        if self.kept.has(id, member) {
            self.kept.on_gone(id, member);
            self.actions.push(Action::Forget(member, id));
        }
        if self.is_unmade(id.call) {
            self.on_early_damage(id, member);
            self.actions.push(Action::Forget(member, id));
        }
    }

    /// Copies a version again after its copy has failed, if it is only on leaving members.
    fn rescue_again(&mut self, id: VersionId) {
        self.rescue(id);
        self.rescue_kept(id);
        self.rescue_one_of_earlier(id);
    }

    pub(super) fn restart_copies(&mut self, member: Member) {
        let lost: Vec<_> = self.copying.iter().filter(|(_, to)| **to == member).map(|(id, _)| *id).collect();
        for id in lost {
            self.copying.remove(&id);
            self.rescue_again(id);
            self.forget_unless_needed(id);
        }
    }

    /// Recalls a call from a leaving member that has not started it; or one that the member has been running
    /// since an earlier run of the program, and that has to run again. `unchanged` are the versions that it
    /// would have updated in place, with their sizes.
    pub(crate) fn returned(&mut self, id: CallId, member: Member, unchanged: &[(VersionId, u64)]) {
        if !self.runs_on(id, member) {
            return self.on_not_running(member, id);
        }
        if !self.calls[&id].is_earlier && !self.members.is_leaving(member) {
            // The report is about an earlier assignment, but the member runs the call for this run of the
            // program as well.
            return;
        }
        self.return_worker(id, member);
        for (version, bytes) in unchanged {
            self.on_present(*version, member, *bytes);
        }
        self.requeue(id);
    }

    /// Lets leaving members go that have nothing that others need.
    pub(super) fn let_go(&mut self) {
        if self.members.any_leaves() {
            // Not only at their exit, which may have to wait for the end of a call.
            self.record_history();
            let recording = self.recording();
            let gone = self.members.let_go(self.is_all_copied(), &recording, !self.durable.is_on);
            self.actions.extend(gone.into_iter().map(Action::LetGo));
        }
    }

    /// Handles the loss of the last staying members. If the node of the program was allowed to go, it must now
    /// write everything to the journal first.
    pub(super) fn nobody_stays(&mut self) {
        if self.durable.is_on && self.members.is_leaving(Member::HERE) && !self.members.anybody_stays() {
            self.on_leaving(Member::HERE);
        }
    }

    /// Returns whether the node of the program may still go after it was [allowed to](Action::LetGo): others
    /// that have started to leave since may need it.
    pub(crate) fn may_go_still(&self) -> bool {
        self.members.here_may_go(self.is_all_copied(), &self.recording(), !self.durable.is_on)
    }

    /// Returns the members with output of calls whose ends will be recorded: now, or when the program makes the
    /// calls again, here or on its next node. The program leaves only after this member, so the member must not
    /// wait for it.
    fn recording(&self) -> BTreeSet<Member> {
        let mut members = self.durable.members_with_ends();
        if self.members.anybody_stays() {
            let early = self.durable.members_with_early_ends();
            members.extend(early.filter(|member| *member != Member::HERE));
        }
        members
    }

    /// Returns whether all data of leaving members is with others, or in the journal if no other member exists.
    fn is_all_copied(&self) -> bool {
        self.copying.is_empty() && !self.is_preserving()
    }

    /// Restores a version that is needed again from the kept ones. Returns whether it was kept.
    pub(super) fn is_still_kept(&mut self, id: VersionId) -> bool {
        let kept = self.kept.remove(id);
        if let Some(Kept { member, bytes, .. }) = kept {
            self.on_present(id, member, bytes);
        }
        kept.is_some()
    }

    /// Keeps a version that is no longer needed, but was read by the program.
    pub(super) fn keep(&mut self, id: VersionId) -> Keeping {
        let version = &self.versions[&id];
        let State::Present(copies) = &version.state else { return Keeping::No };
        let (mark, bytes) = (version.mark, copies.bytes);
        if !version.is_to_be_kept() || !self.calls.contains_key(&id.call) {
            return Keeping::No;
        }
        let mut others = copies.members.iter().copied();
        let other = others.find(|member| *member != Member::HERE && !self.members.is_leaving(*member));
        if let Some(member) = other {
            self.on_kept(id, Kept { member, mark, bytes });
            return Keeping::With(member);
        }
        let source = Source { version: id, mark, members: copies.members.clone() };
        if let Some(to) = self.members.other_stays(bytes) {
            self.copy(source, to);
            return Keeping::UnderWay;
        }
        // If all members leave, the journal must have it. Without one the program restarts from the beginning.
        if !self.durable.is_on {
            return Keeping::No;
        }
        let is_here = copies.members.contains(&Member::HERE);
        let member = if is_here { Member::HERE } else { copies.members[0] };
        self.on_kept(id, Kept { member, mark, bytes });
        self.rescue_from_keeper(id);
        Keeping::With(member)
    }

    fn on_kept(&mut self, id: VersionId, kept: Kept) {
        let before = self.kept.insert(id, kept).filter(|before| *before != kept.member);
        self.actions.extend(before.map(|before| Action::Forget(before, id)));
        while let Some((first, kept)) = self.kept.pop_too_many() {
            self.actions.push(Action::Forget(kept.member, first));
        }
    }
}

/// Whether an unneeded version is kept.
pub(super) enum Keeping {
    No,
    /// It is being copied.
    UnderWay,
    /// It is kept by this member.
    With(Member),
}

//! Copies made in advance: of all data that only a leaving member has, so that nothing must be recomputed; of
//! data that the program has read, so that it can be read again after a restart; and of data for all members. If no
//! member stays, live data is written to the journal, so that the program can resume later.

use std::collections::BTreeSet;

use super::{
    super::{
        action::Action,
        journal::fact::Fact,
        members::Member,
        version::{Source, State, Version},
    },
    Data,
    read_cache::Kept,
};
use crate::ids::VersionId;

impl Data {
    /// Copies a needed version that is only on leaving members.
    pub(in crate::core) fn rescue(&mut self, id: VersionId) {
        if !self.members.any_leaves() || self.copying.contains_key(&id) {
            return;
        }
        // A restarted program creates its own data again.
        let Some(version) = self.versions.get(&id).filter(|_| self.calls.contains_key(&id.call)) else {
            return;
        };
        let (Some(source), bytes) = (version.source(id), version.bytes()) else { return };
        if version.is_needed() || self.journal.is_precious(id) {
            self.rescue_from(source, bytes);
        }
    }

    /// Copies a version if all its owners are leaving.
    pub(in crate::core) fn rescue_from(&mut self, source: Source, bytes: u64) {
        let all_leave = source.members.iter().all(|member| self.members.is_leaving(*member));
        if !all_leave || self.copying.contains_key(&source.version) {
            return;
        }
        match self.members.staying(bytes, |_| true) {
            Some(to) => self.copy(source, to),
            None => self.preserve(source, bytes),
        }
    }

    /// Copies a kept version that is on a leaving member.
    pub(in crate::core) fn rescue_kept(&mut self, id: VersionId) {
        if !self.is_there_or_made_again(id) {
            self.rescue_from_keeper(id);
        }
    }

    fn rescue_from_keeper(&mut self, id: VersionId) {
        let Some(Kept { member, mark, bytes }) = self.kept.get(id) else { return };
        if !self.members.is_leaving(member) || self.copying.contains_key(&id) {
            return;
        }
        let source = Source { version: id, mark, members: vec![member] };
        match self.members.staying(bytes, |to| to != Member::HERE) {
            Some(to) => self.copy(source, to),
            None => self.rescue_from(source, bytes),
        }
    }

    /// Returns whether a version is available or will be, although it was not needed when it was kept.
    fn is_there_or_made_again(&self, id: VersionId) -> bool {
        self.versions.get(&id).is_some_and(|version| !matches!(version.state, State::Gone))
    }

    pub(in crate::core) fn copy(&mut self, source: Source, to: Member) {
        self.copying.insert(source.version, to);
        self.fetch(source, to);
    }

    fn fetch(&mut self, source: Source, to: Member) {
        self.actions.push(match to {
            Member::HERE => Action::Bring(source),
            to => Action::Copy(to, source),
        });
    }

    /// Handles a copy that has arrived, or has failed. Returns whether one was expected there.
    pub(in crate::core) fn is_copied(&mut self, id: VersionId, to: Member) -> bool {
        let was_awaited = self.is_copied_to(id, to);
        if was_awaited {
            self.copying.remove(&id);
            self.forget_unless_needed(id);
        }
        was_awaited
    }

    /// Handles a member's copy of a version that is no longer known. Returns whether the member must keep it.
    pub(in crate::core) fn is_kept_by(&mut self, id: VersionId, member: Member) -> bool {
        if self.is_copied_to(id, member)
            && let Some(before) = self.kept.move_to(id, member)
        {
            self.actions.push(Action::Forget(before, id));
        }
        self.kept.has(id, member)
    }

    pub(super) fn is_copied_to(&self, id: VersionId, member: Member) -> bool {
        self.copying.get(&id) == Some(&member)
    }

    pub(in crate::core) fn end_copy(&mut self, id: VersionId) {
        self.copying.remove(&id);
    }

    pub(in crate::core) fn copied_to(&self, member: Member) -> Vec<VersionId> {
        self.copying.iter().filter(|(_, to)| **to == member).map(|(id, _)| *id).collect()
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
        if let Some(to) = self.members.staying(bytes, |to| to != Member::HERE) {
            self.copy(source, to);
            return Keeping::UnderWay;
        }
        // If all members leave, the journal must have it. Without one the program restarts from the beginning.
        if !self.journal.is_on() {
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

    /// Spills a version to the journal, since all members leave.
    pub(in crate::core) fn preserve(&mut self, source: Source, bytes: u64) {
        let Source { version, mark, .. } = source;
        let is_here = source.members.contains(&Member::HERE);
        if !self.journal.preserve(version, bytes, is_here) {
            return;
        }
        if is_here {
            self.actions.push(Action::Preserve { version, mark });
        } else {
            self.copy(source, Member::HERE);
        }
    }

    pub(in crate::core) fn is_preserving(&self) -> bool {
        self.journal.is_preserving() && !self.members.anybody_stays()
    }

    /// Records the history if no other member remembers it, and it has grown.
    fn record_history(&mut self) {
        if self.journal.is_on() && !self.members.anybody_stays() {
            let pieces = self.journal.preserve_history();
            self.actions.extend(pieces.into_iter().map(|piece| Action::Record(Fact::History(piece))));
        }
    }

    /// Lets leaving members go that have nothing that others need, and no outcomes that are `recording`.
    pub(in crate::core) fn let_go(&mut self, recording: &BTreeSet<Member>) {
        // Not only at their exit, which may have to wait for the end of a call.
        self.record_history();
        let gone = self.members.let_go(self.is_all_copied(), recording, !self.journal.is_on());
        self.actions.extend(gone.into_iter().map(Action::LetGo));
    }

    /// Returns whether all data of leaving members is with others, or in the journal if no other member exists.
    pub(in crate::core) fn is_all_copied(&self) -> bool {
        self.copying.is_empty() && !self.is_preserving()
    }

    /// Handles a new member. Data that is kept on the node of the program, for lack of another member, is
    /// copied to it.
    pub(in crate::core) fn copy_kept_to(&mut self, member: Member) {
        if member == Member::HERE {
            return;
        }
        for id in self.kept.with(Member::HERE) {
            let Some(Kept { mark, bytes, .. }) = self.kept.get(id) else { continue };
            if !self.is_there_or_made_again(id) && !self.copying.contains_key(&id) {
                self.members.on_given(member, bytes);
                self.copy(Source { version: id, mark, members: vec![Member::HERE] }, member);
            }
        }
    }

    pub(in crate::core) fn copy_to_all(&mut self, id: VersionId) {
        if self.has_losses && self.is_for_all(id.call) {
            for member in self.members.all_staying() {
                self.copy_for_all(id, member);
            }
        }
    }

    /// Copies all data for all members to one that has joined.
    pub(in crate::core) fn copy_everything_for_all_to(&mut self, member: Member) {
        let calls = self.calls.iter().filter(|(_, call)| call.options.everywhere);
        let written: Vec<_> = calls.flat_map(|(id, call)| call.written(id)).collect();
        for version in written {
            self.copy_for_all(version, member);
        }
    }

    fn copy_for_all(&mut self, id: VersionId, to: Member) {
        if self.versions.get(&id).is_some_and(Version::is_needed)
            && let Some(source) = self.source_for(id, to)
        {
            self.fetch(source, to);
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

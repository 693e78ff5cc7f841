//! Data that is copied to all members as soon as it is written: what many calls read that are short, so that each member
//! would wait for it first.
//!
//! Copies are made by the way: one that fails, or comes too late, is made again when a call needs it, as any other. Data
//! of this kind is never changed in place, since a copy may be under way to where that would happen.

use super::{
    graph::{Action, Graph},
    members::Member,
    version::{Source, State},
};
use crate::ids::{CallId, VersionId};

impl Graph {
    /// Has a version copied to all members that was written now, if its call says so.
    pub(super) fn copy_to_all(&mut self, id: VersionId) {
        if self.has_losses && self.is_for_all(id.call) {
            for member in self.members.all_staying() {
                self.copy_for_all(id, member);
            }
        }
    }

    /// Has all that is for all members copied to one that has joined.
    pub(super) fn copy_everything_for_all_to(&mut self, member: Member) {
        let calls = self.calls.iter().filter(|(_, call)| call.options.everywhere);
        let written: Vec<_> = calls.flat_map(|(id, call)| call.written(id)).collect();
        for version in written {
            self.copy_for_all(version, member);
        }
    }

    fn copy_for_all(&mut self, id: VersionId, to: Member) {
        let Some(version) = self.versions.get(&id).filter(|version| version.is_needed()) else { return };
        let State::Present(copies) = &version.state else { return };
        if copies.members.contains(&to) {
            return;
        }
        let source = Source { version: id, mark: version.mark, members: copies.members.clone() };
        self.actions.push(match to {
            Member::HERE => Action::Bring(source),
            to => Action::Copy(to, source),
        });
    }

    /// Returns whether what a call writes is for all members.
    pub(super) fn is_for_all(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.options.everywhere)
    }
}

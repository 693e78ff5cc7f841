//! Data that is copied to all members as soon as it is written: input of many short calls, for which each
//! member would have to wait first.
//!
//! Copies are best effort: one that fails, or comes too late, is made again when a call needs it, like any
//! other. Data of this kind is never updated in place, since a copy may be on its way to the updating member.

use super::{
    graph::{Action, Graph},
    members::Member,
    version::{Source, State},
};
use crate::ids::{CallId, VersionId};

impl Graph {
    /// Copies a newly written version to all members, if its call requests it.
    pub(super) fn copy_to_all(&mut self, id: VersionId) {
        if self.has_losses && self.is_for_all(id.call) {
            for member in self.members.all_staying() {
                self.copy_for_all(id, member);
            }
        }
    }

    /// Copies all data for all members to one that has joined.
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

    /// Returns whether the output of a call is for all members.
    pub(super) fn is_for_all(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.options.everywhere)
    }
}

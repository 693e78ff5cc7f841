//! The neighbourhood of a call: the members that have its inputs, and the calls that read its output.

use super::{
    super::{
        call::CallState,
        demand::Class,
        members::Member,
        ready::Nearness,
        version::{State, Version},
    },
    Data,
};
use crate::ids::{Argument, CallId, VersionId};

/// The maximum depth of the search for calls where the results of a call meet others. Four levels merge sixteen
/// results to one.
const MEETS_MAX: usize = 4;

impl Data {
    pub(in crate::core) fn nearness(&self, id: CallId, arguments: &[Argument]) -> Nearness {
        if !self.members.are_several() {
            return Nearness::default();
        }
        Nearness { home: self.home(arguments), meets: self.meeting_calls(id) }
    }

    fn home(&self, arguments: &[Argument]) -> Option<Member> {
        let (_, with) = self.whereabouts(arguments);
        // Of equal ones the first.
        with.into_iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(member, _)| member)
    }

    /// Returns the calls where results of a call meet those of others that are not available.
    fn meeting_calls(&self, id: CallId) -> Vec<CallId> {
        let mut meets = Vec::new();
        let mut at = id;
        for _ in 0..MEETS_MAX {
            let written = self.calls[&at].written(at);
            let mut readers = written.filter_map(|version| self.versions.get(&version)?.readers.first());
            let Some(reader) = readers.next() else { break };
            at = *reader;
            if matches!(self.calls[&at].state, CallState::Inputs(missing) if missing > 1) {
                meets.push(at);
            }
        }
        meets
    }

    /// Returns the total size of the inputs of a call, and the size that each member has. Inputs with as many
    /// readers as there are members are ignored: they will be everywhere.
    pub(in crate::core) fn whereabouts(&self, arguments: &[Argument]) -> (u64, Vec<(Member, u64)>) {
        let (mut total, mut with) = (0, Vec::<(Member, u64)>::new());
        for version in arguments.iter().flat_map(Argument::versions) {
            let Version { state: State::Present(copies), readers, .. } = &self.versions[version] else {
                continue;
            };
            if readers.len() >= self.members.len() {
                continue;
            }
            // So that empty ones count as well.
            let bytes = copies.bytes + 1;
            total += bytes;
            for member in &copies.members {
                match with.iter_mut().find(|(other, _)| other == member) {
                    Some((_, of_member)) => *of_member += bytes,
                    None => with.push((*member, bytes)),
                }
            }
        }
        (total, with)
    }

    /// Chooses the member for a call with all inputs: this one, which has the least work, or another one.
    pub(in crate::core) fn choose(&self, class: &Class, arguments: &[Argument], least: Member) -> Member {
        let (total, with) = self.whereabouts(arguments);
        self.members.choose(class, total, &with, least)
    }

    pub(in crate::core) fn are_together(&self, one: VersionId, other: VersionId) -> bool {
        let State::Present(copies) = &self.versions[&one].state else { return false };
        copies.members.iter().any(|member| self.versions[&other].is_with(*member))
    }
}

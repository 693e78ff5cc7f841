//! What is near to a call: the members that have what it reads, and the calls that read what it writes.

use super::{
    call::CallState,
    graph::Graph,
    members::Member,
    ready::Nearness,
    version::{State, Version},
};
use crate::ids::{Argument, CallId};

/// The number of calls behind one another that are looked at for what meets the results of a call. Four are the calls
/// that merge sixteen results to one.
const MEETS_MAX: usize = 4;

impl Graph {
    /// Returns what is near to a call whose inputs are there.
    pub(super) fn nearness(&self, id: CallId, arguments: &[Argument]) -> Nearness {
        if !self.members.are_several() {
            return Nearness::default();
        }
        Nearness { home: self.home(arguments), meets: self.meets(id) }
    }

    /// Returns the member that has most of what a call reads.
    fn home(&self, arguments: &[Argument]) -> Option<Member> {
        let (_, with) = self.whereabouts(arguments);
        // Of equal ones the first.
        with.into_iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(member, _)| member)
    }

    /// Returns the calls where results of a call meet those of others that are not there.
    fn meets(&self, id: CallId) -> Vec<CallId> {
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

    /// Returns the size of what a call reads, and of what of that each member has. What is read by as many calls as
    /// there are members does not count: it will be everywhere.
    pub(super) fn whereabouts(&self, arguments: &[Argument]) -> (u64, Vec<(Member, u64)>) {
        let (mut total, mut with) = (0, Vec::<(Member, u64)>::new());
        for version in arguments.iter().flat_map(Argument::versions) {
            let Version { state: State::Present(copies), readers, .. } = &self.versions[version] else {
                continue;
            };
            if readers.len() >= self.members.len() {
                continue;
            }
            // So that the empty ones count, too.
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
}

//! The known calls, the versions that they read and write, and the members that have copies of them.

mod copies;
mod lineage;
mod nearness;
pub(in crate::core) mod read_cache;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use self::read_cache::ReadCache;
use super::{
    action::Action,
    call::{Call, CallState, Within},
    calls::Calls,
    demand::Lack,
    journal::Journal,
    mark::Mark,
    members::{Claim, Member, Members},
    version::{Source, Version},
};
use crate::{
    failure::{Failure, Reason},
    ids::{CallId, VersionId},
};

/// The known calls and versions, with their copies on members.
#[derive(Debug, Default)]
pub(in crate::core) struct Data {
    /// Whether members may be lost, so that the calls that can recompute versions are kept.
    pub(in crate::core) has_losses: bool,
    pub(in crate::core) calls: Calls,
    /// The number of unfinished calls.
    pub(in crate::core) unfinished: usize,
    pub(in crate::core) versions: FxHashMap<VersionId, Version>,
    pub(in crate::core) members: Members,
    pub(in crate::core) journal: Journal,
    /// The versions that are being copied to a member because others leave, or to be kept.
    copying: BTreeMap<VersionId, Member>,
    pub(in crate::core) kept: ReadCache,
    pub(in crate::core) actions: Vec<Action>,
}

impl Data {
    pub(in crate::core) fn new(has_losses: bool) -> Self {
        Self { has_losses, ..Self::default() }
    }

    pub(in crate::core) fn version_mut(&mut self, version: VersionId) -> &mut Version {
        self.versions.get_mut(&version).expect("versions in use are known")
    }

    /// Returns the source of a version for a member, if it is available, and not there.
    pub(in crate::core) fn source_for(&self, id: VersionId, to: Member) -> Option<Source> {
        let version = &self.versions[&id];
        if version.is_with(to) { None } else { version.source(id) }
    }

    pub(in crate::core) fn versions_on(&self, member: Member) -> Vec<VersionId> {
        let held = self.versions.iter().filter(|(_, version)| version.is_with(member)).map(|(id, _)| *id);
        let mut held: Vec<_> = held.collect();
        // The order of a hash table varies.
        held.sort_unstable();
        held
    }

    pub(in crate::core) fn within(&self, id: CallId) -> Option<Within> {
        self.calls.get(&id)?.within
    }

    pub(in crate::core) fn claim_of(&self, id: CallId) -> Claim {
        let call = &self.calls[&id];
        Claim::of(call.demand(), call.task())
    }

    pub(in crate::core) fn occupy(&mut self, id: CallId, member: Member) {
        let is_spread = self.calls[&id].options.spread;
        self.members.on_assigned(member, self.claim_of(id), is_spread);
    }

    pub(in crate::core) fn free(&mut self, id: CallId, member: Member) {
        self.members.ended(member, self.claim_of(id));
    }

    pub(in crate::core) fn runs_on(&self, id: CallId, member: Member) -> bool {
        self.calls.get(&id).is_some_and(|call| call.state == CallState::Runs(member))
    }

    pub(in crate::core) fn is_unfinished(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.state != CallState::Done)
    }

    /// Returns whether a call never runs again once it has completed.
    pub(in crate::core) fn is_durable(&self, call: CallId) -> bool {
        self.journal.is_on() && self.calls.get(&call).is_some_and(|call| call.options.is_durable())
    }

    pub(in crate::core) fn is_for_all(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.options.everywhere)
    }

    /// Returns whether a call waits and has never completed.
    pub(in crate::core) fn can_be_cancelled(&self, id: CallId) -> bool {
        let waits = |call: &&Call| matches!(call.state, CallState::Inputs(_) | CallState::Worker);
        self.calls.get(&id).filter(waits).is_some_and(|call| self.is_unseen(id, call))
    }

    /// Returns the member that runs a call, if the call has never completed.
    pub(in crate::core) fn runs_first(&self, id: CallId) -> Option<Member> {
        let call = self.calls.get(&id).filter(|call| self.is_unseen(id, call))?;
        if let CallState::Runs(member) = call.state { Some(member) } else { None }
    }

    /// Returns whether others cannot have seen the output of a call, in this run or an earlier one.
    fn is_unseen(&self, id: CallId, call: &Call) -> bool {
        let is_present = |version| self.versions.get(&version).is_some_and(Version::is_present);
        !self.journal.history_has(id, call.within) && !call.written(id).any(is_present)
    }

    /// Returns whether a call of this number, or all its output, exists.
    pub(in crate::core) fn is_made(&self, id: CallId, writes: u32) -> bool {
        let has = |slot| self.versions.contains_key(&VersionId { call: id, slot });
        self.calls.contains_key(&id) || (writes > 0 && (0..writes).all(has))
    }

    pub(in crate::core) fn mark_of(&self, id: CallId) -> Option<Mark> {
        let call = self.calls.get(&id).map(|call| call.mark);
        call.or_else(|| self.versions.get(&VersionId { call: id, slot: 0 }).map(|version| version.mark))
    }

    /// Returns the length of the longest chain of calls that ends with this one.
    pub(in crate::core) fn depth_of(&self, id: CallId) -> u64 {
        let reads = self.calls[&id].reads().map(|read| self.versions[&read].depth);
        reads.max().unwrap_or(0) + 1
    }

    pub(in crate::core) fn failure_of(&self, id: CallId, reason: impl Into<Reason>) -> Failure {
        let task = self.calls.get(&id).map_or("", |call| call.work.name());
        self.located(id, Failure::new(task, id, reason))
    }

    /// Returns the failure of a call, with the path to the call if a task has made it.
    pub(in crate::core) fn located(&self, id: CallId, failure: Failure) -> Failure {
        let (mut path, mut above) = (Vec::new(), id);
        while let Some(within) = self.within(above) {
            path.push(within.position);
            above = within.parent;
        }
        if path.is_empty() {
            return failure;
        }
        path.reverse();
        failure.at(above, path)
    }

    pub(in crate::core) fn add_end(&mut self, id: CallId) {
        self.add_end_within(id, self.within(id).map(|within| within.root));
    }

    /// Adds a completed call to the news for the other nodes: one within `root`, or one of the program.
    pub(in crate::core) fn add_end_within(&mut self, id: CallId, root: Option<CallId>) {
        if self.has_losses {
            self.journal.add_end(id, root);
        }
    }

    pub(in crate::core) fn add_failure(&mut self, id: CallId, reason: Reason) {
        if self.has_losses {
            self.journal.add_failure(id, reason);
        }
    }

    pub(in crate::core) fn lacks(&self, id: CallId) -> Option<Lack> {
        let call = self.calls.get(&id).filter(|call| call.state == CallState::Worker)?;
        Lack::of(call.demand(), self.members.capacities())
    }
}

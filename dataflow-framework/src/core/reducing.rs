//! Reductions in any order: the parts that a call merges are chosen when they are available.
//!
//! The program makes the calls of a reduction as if they merged its parts in a tree. When any two parts that
//! the calls wait for are available, the first undecided call *exchanges* its own parts for them:
//!
//! ```text
//!   6 ← 0, 1     7 ← 2, 3     8 ← 6, 7      of the parts 0 to 3, 1 and 2 are there first
//!   6 ← 1, 2     7 ← 0, 3     8 ← 6, 7      6 merges them; next come 3 and the output of 6
//!   6 ← 1, 2     7 ← 3, 6     8 ← 0, 7      7 merges these
//! ```
//!
//! So there is a complete tree at each time, with the same calls: the graph treats undecided calls like all
//! others, including their requirements, failures and losses. Available parts were written by decided calls, or
//! outside of the reduction; so no call waits for a later one, and the last one writes the result.
//!
//! The output of a call depends on the decisions. So if members may be lost, a decision is recorded before the
//! call starts ([`Fact::Merged`]): a repeated call merges the same parts, and a restarted program repeats the
//! decisions after it has made all calls of the reduction. Until then none of them starts.

use std::sync::Arc;

use super::{
    call::{CallState, Merge},
    fact::Fact,
    graph::{Action, Graph},
    state::reductions::{Held, Undecided},
    version::State,
};
use crate::ids::{Argument, CallId, VersionId};

/// The number of parts to search for one on the same member as the first.
const NEAR_MAX: usize = 32;

impl Graph {
    pub(super) fn join_reduction(&mut self, id: CallId, merge: Merge, arguments: &[Argument]) {
        self.reductions.join(id, merge, arguments);
    }

    /// Starts the reductions whose calls the program has made by now.
    pub(crate) fn start_reductions(&mut self) {
        let new = self.reductions.by_first.iter().filter(|(_, reduction)| !reduction.is_complete);
        for first in new.map(|(first, _)| *first).collect::<Vec<_>>() {
            self.start_reduction(first);
        }
    }

    fn start_reduction(&mut self, first: CallId) {
        let reduction = self.reductions.by_first.get_mut(&first).expect("it was found");
        reduction.is_complete = true;
        let calls: Vec<_> = reduction.undecided.keys().copied().collect();
        // In the recorded order, which is that of the calls.
        for id in &calls {
            if let Some(parts) = self.reductions.decided.get(id).copied() {
                self.decide_merge(first, *id, parts);
                self.reductions.held.remove(id);
            }
        }
        for id in calls {
            let state = self.calls.get(&id).map(|call| call.state);
            if !matches!(state, Some(CallState::Inputs(_))) {
                self.reductions.remove(id);
                continue;
            }
            let parts = self.reductions.by_first.get(&first).and_then(|all| all.undecided.get(&id));
            for part in parts.map(|undecided| undecided.parts).into_iter().flatten() {
                if self.versions[&part.version].is_present() {
                    self.reductions.on_available(part.version, &[id]);
                }
            }
            self.requeue(id);
        }
    }

    /// Decides which available parts calls merge.
    pub(super) fn decide_merges(&mut self) {
        while let Some(first) = self.reductions.stirred.pop_first() {
            while let Some((id, parts)) = self.next_merge(first) {
                self.decide_merge(first, id, parts);
                if self.durable.is_on {
                    self.reductions.held.insert(id, Held::Unrecorded);
                    self.actions.push(Action::Record(Fact::Merged { call: id, parts }));
                } else {
                    self.release_merge(id);
                }
            }
        }
    }

    /// Handles the record of the parts that a call merges.
    pub(super) fn on_merge_recorded(&mut self, id: CallId, parts: [u64; 2]) {
        self.reductions.decided.insert(id, parts);
        self.release_merge(id);
    }

    /// Returns whether calls wait for the record of their parts, or leaving members for that of their data.
    pub(crate) fn waits_for_record(&self) -> bool {
        self.reductions.are_recording() || self.chains.are_recording() || self.is_preserving()
    }

    fn release_merge(&mut self, id: CallId) {
        self.reductions.held.remove(&id);
        if self.calls.get(&id).is_some_and(|call| call.state == CallState::Inputs(0)) {
            self.push_ready(id);
        }
    }

    fn is_undecided(&self, id: CallId) -> bool {
        let waits = |call: &super::call::Call| matches!(call.state, CallState::Inputs(_));
        matches!(self.reductions.held.get(&id), Some(Held::Undecided(_)))
            && self.calls.get(&id).is_some_and(waits)
    }

    /// Returns the first undecided call of a reduction, and two available parts: the first one, and preferably
    /// one on the same member.
    fn next_merge(&self, first: CallId) -> Option<(CallId, [u64; 2])> {
        let reduction = self.reductions.by_first.get(&first).filter(|reduction| reduction.is_complete)?;
        let id = reduction.undecided.keys().copied().find(|id| self.is_undecided(*id))?;
        let is_there = |rank: &u64| {
            let (holder, at) = *reduction.places.get(rank)?;
            let part = reduction.undecided.get(&holder).filter(|_| self.is_undecided(holder))?.parts[at];
            self.versions.get(&part.version).filter(|version| version.is_present()).map(|_| part)
        };
        let mut parts = reduction.available.iter().filter_map(is_there);
        let (one, next) = (parts.next()?, parts.next()?);
        let near = [next].into_iter().chain(parts).take(NEAR_MAX);
        let other = near.into_iter().find(|other| self.are_together(one.version, other.version));
        Some((id, [one.rank, other.unwrap_or(next).rank]))
    }

    /// Returns whether a member has both versions.
    fn are_together(&self, one: VersionId, other: VersionId) -> bool {
        let State::Present(copies) = &self.versions[&one].state else { return false };
        copies.members.iter().any(|member| self.versions[&other].is_with(*member))
    }

    /// Lets a call merge these parts, and gives its own parts to the calls that would have merged them.
    fn decide_merge(&mut self, first: CallId, id: CallId, parts: [u64; 2]) {
        for (at, rank) in parts.into_iter().enumerate() {
            self.exchange_part(first, id, at, rank);
        }
        let Some(reduction) = self.reductions.by_first.get_mut(&first) else { return };
        let Some(Undecided { parts, .. }) = reduction.remove(id) else { return };
        let [one, other] = parts.map(|part| part.rank);
        reduction.set_rank(VersionId { call: id, slot: 0 }, one.min(other));
        if reduction.undecided.is_empty() {
            self.reductions.by_first.remove(&first);
        }
    }

    /// Exchanges one part of a call with the part of another call that has this rank.
    fn exchange_part(&mut self, first: CallId, id: CallId, at: usize, rank: u64) {
        let Some(reduction) = self.reductions.by_first.get_mut(&first) else { return };
        let Some(own) = reduction.undecided.get(&id).copied() else { return };
        let Some((holder, there)) = reduction.places.get(&rank).copied() else { return };
        if (holder, there) == (id, at) {
            return;
        }
        let (taken, given) = (reduction.undecided[&holder].parts[there], own.parts[at]);
        reduction.put(holder, there, given);
        reduction.put(id, at, taken);
        let places = [own.merge, reduction.undecided[&holder].merge];
        let [own, others] = places.map(|merge| [merge.into, merge.from]);
        self.replace_input(id, own[at], taken.version);
        self.replace_input(holder, others[there], given.version);
        for version in [taken.version, given.version] {
            self.forget_unless_needed(version);
        }
    }

    /// Replaces one input of a call that has not started, or would run again.
    fn replace_input(&mut self, id: CallId, at: usize, version: VersionId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let mut arguments = call.arguments.to_vec();
        // A call that never runs again no longer knows its inputs.
        let Some(Argument::Read(place) | Argument::Update(place)) = arguments.get_mut(at) else { return };
        let before = std::mem::replace(place, version);
        call.arguments = Arc::from(arguments);
        let is_reader = call.state != CallState::Done;
        let known = self.version_mut(before);
        known.dependants -= 1;
        if is_reader && let Some(position) = known.readers.iter().position(|reader| *reader == id) {
            known.readers.remove(position);
        }
        let known = self.version_mut(version);
        known.dependants += 1;
        if is_reader {
            known.readers.push(id);
        }
        self.count_missing(id);
    }

    /// Recounts the missing inputs of a call that must not start yet, when one of them becomes available.
    /// Others may have been lost without notice.
    pub(super) fn recount_blocked(&mut self, id: CallId) {
        let call = self.calls.get(&id).filter(|call| matches!(call.state, CallState::Inputs(_)));
        let is_gone = |input: VersionId| matches!(self.versions[&input].state, State::Gone);
        if call.is_some_and(|call| call.reads().any(is_gone)) {
            self.requeue(id);
        } else {
            self.count_missing(id);
        }
    }

    pub(super) fn count_missing(&mut self, id: CallId) {
        let call = &self.calls[&id];
        if matches!(call.state, CallState::Inputs(_)) {
            let missing = call.reads().filter(|input| !self.versions[input].is_present()).count();
            self.calls.get_mut(&id).expect("it is known").state = CallState::Inputs(missing);
        }
    }
}

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

use std::collections::{BTreeMap, BTreeSet};

use super::{
    call::{Call, CallState, Merge},
    data::Data,
    free_order::FreeOrder,
    journal::fact::Fact,
    queues::Queues,
};
use crate::ids::{Argument, CallId, VersionId};

/// The number of parts to search for one on the same member as the first.
const NEAR_MAX: usize = 32;

/// The reductions with undecided calls, and the decisions about all calls.
#[derive(Debug, Default)]
pub(super) struct Reductions {
    by_first: BTreeMap<CallId, Reduction>,
    pub(super) order: FreeOrder<[u64; 2]>,
}

#[derive(Debug, Default)]
struct Reduction {
    /// Whether its calls may start: the program has made all.
    is_complete: bool,
    /// The undecided calls, and their default parts.
    undecided: BTreeMap<CallId, Undecided>,
    /// The undecided call that would merge a part, by the rank of the part, and the position there.
    places: BTreeMap<u64, (CallId, usize)>,
    /// The ranks of the output of its calls, as parts of others.
    written: BTreeMap<VersionId, u64>,
    /// The ranks of the parts that have become available. They may be lost since.
    available: BTreeSet<u64>,
    /// The rank of the next part.
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Undecided {
    merge: Merge,
    parts: [Part; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Its position in the list of all parts, which is recorded, since the same data may occur twice. A merged
    /// part has that of its first part.
    rank: u64,
    version: VersionId,
}

impl Reductions {
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.order.decisions().map(|(call, parts)| Fact::Merged { call, parts })
    }

    pub(super) fn join(&mut self, call: CallId, merge: Merge, arguments: &[Argument]) {
        let reduction = self.by_first.entry(merge.reduction).or_default();
        // The program may have waited within the reduction, which starts the calls made so far.
        reduction.is_complete = false;
        let versions = [merge.into, merge.from].map(|at| arguments[at].versions()[0]);
        let rank = reduction.next;
        reduction.next += 2;
        let parts = [0, 1].map(|at| Part { rank: rank + at as u64, version: versions[at] });
        reduction.places.extend([0, 1].map(|at| (parts[at].rank, (call, at))));
        reduction.written.extend(parts.map(|part| (part.version, part.rank)));
        reduction.undecided.insert(call, Undecided { merge, parts });
        self.order.join(call, merge.reduction);
    }

    /// Handles a version that became available for these calls.
    pub(super) fn on_available(&mut self, version: VersionId, readers: &[CallId]) {
        for reader in readers {
            let Some(first) = self.order.of(*reader) else { continue };
            let Some(reduction) = self.by_first.get_mut(&first) else { continue };
            let Some(undecided) = reduction.undecided.get(reader) else { continue };
            let parts = undecided.parts.iter().filter(|part| part.version == version);
            reduction.available.extend(parts.map(|part| part.rank));
            self.order.stir(first);
        }
    }

    pub(super) fn remove(&mut self, call: CallId) {
        let Some(first) = self.order.of(call) else { return self.order.leave(call) };
        // A decision about a call that the program is about to complete counts even if the call has failed.
        if self.by_first.get(&first).is_some_and(|reduction| reduction.is_complete) {
            self.leave(call, first);
        }
    }

    pub(super) fn leave(&mut self, call: CallId, first: CallId) {
        self.order.leave(call);
        let Some(reduction) = self.by_first.get_mut(&first) else { return };
        reduction.remove(call);
        self.order.stir(first);
        if reduction.undecided.is_empty() {
            self.by_first.remove(&first);
        }
    }

    /// Returns whether the state is empty except for recorded decisions.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.order.holds_none()
    }

    /// Returns the reductions whose calls may not start yet.
    pub(super) fn incomplete(&self) -> Vec<CallId> {
        let new = self.by_first.iter().filter(|(_, reduction)| !reduction.is_complete);
        new.map(|(first, _)| *first).collect()
    }

    /// Lets the calls of a reduction start, and repeats the recorded decisions. Returns the calls that were undecided.
    pub(super) fn start(&mut self, data: &mut Data, first: CallId) -> Vec<CallId> {
        let reduction = self.by_first.get_mut(&first).expect("it was found");
        reduction.is_complete = true;
        let calls: Vec<_> = reduction.undecided.keys().copied().collect();
        // In the recorded order, which is that of the calls.
        for id in &calls {
            if let Some(parts) = self.order.decision(*id) {
                self.decide_merge(data, first, *id, parts);
                self.order.leave(*id);
            }
        }
        calls
    }

    /// Notes the parts of a started call that are available. Returns whether the call waits for its inputs.
    pub(super) fn start_call(&mut self, data: &Data, first: CallId, id: CallId) -> bool {
        let state = data.calls.get(&id).map(|call| call.state);
        if !matches!(state, Some(CallState::Inputs(_))) {
            self.remove(id);
            return false;
        }
        let undecided = self.by_first.get(&first).and_then(|all| all.undecided.get(&id)).copied();
        for part in undecided.into_iter().flat_map(|undecided| undecided.parts) {
            if data.versions[&part.version].is_present() {
                self.on_available(part.version, &[id]);
            }
        }
        true
    }

    pub(super) fn decide_merges(&mut self, data: &mut Data, queues: &mut Queues) {
        while let Some(first) = self.order.pop_stirred() {
            while let Some((id, parts)) = self.next_merge(data, first) {
                self.decide_merge(data, first, id, parts);
                self.order.record(data, queues, id, Fact::Merged { call: id, parts });
            }
        }
    }

    fn is_undecided(&self, data: &Data, id: CallId) -> bool {
        let waits = |call: &Call| matches!(call.state, CallState::Inputs(_));
        self.order.of(id).is_some() && data.calls.get(&id).is_some_and(waits)
    }

    /// Returns the first undecided call of a reduction, and two available parts: the first one, and preferably
    /// one on the same member.
    fn next_merge(&self, data: &Data, first: CallId) -> Option<(CallId, [u64; 2])> {
        let reduction = self.by_first.get(&first).filter(|reduction| reduction.is_complete)?;
        let id = reduction.undecided.keys().copied().find(|id| self.is_undecided(data, *id))?;
        let is_there = |rank: &u64| {
            let (holder, at) = *reduction.places.get(rank)?;
            let part =
                reduction.undecided.get(&holder).filter(|_| self.is_undecided(data, holder))?.parts[at];
            data.versions.get(&part.version).filter(|version| version.is_present()).map(|_| part)
        };
        let mut parts = reduction.available.iter().filter_map(is_there);
        let (one, next) = (parts.next()?, parts.next()?);
        let near = [next].into_iter().chain(parts).take(NEAR_MAX);
        let other = near.into_iter().find(|other| data.are_together(one.version, other.version));
        Some((id, [one.rank, other.unwrap_or(next).rank]))
    }

    /// Lets a call merge these parts, and gives its own parts to the calls that would have merged them.
    pub(super) fn decide_merge(&mut self, data: &mut Data, first: CallId, id: CallId, parts: [u64; 2]) {
        for (at, rank) in parts.into_iter().enumerate() {
            self.exchange_part(data, first, id, at, rank);
        }
        let Some(reduction) = self.by_first.get_mut(&first) else { return };
        let Some(Undecided { parts, .. }) = reduction.remove(id) else { return };
        let [one, other] = parts.map(|part| part.rank);
        reduction.set_rank(VersionId { call: id, slot: 0 }, one.min(other));
        if reduction.undecided.is_empty() {
            self.by_first.remove(&first);
        }
    }

    /// Exchanges one part of a call with the part of another call that has this rank.
    fn exchange_part(&mut self, data: &mut Data, first: CallId, id: CallId, at: usize, rank: u64) {
        let Some(reduction) = self.by_first.get_mut(&first) else { return };
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
        data.replace_input(id, own[at], taken.version);
        data.replace_input(holder, others[there], given.version);
        for version in [taken.version, given.version] {
            data.forget_unless_needed(version);
        }
    }
}

impl Reduction {
    fn remove(&mut self, call: CallId) -> Option<Undecided> {
        let undecided = self.undecided.remove(&call)?;
        for part in &undecided.parts {
            self.places.remove(&part.rank);
            self.available.remove(&part.rank);
            self.written.remove(&part.version);
        }
        Some(undecided)
    }

    fn put(&mut self, call: CallId, at: usize, part: Part) {
        let Some(undecided) = self.undecided.get_mut(&call) else { return };
        undecided.parts[at] = part;
        self.places.insert(part.rank, (call, at));
    }

    /// Gives the output of a call the rank of its first part.
    fn set_rank(&mut self, result: VersionId, rank: u64) {
        let Some(before) = self.written.remove(&result) else { return };
        let Some((holder, at)) = self.places.remove(&before) else { return };
        let Some(undecided) = self.undecided.get_mut(&holder) else { return };
        undecided.parts[at].rank = rank;
        self.places.insert(rank, (holder, at));
        self.written.insert(result, rank);
        if self.available.remove(&before) {
            self.available.insert(rank);
        }
    }
}

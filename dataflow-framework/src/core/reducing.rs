//! Reductions in any order: which parts a call merges is decided when they are there.
//!
//! The program makes the calls of a reduction as if they were to merge its parts in a tree. When any two of the parts
//! are there that its calls wait for, the first of these calls that is not decided *exchanges* its own for them:
//!
//! ```text
//!   6 ← 0, 1     7 ← 2, 3     8 ← 6, 7      of the parts 0 to 3, 1 and 2 are there first
//!   6 ← 1, 2     7 ← 0, 3     8 ← 6, 7      6 merges them; 3 is there next, and so is what 6 has written
//!   6 ← 1, 2     7 ← 3, 6     8 ← 0, 7      7 merges these
//! ```
//!
//! So there is a complete tree at each time, with the same calls: everything else that the graph knows of calls, what
//! they need and what follows from failures and losses, holds for those that are not decided, too. What is there was
//! written by a call that is decided, or by none of the reduction; so no call comes to wait for one after it, and the
//! last one writes the result.
//!
//! What a call writes depends on what was decided. So where members may be lost, that is recorded before the call
//! begins ([`Fact::Merged`]): a call that is run again merges the same parts, and a program that begins anew is told
//! which, when it has made all calls of the reduction. Until then none of them begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    call::{Argument, CallId, CallState},
    fact::Fact,
    graph::{Action, Graph},
    version::{State, VersionId},
};

/// The number of parts among which one is sought that is where the first is.
const NEAR_MAX: usize = 32;

/// That a call is one of a reduction in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The first number that a call of the reduction may have.
    pub(crate) reduction: CallId,
    /// The positions of the arguments that it merges: one is updated, the other one read.
    pub(crate) into: usize,
    pub(crate) from: usize,
}

/// The reductions whose calls are not all decided, and what was decided of all.
#[derive(Debug, Default)]
pub(super) struct Reductions {
    by_first: BTreeMap<CallId, Reduction>,
    /// The calls that must not begin.
    held: BTreeMap<CallId, Held>,
    /// Those of which something has changed.
    stirred: BTreeSet<CallId>,
    /// What calls merge, as far as that is recorded.
    decided: BTreeMap<CallId, [u64; 2]>,
}

/// Why a call must not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// It is not decided what it merges, in this reduction.
    Undecided(CallId),
    /// It is not recorded.
    Unrecorded,
}

#[derive(Debug, Default)]
struct Reduction {
    /// Whether its calls may begin: the program has made all.
    is_complete: bool,
    /// The calls that are not decided, and what they merge unless they are.
    undecided: BTreeMap<CallId, Undecided>,
    /// Which of them would merge a part, by its rank, and as which of both.
    places: BTreeMap<u64, (CallId, usize)>,
    /// The ranks of what its calls write, as parts of others.
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

/// One of what is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Its place in the list of all, by which it is recorded, since the same data may be there twice. What was merged has
    /// that of the first of both.
    rank: u64,
    version: VersionId,
}

impl Reductions {
    /// Returns whether a call must not begin.
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    /// Returns whether calls wait for that it is recorded what they merge.
    pub(super) fn are_recording(&self) -> bool {
        self.held.values().any(|held| *held == Held::Unrecorded)
    }

    /// Returns what was recorded.
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.decided.iter().map(|(call, parts)| Fact::Merged { call: *call, parts: *parts })
    }

    /// Takes in what was recorded.
    pub(super) fn recalls(&mut self, call: CallId, parts: [u64; 2]) {
        self.decided.insert(call, parts);
    }

    /// Takes in a call of a reduction.
    fn joins(&mut self, call: CallId, merge: Merge, arguments: &[Argument]) {
        let reduction = self.by_first.entry(merge.reduction).or_default();
        // The program may have waited within the reduction, with which those calls began that it had made.
        reduction.is_complete = false;
        let versions = [merge.into, merge.from].map(|at| arguments[at].versions()[0]);
        let rank = reduction.next;
        reduction.next += 2;
        let parts = [0, 1].map(|at| Part { rank: rank + at as u64, version: versions[at] });
        reduction.places.extend([0, 1].map(|at| (parts[at].rank, (call, at))));
        reduction.written.extend(parts.map(|part| (part.version, part.rank)));
        reduction.undecided.insert(call, Undecided { merge, parts });
        self.held.insert(call, Held::Undecided(merge.reduction));
    }

    /// Takes in that a version is there, for these calls.
    pub(super) fn is_there(&mut self, version: VersionId, readers: &[CallId]) {
        if self.held.is_empty() {
            return;
        }
        for reader in readers {
            let Some(Held::Undecided(first)) = self.held.get(reader) else { continue };
            let Some(reduction) = self.by_first.get_mut(first) else { continue };
            let Some(undecided) = reduction.undecided.get(reader) else { continue };
            let parts = undecided.parts.iter().filter(|part| part.version == version);
            reduction.available.extend(parts.map(|part| part.rank));
            self.stirred.insert(*first);
        }
    }

    /// Forgets a call that has ended, or was given up.
    pub(super) fn is_over(&mut self, call: CallId) {
        if self.held.is_empty() {
            return;
        }
        let Some(Held::Undecided(first)) = self.held.get(&call).copied() else {
            self.held.remove(&call);
            return;
        };
        // What was recorded of one that the program is about to complete counts also for those that have failed.
        if self.by_first.get(&first).is_some_and(|reduction| reduction.is_complete) {
            self.leaves(call, first);
        }
    }

    fn leaves(&mut self, call: CallId, first: CallId) {
        self.held.remove(&call);
        let Some(reduction) = self.by_first.get_mut(&first) else { return };
        reduction.remove(call);
        self.stirred.insert(first);
        if reduction.undecided.is_empty() {
            self.by_first.remove(&first);
            self.stirred.remove(&first);
        }
    }

    /// Returns whether nothing is known, besides what was recorded.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.held.is_empty()
    }
}

impl Reduction {
    /// Removes a call that is decided, or over.
    fn remove(&mut self, call: CallId) -> Option<Undecided> {
        let undecided = self.undecided.remove(&call)?;
        for part in &undecided.parts {
            self.places.remove(&part.rank);
            self.available.remove(&part.rank);
            self.written.remove(&part.version);
        }
        Some(undecided)
    }

    /// Has a call merge another part.
    fn puts(&mut self, call: CallId, at: usize, part: Part) {
        let Some(undecided) = self.undecided.get_mut(&call) else { return };
        undecided.parts[at] = part;
        self.places.insert(part.rank, (call, at));
    }

    /// Gives what a call writes the rank of the first part of which it is made.
    fn ranks(&mut self, result: VersionId, rank: u64) {
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

impl Graph {
    /// Takes in that the next call is one of a reduction.
    pub(super) fn joins_reduction(&mut self, id: CallId, merge: Merge, arguments: &[Argument]) {
        self.reductions.joins(id, merge, arguments);
    }

    /// Begins the reductions whose calls the program has made by now.
    pub(crate) fn begins_reductions(&mut self) {
        let new = self.reductions.by_first.iter().filter(|(_, reduction)| !reduction.is_complete);
        for first in new.map(|(first, _)| *first).collect::<Vec<_>>() {
            self.begins_reduction(first);
        }
    }

    fn begins_reduction(&mut self, first: CallId) {
        let reduction = self.reductions.by_first.get_mut(&first).expect("it was found");
        reduction.is_complete = true;
        let calls: Vec<_> = reduction.undecided.keys().copied().collect();
        // As it was decided: in the order of the calls.
        for id in &calls {
            if let Some(parts) = self.reductions.decided.get(id).copied() {
                self.decides(first, *id, parts);
                self.reductions.held.remove(id);
            }
        }
        for id in calls {
            let state = self.calls.get(&id).map(|call| call.state);
            if !matches!(state, Some(CallState::Inputs(_))) {
                self.reductions.is_over(id);
                continue;
            }
            let parts = self.reductions.by_first.get(&first).and_then(|all| all.undecided.get(&id));
            for part in parts.map(|undecided| undecided.parts).into_iter().flatten() {
                if self.versions[&part.version].is_present() {
                    self.reductions.is_there(part.version, &[id]);
                }
            }
            self.begins_again(id);
        }
    }

    /// Decides what calls merge of which two parts are there.
    pub(super) fn decides_merges(&mut self) {
        while let Some(first) = self.reductions.stirred.pop_first() {
            while let Some((id, parts)) = self.next_merge(first) {
                self.decides(first, id, parts);
                if self.durable.is_on {
                    self.reductions.held.insert(id, Held::Unrecorded);
                    self.actions.push(Action::Record(Fact::Merged { call: id, parts }));
                } else {
                    self.may_begin(id);
                }
            }
        }
    }

    /// Takes in that it is recorded what a call merges.
    pub(super) fn merge_is_recorded(&mut self, id: CallId, parts: [u64; 2]) {
        self.reductions.decided.insert(id, parts);
        self.may_begin(id);
    }

    /// Returns whether calls begin when what they merge is recorded, or members go when what they had is.
    pub(crate) fn waits_for_record(&self) -> bool {
        self.reductions.are_recording() || self.chains.are_recording() || self.is_preserving()
    }

    fn may_begin(&mut self, id: CallId) {
        self.reductions.held.remove(&id);
        if self.calls.get(&id).is_some_and(|call| call.state == CallState::Inputs(0)) {
            self.is_ready(id);
        }
    }

    fn is_undecided(&self, id: CallId) -> bool {
        let waits = |call: &super::call::Call| matches!(call.state, CallState::Inputs(_));
        matches!(self.reductions.held.get(&id), Some(Held::Undecided(_)))
            && self.calls.get(&id).is_some_and(waits)
    }

    /// Returns the first call of a reduction that is not decided, and two parts that are there: of those that are where
    /// the first is the next one.
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

    /// Has a call merge these parts, and the calls that would have merged them what it would have.
    fn decides(&mut self, first: CallId, id: CallId, parts: [u64; 2]) {
        for (at, rank) in parts.into_iter().enumerate() {
            self.exchanges(first, id, at, rank);
        }
        let Some(reduction) = self.reductions.by_first.get_mut(&first) else { return };
        let Some(Undecided { parts, .. }) = reduction.remove(id) else { return };
        let [one, other] = parts.map(|part| part.rank);
        reduction.ranks(VersionId { call: id, slot: 0 }, one.min(other));
        if reduction.undecided.is_empty() {
            self.reductions.by_first.remove(&first);
        }
    }

    /// Has a call merge a part in one of its two places, and the call that would have merged that what the first has there.
    fn exchanges(&mut self, first: CallId, id: CallId, at: usize, rank: u64) {
        let Some(reduction) = self.reductions.by_first.get_mut(&first) else { return };
        let Some(own) = reduction.undecided.get(&id).copied() else { return };
        let Some((holder, there)) = reduction.places.get(&rank).copied() else { return };
        if (holder, there) == (id, at) {
            return;
        }
        let (taken, given) = (reduction.undecided[&holder].parts[there], own.parts[at]);
        reduction.puts(holder, there, given);
        reduction.puts(id, at, taken);
        let places = [own.merge, reduction.undecided[&holder].merge];
        let [own, others] = places.map(|merge| [merge.into, merge.from]);
        self.reads_instead(id, own[at], taken.version);
        self.reads_instead(holder, others[there], given.version);
        for version in [taken.version, given.version] {
            self.forget_unless_needed(version);
        }
    }

    /// Has a call that has not begun, or would be run again, read another version as one of its arguments.
    fn reads_instead(&mut self, id: CallId, at: usize, version: VersionId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let mut arguments = call.arguments.to_vec();
        // What is never run again does not know any more what it has read.
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
        self.counts_missing(id);
    }

    /// Counts anew what a call waits for that must not begin yet, when something is there that it reads. Other things may
    /// have been lost, which nobody has noticed so far.
    pub(super) fn waits_as_before(&mut self, id: CallId) {
        let call = self.calls.get(&id).filter(|call| matches!(call.state, CallState::Inputs(_)));
        let is_gone = |input: VersionId| matches!(self.versions[&input].state, State::Gone);
        if call.is_some_and(|call| call.reads().any(is_gone)) {
            self.begins_again(id);
        } else {
            self.counts_missing(id);
        }
    }

    /// Counts anew what a call waits for.
    pub(super) fn counts_missing(&mut self, id: CallId) {
        let call = &self.calls[&id];
        if matches!(call.state, CallState::Inputs(_)) {
            let missing = call.reads().filter(|input| !self.versions[input].is_present()).count();
            self.calls.get_mut(&id).expect("it is known").state = CallState::Inputs(missing);
        }
    }
}

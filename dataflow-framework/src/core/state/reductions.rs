//! The reductions whose calls are not all decided, and the decisions about them. See `reducing.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{call::Merge, fact::Fact},
    ids::{Argument, CallId, VersionId},
};

/// The reductions whose calls are not all decided, and what was decided of all.
#[derive(Debug, Default)]
pub(in crate::core) struct Reductions {
    pub(in crate::core) by_first: BTreeMap<CallId, Reduction>,
    /// The calls that must not begin.
    pub(in crate::core) held: BTreeMap<CallId, Held>,
    /// Those of which something has changed.
    pub(in crate::core) stirred: BTreeSet<CallId>,
    /// What calls merge, as far as that is recorded.
    pub(in crate::core) decided: BTreeMap<CallId, [u64; 2]>,
}

/// Why a call must not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Held {
    /// It is not decided what it merges, in this reduction.
    Undecided(CallId),
    /// It is not recorded.
    Unrecorded,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Reduction {
    /// Whether its calls may begin: the program has made all.
    pub(in crate::core) is_complete: bool,
    /// The calls that are not decided, and what they merge unless they are.
    pub(in crate::core) undecided: BTreeMap<CallId, Undecided>,
    /// Which of them would merge a part, by its rank, and as which of both.
    pub(in crate::core) places: BTreeMap<u64, (CallId, usize)>,
    /// The ranks of what its calls write, as parts of others.
    pub(in crate::core) written: BTreeMap<VersionId, u64>,
    /// The ranks of the parts that have become available. They may be lost since.
    pub(in crate::core) available: BTreeSet<u64>,
    /// The rank of the next part.
    pub(in crate::core) next: u64,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::core) struct Undecided {
    pub(in crate::core) merge: Merge,
    pub(in crate::core) parts: [Part; 2],
}

/// One of what is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Part {
    /// Its place in the list of all, by which it is recorded, since the same data may be there twice. What was merged has
    /// that of the first of both.
    pub(in crate::core) rank: u64,
    pub(in crate::core) version: VersionId,
}

impl Reductions {
    /// Returns whether a call must not begin.
    pub(in crate::core) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    /// Returns whether calls wait for that it is recorded what they merge.
    pub(in crate::core) fn are_recording(&self) -> bool {
        self.held.values().any(|held| *held == Held::Unrecorded)
    }

    /// Returns what was recorded.
    pub(in crate::core) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.decided.iter().map(|(call, parts)| Fact::Merged { call: *call, parts: *parts })
    }

    /// Takes in what was recorded.
    pub(in crate::core) fn recalls(&mut self, call: CallId, parts: [u64; 2]) {
        self.decided.insert(call, parts);
    }

    /// Takes in a call of a reduction.
    pub(in crate::core) fn joins(&mut self, call: CallId, merge: Merge, arguments: &[Argument]) {
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
    pub(in crate::core) fn is_there(&mut self, version: VersionId, readers: &[CallId]) {
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
    pub(in crate::core) fn is_over(&mut self, call: CallId) {
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

    pub(in crate::core) fn leaves(&mut self, call: CallId, first: CallId) {
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
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.held.is_empty()
    }
}

impl Reduction {
    /// Removes a call that is decided, or over.
    pub(in crate::core) fn remove(&mut self, call: CallId) -> Option<Undecided> {
        let undecided = self.undecided.remove(&call)?;
        for part in &undecided.parts {
            self.places.remove(&part.rank);
            self.available.remove(&part.rank);
            self.written.remove(&part.version);
        }
        Some(undecided)
    }

    /// Has a call merge another part.
    pub(in crate::core) fn puts(&mut self, call: CallId, at: usize, part: Part) {
        let Some(undecided) = self.undecided.get_mut(&call) else { return };
        undecided.parts[at] = part;
        self.places.insert(part.rank, (call, at));
    }

    /// Gives what a call writes the rank of the first part of which it is made.
    pub(in crate::core) fn ranks(&mut self, result: VersionId, rank: u64) {
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

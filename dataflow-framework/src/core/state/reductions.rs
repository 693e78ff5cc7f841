//! The reductions with undecided calls, and the decisions about them. See `reducing.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{call::Merge, fact::Fact},
    ids::{Argument, CallId, VersionId},
};

/// The reductions with undecided calls, and the decisions about all calls.
#[derive(Debug, Default)]
pub(in crate::core) struct Reductions {
    pub(in crate::core) by_first: BTreeMap<CallId, Reduction>,
    /// The calls that must not start.
    pub(in crate::core) held: BTreeMap<CallId, Held>,
    /// The reductions with changes.
    pub(in crate::core) stirred: BTreeSet<CallId>,
    /// The recorded decisions.
    pub(in crate::core) decided: BTreeMap<CallId, [u64; 2]>,
}

/// The reason why a call must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Held {
    /// Its parts in this reduction are undecided.
    Undecided(CallId),
    /// Its parts are not recorded.
    Unrecorded,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Reduction {
    /// Whether its calls may start: the program has made all.
    pub(in crate::core) is_complete: bool,
    /// The undecided calls, and their default parts.
    pub(in crate::core) undecided: BTreeMap<CallId, Undecided>,
    /// The undecided call that would merge a part, by the rank of the part, and the position there.
    pub(in crate::core) places: BTreeMap<u64, (CallId, usize)>,
    /// The ranks of the output of its calls, as parts of others.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct Part {
    /// Its position in the list of all parts, which is recorded, since the same data may occur twice. A merged
    /// part has that of its first part.
    pub(in crate::core) rank: u64,
    pub(in crate::core) version: VersionId,
}

impl Reductions {
    /// Returns whether a call must not start.
    pub(in crate::core) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    /// Returns whether calls wait for the record of their parts.
    pub(in crate::core) fn are_recording(&self) -> bool {
        self.held.values().any(|held| *held == Held::Unrecorded)
    }

    /// Returns the recorded decisions.
    pub(in crate::core) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.decided.iter().map(|(call, parts)| Fact::Merged { call: *call, parts: *parts })
    }

    /// Restores a recorded decision.
    pub(in crate::core) fn recall(&mut self, call: CallId, parts: [u64; 2]) {
        self.decided.insert(call, parts);
    }

    pub(in crate::core) fn join(&mut self, call: CallId, merge: Merge, arguments: &[Argument]) {
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
        self.held.insert(call, Held::Undecided(merge.reduction));
    }

    /// Handles a version that became available for these calls.
    pub(in crate::core) fn on_available(&mut self, version: VersionId, readers: &[CallId]) {
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

    /// Removes a call that has ended, or was cancelled.
    pub(in crate::core) fn remove(&mut self, call: CallId) {
        if self.held.is_empty() {
            return;
        }
        let Some(Held::Undecided(first)) = self.held.get(&call).copied() else {
            self.held.remove(&call);
            return;
        };
        // A decision about a call that the program is about to complete counts even if the call has failed.
        if self.by_first.get(&first).is_some_and(|reduction| reduction.is_complete) {
            self.leave(call, first);
        }
    }

    pub(in crate::core) fn leave(&mut self, call: CallId, first: CallId) {
        self.held.remove(&call);
        let Some(reduction) = self.by_first.get_mut(&first) else { return };
        reduction.remove(call);
        self.stirred.insert(first);
        if reduction.undecided.is_empty() {
            self.by_first.remove(&first);
            self.stirred.remove(&first);
        }
    }

    /// Returns whether the state is empty except for recorded decisions.
    #[cfg(test)]
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.held.is_empty()
    }
}

impl Reduction {
    /// Removes a call that is decided or over.
    pub(in crate::core) fn remove(&mut self, call: CallId) -> Option<Undecided> {
        let undecided = self.undecided.remove(&call)?;
        for part in &undecided.parts {
            self.places.remove(&part.rank);
            self.available.remove(&part.rank);
            self.written.remove(&part.version);
        }
        Some(undecided)
    }

    /// Lets a call merge another part.
    pub(in crate::core) fn put(&mut self, call: CallId, at: usize, part: Part) {
        let Some(undecided) = self.undecided.get_mut(&call) else { return };
        undecided.parts[at] = part;
        self.places.insert(part.rank, (call, at));
    }

    /// Gives the output of a call the rank of its first part.
    pub(in crate::core) fn set_rank(&mut self, result: VersionId, rank: u64) {
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

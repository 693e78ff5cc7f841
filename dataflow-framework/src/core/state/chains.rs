//! The chains of calls that update the same data in any order, and the decisions about them. See `commuting.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{call::Commute, fact::Fact},
    ids::{CallId, VersionId},
};

/// The chains whose turns are not all decided, and what was decided of all.
#[derive(Debug, Default)]
pub(in crate::core) struct Chains {
    pub(in crate::core) by_first: BTreeMap<CallId, Chain>,
    /// The calls that must not begin.
    pub(in crate::core) held: BTreeMap<CallId, Held>,
    /// Those of which something has changed.
    pub(in crate::core) stirred: BTreeSet<CallId>,
    /// With which other one turns have exchanged what they do, as far as that is recorded.
    pub(in crate::core) decided: BTreeMap<CallId, CallId>,
    /// The turns with which others are to exchange as in an earlier run, and how many.
    pub(in crate::core) awaited: BTreeMap<CallId, usize>,
}

/// Why a call must not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Held {
    /// It is not decided what it does, in this chain.
    Undecided(CallId),
    /// It is not recorded.
    Unrecorded,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Chain {
    /// The turns that are not decided.
    pub(in crate::core) undecided: BTreeMap<CallId, Turn>,
    /// Those of which everything may be there but what they update.
    pub(in crate::core) ready: BTreeSet<CallId>,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Turn {
    /// The position of the argument that is updated.
    pub(in crate::core) at: usize,
    /// What another turn reads that is to exchange with this one, which will not be run again: there is a handle of each.
    pub(in crate::core) kept: Vec<VersionId>,
}

impl Chains {
    /// Returns whether a call must not begin.
    pub(in crate::core) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    /// Returns whether calls wait for that it is recorded what they do.
    pub(in crate::core) fn are_recording(&self) -> bool {
        self.held.values().any(|held| *held == Held::Unrecorded)
    }

    /// Returns what was recorded.
    pub(in crate::core) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.decided.iter().map(|(call, with)| Fact::Commuted { call: *call, with: *with })
    }

    /// Takes in what was recorded.
    pub(in crate::core) fn recalls(&mut self, call: CallId, with: CallId) {
        if self.decided.insert(call, with).is_none() {
            *self.awaited.entry(with).or_default() += 1;
        }
    }

    /// Notes that a turn has exchanged with another one what it was to.
    pub(in crate::core) fn has_exchanged(&mut self, with: CallId) {
        if let Some(turns) = self.awaited.get_mut(&with) {
            *turns -= 1;
            if *turns == 0 {
                self.awaited.remove(&with);
            }
        }
    }

    /// Returns whether a turn waits for what it reads until it is decided what it does. One that is to exchange as in an
    /// earlier run does not: what it would do before that was done, or will be, by another one.
    pub(in crate::core) fn is_open(&self, call: CallId) -> bool {
        self.chain_of(call).is_some()
            && !self.decided.contains_key(&call)
            && !self.awaited.contains_key(&call)
    }

    /// Takes in that the next call is one of a chain.
    pub(in crate::core) fn joins(&mut self, call: CallId, Commute { chain, at }: Commute) {
        let undecided = &mut self.by_first.entry(chain).or_default().undecided;
        undecided.insert(call, Turn { at, kept: Vec::new() });
        self.held.insert(call, Held::Undecided(chain));
    }

    /// Returns the chain of a call that is not decided.
    pub(in crate::core) fn chain_of(&self, call: CallId) -> Option<CallId> {
        match self.held.get(&call) {
            Some(Held::Undecided(first)) => Some(*first),
            Some(Held::Unrecorded) | None => None,
        }
    }

    pub(in crate::core) fn turn(&mut self, call: CallId) -> Option<&mut Turn> {
        let first = self.chain_of(call)?;
        self.by_first.get_mut(&first)?.undecided.get_mut(&call)
    }

    /// Forgets a call that has ended, or was given up.
    pub(in crate::core) fn is_over(&mut self, call: CallId) {
        match self.chain_of(call) {
            // It stays in its chain as long as others may have to exchange with it.
            Some(first) => _ = self.stirred.insert(first),
            None => _ = self.held.remove(&call),
        }
    }

    /// Removes a turn that is decided, or over, and returns what was kept for it.
    pub(in crate::core) fn leaves(&mut self, first: CallId, call: CallId) -> Vec<VersionId> {
        self.held.remove(&call);
        let Some(chain) = self.by_first.get_mut(&first) else { return Vec::new() };
        chain.ready.remove(&call);
        let turn = chain.undecided.remove(&call).unwrap_or_default();
        if chain.undecided.is_empty() {
            self.by_first.remove(&first);
        }
        turn.kept
    }

    /// Returns whether nothing is known, besides what was recorded.
    #[cfg(test)]
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.held.is_empty()
    }
}

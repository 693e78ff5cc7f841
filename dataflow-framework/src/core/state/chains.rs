//! The chains of calls that update the same data in any order, and the decisions about them. See
//! `commuting.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{call::Commute, fact::Fact},
    ids::{CallId, VersionId},
};

/// The chains with undecided turns, and the decisions about all turns.
#[derive(Debug, Default)]
pub(in crate::core) struct Chains {
    pub(in crate::core) by_first: BTreeMap<CallId, Chain>,
    /// The calls that must not start.
    pub(in crate::core) held: BTreeMap<CallId, Held>,
    /// The chains with changes.
    pub(in crate::core) stirred: BTreeSet<CallId>,
    /// The turns with which others have exchanged their work, as far as that is recorded.
    pub(in crate::core) decided: BTreeMap<CallId, CallId>,
    /// The turns that must exchange their work as in an earlier run, with the number of these exchanges.
    pub(in crate::core) awaited: BTreeMap<CallId, usize>,
}

/// The reason why a call must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Held {
    /// Its work in this chain is undecided.
    Undecided(CallId),
    /// Its work is not recorded.
    Unrecorded,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Chain {
    pub(in crate::core) undecided: BTreeMap<CallId, Turn>,
    /// The turns whose other inputs may all be available.
    pub(in crate::core) ready: BTreeSet<CallId>,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Turn {
    /// The position of the argument that is updated.
    pub(in crate::core) at: usize,
    /// The inputs of another turn that will exchange its work with this one, and never runs again: there is a
    /// handle of each.
    pub(in crate::core) kept: Vec<VersionId>,
}

impl Chains {
    /// Returns whether a call must not start.
    pub(in crate::core) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    /// Returns whether calls wait for the record of their work.
    pub(in crate::core) fn are_recording(&self) -> bool {
        self.held.values().any(|held| *held == Held::Unrecorded)
    }

    /// Returns the recorded decisions.
    pub(in crate::core) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.decided.iter().map(|(call, with)| Fact::Commuted { call: *call, with: *with })
    }

    /// Restores a recorded decision.
    pub(in crate::core) fn recall(&mut self, call: CallId, with: CallId) {
        if self.decided.insert(call, with).is_none() {
            *self.awaited.entry(with).or_default() += 1;
        }
    }

    /// Counts one repeated exchange of a turn.
    pub(in crate::core) fn count_exchange(&mut self, with: CallId) {
        if let Some(turns) = self.awaited.get_mut(&with) {
            *turns -= 1;
            if *turns == 0 {
                self.awaited.remove(&with);
            }
        }
    }

    /// Returns whether a turn waits for its inputs until its work is decided. A turn that must repeat an
    /// exchange does not: its previous work is done by another one.
    pub(in crate::core) fn is_open(&self, call: CallId) -> bool {
        self.chain_of(call).is_some()
            && !self.decided.contains_key(&call)
            && !self.awaited.contains_key(&call)
    }

    /// Adds the next call to a chain.
    pub(in crate::core) fn join(&mut self, call: CallId, Commute { chain, at }: Commute) {
        let undecided = &mut self.by_first.entry(chain).or_default().undecided;
        undecided.insert(call, Turn { at, kept: Vec::new() });
        self.held.insert(call, Held::Undecided(chain));
    }

    /// Returns the chain of an undecided call.
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

    /// Removes a call that has ended, or was cancelled.
    pub(in crate::core) fn remove(&mut self, call: CallId) {
        match self.chain_of(call) {
            // It stays in its chain while others may have to exchange their work with it.
            Some(first) => _ = self.stirred.insert(first),
            None => _ = self.held.remove(&call),
        }
    }

    /// Removes a turn that is decided or over, and returns the versions kept for it.
    pub(in crate::core) fn leave(&mut self, first: CallId, call: CallId) -> Vec<VersionId> {
        self.held.remove(&call);
        let Some(chain) = self.by_first.get_mut(&first) else { return Vec::new() };
        chain.ready.remove(&call);
        let turn = chain.undecided.remove(&call).unwrap_or_default();
        if chain.undecided.is_empty() {
            self.by_first.remove(&first);
        }
        turn.kept
    }

    /// Returns whether the state is empty except for recorded decisions.
    #[cfg(test)]
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.held.is_empty()
    }
}

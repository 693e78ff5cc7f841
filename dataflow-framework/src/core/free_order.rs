//! The common part of reductions in any order and of chains of commuting calls: calls that must not start before their
//! inputs are decided, and, if there is a journal, recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::{action::Action, call::CallState, data::Data, journal::fact::Fact, queues::Queues};
use crate::ids::CallId;

/// The undecided and unrecorded calls of reductions, or of chains. Each reduction or chain has the number of its first call. `D` is
/// a decision about a call.
#[derive(Debug, Default)]
pub(super) struct FreeOrder<D> {
    held: BTreeMap<CallId, Held>,
    /// The reductions or chains with changes.
    stirred: BTreeSet<CallId>,
    /// The recorded decisions.
    decided: BTreeMap<CallId, D>,
}

/// The reason why a call must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Its inputs in this reduction or chain are undecided.
    Undecided(CallId),
    /// Its inputs are not recorded.
    Unrecorded,
}

impl<D: Copy> FreeOrder<D> {
    /// Returns whether a call must not start.
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    #[cfg(test)]
    pub(super) fn holds_none(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns whether calls wait for the record of their inputs.
    pub(super) fn is_recording(&self) -> bool {
        self.held.values().any(|held| *held == Held::Unrecorded)
    }

    pub(super) fn of(&self, call: CallId) -> Option<CallId> {
        match self.held.get(&call) {
            Some(Held::Undecided(first)) => Some(*first),
            Some(Held::Unrecorded) | None => None,
        }
    }

    pub(super) fn join(&mut self, call: CallId, first: CallId) {
        self.held.insert(call, Held::Undecided(first));
    }

    pub(super) fn leave(&mut self, call: CallId) {
        self.held.remove(&call);
    }

    pub(super) fn stir(&mut self, first: CallId) {
        self.stirred.insert(first);
    }

    pub(super) fn pop_stirred(&mut self) -> Option<CallId> {
        self.stirred.pop_first()
    }

    pub(super) fn decision(&self, call: CallId) -> Option<D> {
        self.decided.get(&call).copied()
    }

    pub(super) fn decisions(&self) -> impl Iterator<Item = (CallId, D)> {
        self.decided.iter().map(|(call, decision)| (*call, *decision))
    }

    /// Restores a recorded decision. Returns whether it is new.
    pub(super) fn recall(&mut self, call: CallId, decision: D) -> bool {
        self.decided.insert(call, decision).is_none()
    }

    /// Lets a decided call start, after the decision is recorded if there is a journal.
    pub(super) fn record(&mut self, data: &mut Data, queues: &mut Queues, id: CallId, fact: Fact) {
        if data.journal.is_on() {
            self.held.insert(id, Held::Unrecorded);
            data.actions.push(Action::Record(fact));
        } else {
            self.release(data, queues, id);
        }
    }

    pub(super) fn on_recorded(&mut self, data: &mut Data, queues: &mut Queues, id: CallId, decision: D) {
        self.decided.insert(id, decision);
        self.release(data, queues, id);
    }

    fn release(&mut self, data: &mut Data, queues: &mut Queues, id: CallId) {
        self.held.remove(&id);
        if data.calls.get(&id).is_some_and(|call| call.state == CallState::Inputs(0)) {
            queues.push(data, id);
        }
    }
}

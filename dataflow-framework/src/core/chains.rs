//! Calls that update the same data in any order, one at a time.
//!
//! The program makes them as a chain: each updates the output of the previous one. The calls of a chain are its
//! *turns*. The work of a turn, its task and its other inputs, is decided when it can run: the first undecided
//! turn exchanges its work with the first turn whose other inputs are all available:
//!
//! ```text
//!   4: x += 0    5: x += 1    6: x += 2     0, 1 and 2 are written by calls, of which 2 ends first
//!   4: x += 2    5: x += 1    6: x += 0     then 0 does
//!   4: x += 2    5: x += 0    6: x += 1
//! ```
//!
//! So the versions keep their structure: each is written by one turn, which reads the previous one. Reading a
//! version, or keeping a snapshot of it, ends the chain there: later commuting calls belong to another chain.
//! So a reader sees all earlier updates, and no later ones.
//!
//! As with [reductions](super::reductions), the work of a turn is recorded before it starts, if members may be
//! lost ([`Fact::Commuted`]). A restarted program makes the same exchanges as soon as both calls are made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    call::{Call, CallState, Commute},
    data::Data,
    free_order::FreeOrder,
    journal::fact::Fact,
    queues::Queues,
};
use crate::ids::{Argument, CallId, VersionId};

/// The chains with undecided turns, and the decisions about all turns.
#[derive(Debug, Default)]
pub(super) struct Chains {
    by_first: BTreeMap<CallId, Chain>,
    /// Its decisions are the turns with which others have exchanged their work.
    pub(super) order: FreeOrder<CallId>,
    /// The turns that must exchange their work as in an earlier run, with the number of these exchanges.
    awaited: BTreeMap<CallId, usize>,
}

#[derive(Debug, Default)]
struct Chain {
    undecided: BTreeMap<CallId, Turn>,
    /// The turns whose other inputs may all be available.
    ready: BTreeSet<CallId>,
}

#[derive(Debug, Default)]
struct Turn {
    /// The position of the argument that is updated.
    at: usize,
    /// The inputs of another turn that will exchange its work with this one, and never runs again: there is a
    /// handle of each.
    kept: Vec<VersionId>,
}

impl Chains {
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.order.decisions().map(|(call, with)| Fact::Commuted { call, with })
    }

    pub(super) fn recall(&mut self, call: CallId, with: CallId) {
        if self.order.recall(call, with) {
            *self.awaited.entry(with).or_default() += 1;
        }
    }

    fn count_exchange(&mut self, with: CallId) {
        if let Some(turns) = self.awaited.get_mut(&with) {
            *turns -= 1;
            if *turns == 0 {
                self.awaited.remove(&with);
            }
        }
    }

    /// Returns whether a turn waits for its inputs until its work is decided. A turn that must repeat an
    /// exchange does not: its previous work is done by another one.
    pub(super) fn is_open(&self, call: CallId) -> bool {
        self.order.of(call).is_some()
            && self.order.decision(call).is_none()
            && !self.awaited.contains_key(&call)
    }

    pub(super) fn join(&mut self, call: CallId, Commute { chain, at }: Commute) {
        let undecided = &mut self.by_first.entry(chain).or_default().undecided;
        undecided.insert(call, Turn { at, kept: Vec::new() });
        self.order.join(call, chain);
    }

    fn turn(&mut self, call: CallId) -> Option<&mut Turn> {
        let first = self.order.of(call)?;
        self.by_first.get_mut(&first)?.undecided.get_mut(&call)
    }

    /// Removes a call that has ended, or was cancelled.
    pub(super) fn remove(&mut self, call: CallId) {
        match self.order.of(call) {
            // It stays in its chain while others may have to exchange their work with it.
            Some(first) => self.order.stir(first),
            None => self.order.leave(call),
        }
    }

    /// Removes a turn that is decided or over, and returns the versions kept for it.
    fn leave(&mut self, first: CallId, call: CallId) -> Vec<VersionId> {
        self.order.leave(call);
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
    pub(super) fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.order.holds_none()
    }

    pub(super) fn on_available_for_turns(&mut self, data: &Data, readers: &[CallId]) {
        if self.by_first.is_empty() {
            return;
        }
        for reader in readers {
            self.recheck_turn(data, *reader);
        }
    }

    pub(super) fn recheck_turn(&mut self, data: &Data, id: CallId) {
        let Some(first) = self.order.of(id).filter(|_| self.can_have_turn(data, id)) else { return };
        if let Some(chain) = self.by_first.get_mut(&first) {
            chain.ready.insert(id);
            self.order.stir(first);
        }
    }

    /// Returns whether all inputs of a call are available except for the one that it updates as a turn.
    pub(super) fn can_have_turn(&self, data: &Data, id: CallId) -> bool {
        let Some(first) = self.order.of(id) else { return false };
        let turn = self.by_first.get(&first).and_then(|chain| chain.undecided.get(&id));
        let call = data.calls.get(&id).filter(|call| matches!(call.state, CallState::Inputs(_)));
        let Some((turn, call)) = turn.zip(call) else { return false };
        let others = call.arguments.iter().enumerate().filter(|(at, _)| *at != turn.at);
        others.flat_map(|(_, argument)| argument.versions()).all(|read| data.versions[read].is_present())
    }

    /// Keeps the inputs of a call until another call reads them, even if it completed in an earlier run.
    pub(super) fn keep_inputs(&mut self, data: &mut Data, id: CallId) {
        let read: Vec<_> = data.calls.get(&id).into_iter().flat_map(Call::reads).collect();
        let Some(turn) = self.turn(id) else { return };
        let before = std::mem::replace(&mut turn.kept, read.clone());
        for version in read {
            data.version_mut(version).handles += 1;
        }
        for version in before {
            data.release(version);
        }
    }

    pub(super) fn exchange_turns(&mut self, data: &mut Data, one: CallId, other: CallId) {
        if one == other {
            return;
        }
        let Some(at) = self.turn(one).map(|turn| turn.at) else { return };
        let Some(turn) = self.turn(other) else { return };
        let others_at = std::mem::replace(&mut turn.at, at);
        if let Some(turn) = self.turn(one) {
            turn.at = others_at;
        }
        let [Some(first), Some(second)] = [one, other].map(|id| data.calls.get(&id)) else { return };
        let [own, others] = [(first, at), (second, others_at)].map(|(call, at)| call.arguments[at].clone());
        let with = |arguments: &[Argument], at: usize, updated: Argument| {
            let mut arguments = arguments.to_vec();
            arguments[at] = updated;
            Arc::<[Argument]>::from(arguments)
        };
        let does = [
            (one, second.work, second.options, with(&second.arguments, others_at, own)),
            (other, first.work, first.options, with(&first.arguments, at, others)),
        ];
        let mut before = Vec::new();
        for (id, work, options, arguments) in does {
            // Its requirements may have changed.
            let runs_on = match data.calls[&id].state {
                CallState::Runs(member) => Some(member),
                _ => None,
            };
            if let Some(member) = runs_on {
                data.free(id, member);
            }
            before.extend(data.replace_inputs(id, &arguments));
            let call = data.calls.get_mut(&id).expect("it is known");
            (call.work, call.options) = (work, options);
            if let Some(member) = runs_on {
                data.occupy(id, member);
            }
        }
        for version in before {
            data.forget_unless_needed(version);
        }
    }

    pub(super) fn on_made(&mut self, data: &mut Data, id: CallId) -> Option<CallId> {
        let first = self.order.of(id)?;
        if self.order.decision(id).is_some() {
            self.keep_inputs(data, id);
        }
        self.order.stir(first);
        Some(first)
    }

    /// Decides the work of the next turn of a chain, unless it is recorded.
    pub(super) fn decide(&mut self, data: &mut Data, queues: &mut Queues, first: CallId) -> Next {
        let Some(chain) = self.by_first.get(&first) else { return Next::None };
        let Some(id) = chain.undecided.first_key_value().map(|(id, _)| *id) else { return Next::None };
        if self.order.decision(id).is_some() {
            return Next::Recorded;
        }
        match data.calls.get(&id).map(|call| call.state) {
            Some(CallState::Inputs(_)) => {}
            // The call is being cancelled.
            Some(CallState::Recorded) => return Next::None,
            _ => {
                self.leave(first, id);
                return Next::Decided;
            }
        }
        let Some(with) = chain.ready.iter().copied().find(|with| self.can_have_turn(data, *with)) else {
            return Next::None;
        };
        self.exchange_turns(data, id, with);
        if let Some(chain) = self.by_first.get_mut(&first) {
            chain.ready.remove(&with);
        }
        self.leave(first, id);
        self.order.record(data, queues, id, Fact::Commuted { call: id, with });
        Next::Decided
    }

    /// Repeats the recorded exchange of the next turn. Returns the turn and its partner, which may be the turn itself.
    pub(super) fn repeat_exchange(&mut self, data: &mut Data, first: CallId) -> Option<(CallId, CallId)> {
        let chain = self.by_first.get(&first)?;
        let id = chain.undecided.first_key_value().map(|(id, _)| *id)?;
        let with = self.order.decision(id)?;
        if !chain.undecided.contains_key(&with) {
            return None;
        }
        self.exchange_turns(data, id, with);
        self.count_exchange(with);
        for version in self.leave(first, id) {
            data.release(version);
        }
        if with != id && self.order.decision(with).is_some() {
            self.keep_inputs(data, with);
        }
        Some((id, with))
    }
}

/// The state of the next turn of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// There is none, or its work cannot be decided yet.
    None,
    /// Its work was decided now.
    Decided,
    /// Its work is recorded.
    Recorded,
}

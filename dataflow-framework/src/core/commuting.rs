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
//! As with [reductions](super::reducing), the work of a turn is recorded before it starts, if members may be
//! lost ([`Fact::Commuted`]). A restarted program makes the same exchanges as soon as both calls are made.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    call::{Call, CallState},
    fact::Fact,
    graph::{Action, Graph},
    state::chains::Held,
};
use crate::ids::{Argument, CallId, VersionId};

impl Graph {
    /// Returns whether a call must not start, since its inputs are not decided or not recorded.
    pub(super) fn is_held(&self, id: CallId) -> bool {
        self.reductions.holds(id) || self.chains.holds(id)
    }

    pub(super) fn join_chain(&mut self, id: CallId) {
        let Some(first) = self.chains.chain_of(id) else { return };
        if self.chains.decided.contains_key(&id) {
            self.keep_inputs(id);
        }
        self.repeat_exchanges(first);
        if self.chains.is_open(id) {
            self.wait_for_turn(id);
        }
        self.chains.stirred.insert(first);
    }

    pub(super) fn on_available_for_turns(&mut self, readers: &[CallId]) {
        if self.chains.by_first.is_empty() {
            return;
        }
        for reader in readers {
            self.recheck_turn(*reader);
        }
    }

    /// Lets an undecided turn wait for its other inputs.
    fn wait_for_turn(&mut self, id: CallId) {
        if self.calls.get(&id).is_some_and(|call| matches!(call.state, CallState::Inputs(_))) {
            self.requeue(id);
            self.recheck_turn(id);
        }
    }

    /// Notes that the other inputs of a turn may all be available.
    fn recheck_turn(&mut self, id: CallId) {
        let Some(first) = self.chains.chain_of(id).filter(|_| self.can_have_turn(id)) else { return };
        if let Some(chain) = self.chains.by_first.get_mut(&first) {
            chain.ready.insert(id);
            self.chains.stirred.insert(first);
        }
    }

    /// Returns whether all inputs of a call are available except for the one that it updates as a turn.
    fn can_have_turn(&self, id: CallId) -> bool {
        let Some(first) = self.chains.chain_of(id) else { return false };
        let turn = self.chains.by_first.get(&first).and_then(|chain| chain.undecided.get(&id));
        let call = self.calls.get(&id).filter(|call| matches!(call.state, CallState::Inputs(_)));
        let Some((turn, call)) = turn.zip(call) else { return false };
        let others = call.arguments.iter().enumerate().filter(|(at, _)| *at != turn.at);
        others.flat_map(|(_, argument)| argument.versions()).all(|read| self.versions[read].is_present())
    }

    pub(super) fn decide_turns(&mut self) {
        while let Some(first) = self.chains.stirred.pop_first() {
            while self.decide_turn(first) {}
        }
    }

    /// Decides the work of the next turn of a chain. Returns whether that was possible.
    fn decide_turn(&mut self, first: CallId) -> bool {
        let Some(chain) = self.chains.by_first.get(&first) else { return false };
        let Some(id) = chain.undecided.first_key_value().map(|(id, _)| *id) else { return false };
        if self.chains.decided.contains_key(&id) {
            return self.repeat_exchanges(first);
        }
        match self.calls.get(&id).map(|call| call.state) {
            Some(CallState::Inputs(_)) => {}
            // The call is being cancelled.
            Some(CallState::Recorded) => return false,
            _ => {
                self.chains.leave(first, id);
                return true;
            }
        }
        let Some(with) = chain.ready.iter().copied().find(|with| self.can_have_turn(*with)) else {
            return false;
        };
        self.exchange_turns(id, with);
        if let Some(chain) = self.chains.by_first.get_mut(&first) {
            chain.ready.remove(&with);
        }
        self.chains.leave(first, id);
        if self.durable.is_on {
            self.chains.held.insert(id, Held::Unrecorded);
            self.actions.push(Action::Record(Fact::Commuted { call: id, with }));
        } else {
            self.release_turn(id);
        }
        true
    }

    /// Repeats the exchanges of an earlier run for the next turns of a chain, as far as both calls are made.
    /// Returns whether there were any.
    fn repeat_exchanges(&mut self, first: CallId) -> bool {
        let mut exchanged = BTreeSet::new();
        let mut is_any = false;
        while let Some(with) = self.repeat_exchange(first) {
            is_any = true;
            exchanged.insert(with);
        }
        // Not earlier: an input received in one exchange may be passed on in the next one, and may be gone.
        for id in exchanged {
            if self.chains.is_open(id) {
                self.wait_for_turn(id);
            }
        }
        is_any
    }

    /// Repeats the exchange of one turn. Returns its partner, which may be the turn itself.
    fn repeat_exchange(&mut self, first: CallId) -> Option<CallId> {
        let chain = self.chains.by_first.get(&first)?;
        let id = chain.undecided.first_key_value().map(|(id, _)| *id)?;
        let with = self.chains.decided.get(&id).copied()?;
        if !chain.undecided.contains_key(&with) {
            return None;
        }
        self.exchange_turns(id, with);
        self.chains.count_exchange(with);
        for version in self.chains.leave(first, id) {
            self.release(version);
        }
        if with != id && self.chains.decided.contains_key(&with) {
            self.keep_inputs(with);
        }
        if self.calls.get(&id).is_some_and(|call| matches!(call.state, CallState::Inputs(_))) {
            self.requeue(id);
        }
        Some(with)
    }

    /// Keeps the inputs of a call until another call reads them, even if it completed in an earlier run.
    fn keep_inputs(&mut self, id: CallId) {
        let read: Vec<_> = self.calls.get(&id).into_iter().flat_map(Call::reads).collect();
        let Some(turn) = self.chains.turn(id) else { return };
        let before = std::mem::replace(&mut turn.kept, read.clone());
        for version in read {
            self.retain(version);
        }
        for version in before {
            self.release(version);
        }
    }

    pub(super) fn on_turn_recorded(&mut self, id: CallId, with: CallId) {
        self.chains.decided.insert(id, with);
        self.release_turn(id);
    }

    fn release_turn(&mut self, id: CallId) {
        self.chains.held.remove(&id);
        if self.calls.get(&id).is_some_and(|call| call.state == CallState::Inputs(0)) {
            self.push_ready(id);
        }
    }

    /// Exchanges the work of two turns of a chain.
    fn exchange_turns(&mut self, one: CallId, other: CallId) {
        if one == other {
            return;
        }
        let Some(at) = self.chains.turn(one).map(|turn| turn.at) else { return };
        let Some(turn) = self.chains.turn(other) else { return };
        let others_at = std::mem::replace(&mut turn.at, at);
        if let Some(turn) = self.chains.turn(one) {
            turn.at = others_at;
        }
        let [Some(first), Some(second)] = [one, other].map(|id| self.calls.get(&id)) else { return };
        let [own, others] = [(first, at), (second, others_at)].map(|(call, at)| call.arguments[at].clone());
        let with = |arguments: &[Argument], at: usize, updated: Argument| {
            let mut arguments = arguments.to_vec();
            arguments[at] = updated;
            Arc::<[Argument]>::from(arguments)
        };
        let does = [
            (one, second.task, second.options, with(&second.arguments, others_at, own)),
            (other, first.task, first.options, with(&first.arguments, at, others)),
        ];
        let mut before = Vec::new();
        for (id, task, options, arguments) in does {
            // Its requirements may have changed.
            let runs_on = match self.calls[&id].state {
                CallState::Runs(member) => Some(member),
                _ => None,
            };
            if let Some(member) = runs_on {
                self.free(id, member);
            }
            before.extend(self.replace_inputs(id, &arguments));
            let call = self.calls.get_mut(&id).expect("it is known");
            (call.task, call.options) = (task, options);
            if let Some(member) = runs_on {
                self.occupy(id, member);
            }
        }
        for version in before {
            self.forget_unless_needed(version);
        }
    }

    /// Replaces the inputs of a call that has not started, or would run again. Returns the previous inputs.
    fn replace_inputs(&mut self, id: CallId, arguments: &Arc<[Argument]>) -> Vec<VersionId> {
        let call = self.calls.get_mut(&id).expect("it is known");
        let is_reader = call.state != CallState::Done;
        let before = std::mem::replace(&mut call.arguments, Arc::clone(arguments));
        for read in arguments.iter().flat_map(Argument::versions) {
            let version = self.version_mut(*read);
            version.dependants += 1;
            version.readers.extend(Some(id).filter(|_| is_reader));
        }
        let before: Vec<_> = before.iter().flat_map(Argument::versions).copied().collect();
        for read in &before {
            let version = self.version_mut(*read);
            version.dependants -= 1;
            if is_reader && let Some(position) = version.readers.iter().position(|reader| *reader == id) {
                version.readers.remove(position);
            }
        }
        self.count_missing(id);
        before
    }
}

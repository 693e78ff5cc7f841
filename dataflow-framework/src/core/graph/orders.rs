//! Calls in a free order: the start of reductions, and the turns of chains. See `reductions.rs` and `chains.rs`.

use std::collections::BTreeSet;

use super::Graph;
use crate::{
    core::{call::CallState, chains::Next, version::State},
    ids::{CallId, VersionId},
};

impl Graph {
    /// Returns whether a call must not start, since its inputs are not decided or not recorded.
    pub(super) fn is_held(&self, id: CallId) -> bool {
        self.reductions.order.holds(id) || self.chains.order.holds(id)
    }

    /// Starts the reductions whose calls the program has made by now.
    pub(crate) fn start_reductions(&mut self) {
        for first in self.reductions.incomplete() {
            for id in self.reductions.start(&mut self.data, first) {
                if self.reductions.start_call(&self.data, first, id) {
                    self.requeue(id);
                }
            }
        }
    }

    /// Recounts the missing inputs of a call that must not start yet, when one of them becomes available.
    /// Others may have been lost without notice.
    pub(super) fn recount_blocked(&mut self, id: CallId) {
        let call = self.data.calls.get(&id).filter(|call| matches!(call.state, CallState::Inputs(_)));
        let is_gone = |input: VersionId| matches!(self.data.versions[&input].state, State::Gone);
        if call.is_some_and(|call| call.reads().any(is_gone)) {
            self.requeue(id);
        } else {
            self.data.count_missing(id);
        }
    }

    pub(super) fn join_chain(&mut self, id: CallId) {
        let Some(first) = self.chains.on_made(&mut self.data, id) else { return };
        self.repeat_exchanges(first);
        if self.chains.is_open(id) {
            self.wait_for_turn(id);
        }
    }

    fn wait_for_turn(&mut self, id: CallId) {
        if self.data.calls.get(&id).is_some_and(|call| matches!(call.state, CallState::Inputs(_))) {
            self.requeue(id);
            self.chains.recheck_turn(&self.data, id);
        }
    }

    pub(super) fn decide_turns(&mut self) {
        while let Some(first) = self.chains.order.pop_stirred() {
            loop {
                match self.chains.decide(&mut self.data, &mut self.queues, first) {
                    Next::Decided => {}
                    Next::Recorded if self.repeat_exchanges(first) => {}
                    Next::Recorded | Next::None => break,
                }
            }
        }
    }

    /// Repeats the exchanges of an earlier run for the next turns of a chain, as far as both calls are made.
    /// Returns whether there were any.
    fn repeat_exchanges(&mut self, first: CallId) -> bool {
        let mut exchanged = BTreeSet::new();
        while let Some((id, with)) = self.chains.repeat_exchange(&mut self.data, first) {
            exchanged.insert(with);
            if self.data.calls.get(&id).is_some_and(|call| matches!(call.state, CallState::Inputs(_))) {
                self.requeue(id);
            }
        }
        let is_any = !exchanged.is_empty();
        // Not earlier: an input received in one exchange may be passed on in the next one, and may be gone.
        for id in exchanged {
            if self.chains.is_open(id) {
                self.wait_for_turn(id);
            }
        }
        is_any
    }
}

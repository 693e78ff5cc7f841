//! The calls by task and state, for observers.

use std::collections::BTreeMap;

use dataflow_view::{Calls, State, Summary};

use super::Graph;
use crate::{
    core::{
        Member,
        call::{Call, CallState},
    },
    ids::CallId,
};

/// The workers of the members that no call counted so far uses.
type Free = BTreeMap<Member, u64>;

impl Graph {
    pub(crate) fn summary(&mut self) -> Summary {
        let (mut unfinished, mut free) = (Vec::<[u64; 3]>::new(), self.data.members.workers());
        for (id, call) in self.data.calls.iter() {
            // Waits of tasks are not calls of the program.
            let Some(task) = call.work.task() else { continue };
            let state = match self.state(id, call, &mut free) {
                State::Waiting => 0,
                State::Ready => 1,
                State::Running => 2,
                State::Ended | State::Failed => continue,
            };
            let index = self.observed.index(task);
            if unfinished.len() <= index {
                unfinished.resize(index + 1, [0; 3]);
            }
            unfinished[index][state] += 1;
        }
        let crew = self.data.members.crew();
        Summary {
            failures: self.observed.failures().to_vec(),
            tasks: self.observed.summaries(&unfinished),
            nodes: u32::try_from(crew.members).unwrap_or(u32::MAX),
            workers: u32::try_from(crew.workers).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn recorded(&self) -> Option<Calls> {
        let mut free = self.data.members.workers();
        let unfinished = self.data.calls.iter().filter(|(_, call)| call.state != CallState::Done);
        self.observed.calls(unfinished.map(|(id, call)| (id, self.state(id, call, &mut free))))
    }

    /// Returns the state of a call. Calls are assigned ahead of time, so of the calls assigned to a member only as many
    /// run as its workers suffice for, the first ones; the others are ready. A task that waits for its calls runs
    /// without a worker, since it has lent it.
    fn state(&self, id: CallId, call: &Call, free: &mut Free) -> State {
        let CallState::Runs(member) = call.state else { return call.state.shown() };
        if self.nests.by_call.get(&id).is_some_and(|nest| nest.lends) {
            return State::Running;
        }
        // A member that has been lost is not known.
        let Some(free) = free.get_mut(&member) else { return State::Running };
        let cores = u64::from(call.demand().cores);
        if *free < cores {
            return State::Ready;
        }
        *free -= cores;
        State::Running
    }
}

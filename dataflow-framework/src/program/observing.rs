//! Observations of a program: its calls by task and state, their graph, a trace, and the reason why a call
//! waits.

use dataflow_view::{Explanation, Observation, SPANS_MAX, Summary};
use taskwork::display::WorkAhead;

use super::{
    engine::{Awaited, Engine},
    recorder::Recorder,
};
use crate::{core::Member, ids::CallId, node::Timing};

/// The number of runs that are recorded without a request.
const RUNS_MAX: usize = 5_000;

/// Optional observations of a program. By default nothing is recorded, at no cost. Of a job on a cluster, the pages of its
/// operators need the graph and the first 5,000 runs, which are recorded in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Observe {
    /// The dependencies between the first 200,000 calls.
    pub graph: bool,
    /// The time and place of the first 50,000 runs of calls.
    pub trace: bool,
}

impl Engine {
    /// Starts to record the requested observations, and those for operators if there may be any.
    pub(crate) fn observe(&self, Observe { graph, trace }: Observe, has_operators: bool) {
        let mut state = self.lock();
        state.graph.observed().observe(graph || has_operators, trace || has_operators);
        let runs_max = if trace { SPANS_MAX } else { RUNS_MAX };
        let is_recorded = trace || has_operators;
        state.recorder = is_recorded.then(|| Recorder::new(self.queue.platform.now_us(), runs_max));
    }

    /// Records the run of a call on a member, before its end is reported.
    pub(crate) fn timed_on(&self, member: Member, timing: Timing) {
        let now_us = self.queue.platform.now_us();
        let mut state = self.lock();
        let task = state.graph.task_index(timing.call);
        if let (Some(recorder), Some(task)) = (&mut state.recorder, task) {
            recorder.ran(now_us, task, member, timing);
            if recorder.is_full() {
                // Further calls are not timed, at no cost.
                state.graph.observed().is_timed = false;
            }
        }
    }

    /// Records an event of a member.
    pub(crate) fn happened_to(&self, member: Member, what: &str) {
        let now_us = self.queue.platform.now_us();
        if let Some(recorder) = &mut self.lock().recorder {
            recorder.happened(now_us, member, what);
        }
    }

    /// Returns the calls by task and state.
    pub(crate) fn summary(&self) -> Summary {
        self.lock().graph.summary()
    }

    /// Returns the work of the known calls.
    pub(crate) fn work_ahead(&self) -> WorkAhead {
        let state = self.lock();
        // A program that waits for all of its calls usually makes no others.
        let is_open = !matches!(state.awaited, Some(Awaited::Calls(..)));
        state.graph.work_ahead(is_open)
    }

    /// Returns all recorded observations.
    pub(crate) fn observation(&self) -> Observation {
        let mut state = self.lock();
        let (summary, calls) = (state.graph.summary(), state.graph.recorded());
        let tasks = state.graph.observed().names();
        let trace = state.recorder.as_ref().map(|recorder| recorder.trace(tasks, |member| self.name(member)));
        Observation { summary, calls, trace }
    }

    /// Returns the reason why a call waits, or its outcome.
    pub(crate) fn explain(&self, call: CallId) -> Explanation {
        self.lock().graph.explain(call, |member| self.name(member))
    }

    fn name(&self, member: Member) -> String {
        let peers = self.others.as_ref().map(|others| others.peers(&[member])).unwrap_or_default();
        match peers.first() {
            Some(peer) => peer.to_string(),
            None => "this process".to_owned(),
        }
    }
}

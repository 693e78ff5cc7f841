//! Observations of a program: its calls by task and state, their graph, a trace, and the reason why a call
//! waits.

use dataflow_view::{Explanation, Observation, Summary};

use super::{engine::Engine, recorder::Recorder};
use crate::{core::Member, ids::CallId, node::Timing};

/// Optional observations of a program. By default nothing is recorded, at no cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Observe {
    /// The dependencies between the first 200,000 calls.
    pub graph: bool,
    /// The time and place of the first 50,000 runs of calls.
    pub trace: bool,
}

impl Engine {
    /// Starts to record the requested observations.
    pub(crate) fn observe(&self, Observe { graph, trace }: Observe) {
        let mut state = self.lock();
        state.graph.observed().observe(graph, trace);
        state.recorder = trace.then(|| Recorder::new(self.queue.platform.now_us()));
    }

    /// Records the run of a call on a member, before its end is reported.
    pub(crate) fn timed_on(&self, member: Member, timing: Timing) {
        let now_us = self.queue.platform.now_us();
        let mut state = self.lock();
        let task = state.graph.task_index(timing.call);
        if let (Some(recorder), Some(task)) = (&mut state.recorder, task) {
            recorder.ran(now_us, task, member, timing);
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

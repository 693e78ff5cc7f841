//! What the engine of a program tells people: the calls by task and state, their graph, when they ran, why one waits.

use dataflow_view::{Explanation, Observation, Summary};

use super::{engine::Engine, recorder::Recorder};
use crate::{core::Member, ids::CallId, node::Timing};

/// What is to be recorded of a program beside what it returns. Nothing is by default, and then costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Observe {
    /// Which calls read what which others write: of the first 200,000 calls.
    pub graph: bool,
    /// When each call ran, and where: of the first 50,000 runs.
    pub trace: bool,
}

impl Engine {
    /// Begins to record what is asked for.
    pub(crate) fn observe(&self, Observe { graph, trace }: Observe) {
        let mut state = self.lock();
        state.graph.observe(graph, trace);
        state.recorder = trace.then(|| Recorder::new(self.queue.platform.now_us()));
    }

    /// Records when a call ran on a member, before its end is told.
    pub(crate) fn timed_on(&self, member: Member, timing: Timing) {
        let now_us = self.queue.platform.now_us();
        let mut state = self.lock();
        let task = state.graph.task_index(timing.call);
        if let (Some(recorder), Some(task)) = (&mut state.recorder, task) {
            recorder.ran(now_us, task, member, timing);
        }
    }

    /// Records that something has happened to a member.
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

    /// Returns everything that was recorded.
    pub(crate) fn observation(&self) -> Observation {
        let mut state = self.lock();
        let (summary, calls) = (state.graph.summary(), state.graph.recorded());
        let tasks = state.graph.task_names();
        let trace = state.recorder.as_ref().map(|recorder| recorder.trace(tasks, |member| self.name(member)));
        Observation { summary, calls, trace }
    }

    /// Returns why a call waits, or what has become of it.
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

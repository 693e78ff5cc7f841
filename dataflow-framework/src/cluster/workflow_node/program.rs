//! The workflow node's interface to the program task, if that is on this node.

use std::sync::Arc;

use taskwork::Waker;

use super::{Link, Progress, Role, Told, WorkflowNode};
use crate::{
    cluster::{following::lock, leading::Leading, message::Run, output::ProgramOutput},
    core::Seen,
};

/// The time for which a program that was stopped for another run waits for that run if its task stays on this
/// node, in milliseconds.
const DEPOSED_MS: u64 = 1_000;

impl WorkflowNode {
    /// Reports the state of the program to its task. `waker` is used when the state changes.
    pub(in crate::cluster) fn tell(&self, waker: impl FnOnce() -> Waker) -> Told {
        let mut state = self.lock();
        match std::mem::replace(&mut state.program, Progress::NotBegun) {
            Progress::NotBegun | Progress::Awaits(_) => Told::Begin,
            Progress::Runs(_) => {
                state.program = Progress::Runs(waker());
                Told::Waits
            }
            Progress::Deposed { since_ms, .. } => {
                state.program = Progress::Deposed { waker: waker(), since_ms };
                Told::Waits
            }
            Progress::Returned(result) => {
                // The task may be here twice for a while, and only one of the two counts. A failed program is
                // tried again.
                if result.is_ok() {
                    state.program = Progress::Returned(result.clone());
                }
                Told::Returned(result)
            }
        }
    }

    /// Restarts a program that was stopped for another run, if its task is still here.
    pub(super) fn begin_anew_if_deposed(&self, now_ms: u64) {
        let mut state = self.lock();
        // A run that this node has not heard of, or that is not later, may have taken the journal.
        if let (Role::Leads(leading), Progress::Runs(waker)) = (&state.role, &state.program)
            && leading.is_replaced()
        {
            state.program = Progress::Deposed { waker: waker.clone(), since_ms: now_ms };
        }
        if let Progress::Deposed { waker, since_ms } = &state.program
            && now_ms >= since_ms + DEPOSED_MS
            && !state.is_leaving
        {
            // If the task has moved, waking it has no effect.
            waker.wake();
            state.program = Progress::NotBegun;
        }
    }

    /// Makes this node the coordinator of a new run, and returns its engine. Returns `None` if the companion
    /// does not run yet, has ended, or the node was allowed to leave: then the task moves to another node, and
    /// calls started here would be lost. The run is later than all runs that this node has heard of.
    ///
    /// A leaving node that was not allowed to exit yet coordinates only until all leaving nodes can exit.
    pub(in crate::cluster) fn lead(&self, generation: u64, waker: Waker) -> Option<Arc<Leading>> {
        let mut state = self.lock();
        let was_let_go = state.is_leaving && state.rescue.is_none();
        let Some(Link { node, capacity, is_embedded, .. }) = state.link.clone().filter(|_| !was_let_go)
        else {
            state.program = Progress::Awaits(waker);
            return None;
        };
        let generation = generation.max(state.generation + 1);
        state.generation = generation;
        let run = Run { generation, started_us: self.platform.now_us() };
        tracing::info!(generation, "the program runs on this node");
        self.resign(&mut state);
        let history = lock(&self.memory).clone();
        let tools = (Arc::clone(&self.executor), Arc::clone(&self.queue));
        let leading = Leading::begin(run, (node, capacity.clone(), is_embedded), tools, history, &self.wake);
        for node in &state.nodes {
            leading.on_joined(*node);
        }
        if state.is_leaving {
            leading.leave();
        }
        self.platform
            .see(|| Seen::Leads { run: (run.generation, run.started_us), workers: capacity.workers });
        state.role = Role::Leads(Arc::clone(&leading));
        state.program = Progress::Runs(waker);
        let is_cordoned = state.is_cordoned;
        drop(state);
        if is_cordoned {
            leading.cordon(true);
        }
        self.wake.notify_one();
        Some(leading)
    }

    /// Receives the output of the program of a run.
    pub(in crate::cluster) fn returned(&self, run: Run, result: Result<ProgramOutput, String>) {
        let last = self.last_status();
        let mut state = self.lock();
        if state.role.run() != Some(run) {
            return;
        }
        state.last_status = last;
        if let Progress::Runs(waker) | Progress::Deposed { waker, .. } =
            std::mem::replace(&mut state.program, Progress::Returned(result))
        {
            waker.wake();
        }
    }
}

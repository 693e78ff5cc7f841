//! What the station does for the task of the program, if that is on this node.

use std::sync::Arc;

use taskwork::Waker;

use super::{Post, Progress, Role, Told, WorkflowNode};
use crate::{
    cluster::{following::lock, leading::Leading, main_task::ProgramOutput, message::Run},
    core::Seen,
};

/// How long a program that was stopped for the sake of another run waits for that, if its task does not leave this node,
/// in milliseconds.
const DEPOSED_MS: u64 = 1_000;

impl WorkflowNode {
    /// Tells the task of the program how far that is. `waker` is used when there is more to tell.
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
                // The task may be here twice for a while, and of the two only one counts. What has failed is tried again.
                if result.is_ok() {
                    state.program = Progress::Returned(result.clone());
                }
                Told::Returned(result)
            }
        }
    }

    /// Has a program begin anew that was stopped for the sake of another run, if its task is here still.
    pub(super) fn begin_anew_if_deposed(&self, now_ms: u64) {
        let mut state = self.lock();
        // Its journal may have been taken by a run of which this node has not heard, or that is not later.
        if let (Role::Leads(leading), Progress::Runs(waker)) = (&state.role, &state.program)
            && leading.is_replaced()
        {
            state.program = Progress::Deposed { waker: waker.clone(), since_ms: now_ms };
        }
        if let Progress::Deposed { waker, since_ms } = &state.program
            && now_ms >= since_ms + DEPOSED_MS
            && !state.is_leaving
        {
            // If the task has gone, nothing comes of that.
            waker.wake();
            state.program = Progress::NotBegun;
        }
    }

    /// Makes this node the head of a new run, and returns its engine. `None` if the companion does not run yet, or any
    /// more, or the node was let go: the task goes elsewhere, and nobody would wait for calls that began here. The run
    /// is later than any of which this node has heard, as well.
    ///
    /// A node that is to leave and was not let go leads only so far that all that leave with it can.
    pub(in crate::cluster) fn lead(&self, generation: u64, waker: Waker) -> Option<Arc<Leading>> {
        let mut state = self.lock();
        let was_let_go = state.is_leaving && state.rescue.is_none();
        let Some(Post { node, capacity, is_embedded, .. }) = state.post.clone().filter(|_| !was_let_go)
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
        let tools = (Arc::clone(&self.site), Arc::clone(&self.queue));
        let leading = Leading::begin(run, (node, capacity.clone(), is_embedded), tools, history, &self.wake);
        for node in &state.nodes {
            leading.joined(*node);
        }
        if state.is_leaving {
            leading.leave();
        }
        self.platform
            .see(|| Seen::Leads { run: (run.generation, run.started_us), workers: capacity.workers });
        state.role = Role::Leads(Arc::clone(&leading));
        state.program = Progress::Runs(waker);
        drop(state);
        self.wake.notify_one();
        Some(leading)
    }

    /// Records the end of the program of a run.
    pub(in crate::cluster) fn returned(&self, run: Run, result: Result<ProgramOutput, String>) {
        let last = self.last_sight();
        let mut state = self.lock();
        if state.role.run() != Some(run) {
            return;
        }
        state.last_sight = last;
        if let Progress::Runs(waker) | Progress::Deposed { waker, .. } =
            std::mem::replace(&mut state.program, Progress::Returned(result))
        {
            waker.wake();
        }
    }
}

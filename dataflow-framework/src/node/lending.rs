//! Lending of threads: while a task waits for calls that it has made, another thread runs other calls.
//!
//! A waiting thread lends its place among the workers to an idle thread, or to a new one if none is idle. So the
//! number of computing threads equals the number of workers, and no task waits for a call that cannot start. When the
//! task continues, there is one more computing thread than workers until one of them has completed its call.
//!
//! Nested calls start first, so the number of waiting threads is about the number of workers times the depth of the
//! recursion. A task that would exceed [`WAITING_MAX`] fails.

use std::sync::Arc;

use super::{
    queue::Queue,
    seat::{Place, Seat},
};
use crate::failure::Failed;

/// The maximum number of threads of a node that wait for calls.
const WAITING_MAX: usize = 1_024;

/// The loan of a waiting thread's place, until this is dropped.
pub(super) struct Lent {
    of: Option<(Arc<Queue>, Seat)>,
}

impl Queue {
    /// Lends the place of this thread to another one until the result is dropped.
    ///
    /// # Errors
    /// If too many threads wait.
    pub(super) fn lend(self: &Arc<Self>) -> Result<Lent, Failed> {
        // Without workers the program runs its calls itself, and a call has completed when a task waits for it.
        let Some(seat) = Seat::current() else { return Ok(Lent { of: None }) };
        let mut state = self.lock();
        if seat.place() == Place::IsLeft {
            return Ok(Lent { of: None });
        }
        if state.lent >= WAITING_MAX {
            return Err(Failed::of_runtime(format!(
                "{WAITING_MAX} tasks of this node wait for calls that they have made, which is the limit: \
                 reduce the depth of the recursion, or return the handles of calls without waiting for them"
            )));
        }
        seat.set(Place::IsLent);
        state.busy.remove();
        state.lent += 1;
        let needs_thread = state.idle == 0;
        drop(state);
        if needs_thread {
            self.start_worker("task worker in place of one that waits")
                .map_err(|error| {
                    Failed::of_runtime(format!("cannot start a thread to work while it waits: {error}"))
                })
                .inspect_err(|_| self.reclaim(&seat))?;
        } else {
            self.changed.notify_one();
        }
        Ok(Lent { of: Some((Arc::clone(self), seat)) })
    }

    fn reclaim(&self, seat: &Seat) {
        let mut state = self.lock();
        if seat.place() == Place::IsLent {
            seat.set(Place::Works);
            state.lent -= 1;
            state.busy.add();
            self.report(&state);
        }
    }

    /// Abandons a thread to a call beyond its timeout. Returns whether a new thread has to replace it.
    pub(super) fn abandon(&self, seat: Option<&Seat>) -> bool {
        let mut state = self.lock();
        state.threads -= 1;
        // In the simulator workers are not threads.
        let Some(seat) = seat else {
            state.busy.remove();
            return true;
        };
        let before = seat.place();
        seat.set(Place::IsLeft);
        match before {
            Place::Works => state.busy.remove(),
            Place::IsLent => state.lent -= 1,
            Place::IsLeft => {}
        }
        self.report(&state);
        if before != Place::Works {
            return false;
        }
        self.changed.notify_one();
        state.idle == 0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some((queue, seat)) = self.of.take() {
            queue.reclaim(&seat);
        }
    }
}

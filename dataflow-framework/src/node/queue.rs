//! The calls that wait for a thread.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::core::Assignment;

/// The calls that wait for a thread. Their number is bounded by the graph, which assigns them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Assignment>,
    /// The number of threads that wait.
    idle: usize,
    is_over: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call.
    pub(crate) fn push(&self, assignment: Assignment) {
        let mut state = self.lock();
        state.waiting.push_back(assignment);
        let is_awaited = state.idle > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Waits for a call. `None` if there will be no more.
    pub(crate) fn next(&self) -> Option<Assignment> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(assignment) = state.waiting.pop_front() {
                return Some(assignment);
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Ends the threads, each after the call that it runs.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}

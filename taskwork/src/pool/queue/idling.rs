//! A worker that has spun without getting a task: it sleeps, and periodically runs the program's
//! [idle function](crate::Hooks::idle).
//!
//! It counts as idle all the time: the queue is hungry, the node steals, and an added task is taken by this worker
//! as soon as the program checks whether to stop.

use std::{
    cell::Cell,
    sync::{PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{Gate, Queue, State};
use crate::{idle::IdleWork, pool::sync::MutexGuard, task::Task};

/// The time without a task before a worker calls the idle function: most workers get a task sooner, which
/// should not wait for the program's next check.
const IDLE_BEFORE: Duration = Duration::from_millis(10);

/// The schedule of a worker's idle function.
pub(super) struct Idling {
    /// `None` if it must have a task first.
    due: Option<Instant>,
}

impl Idling {
    pub(super) fn begin() -> Self {
        // A model of threads has no clock.
        Self { due: if cfg!(feature = "loom") { None } else { Some(Instant::now() + IDLE_BEFORE) } }
    }
}

impl<T: Task> Queue<T> {
    /// Sleeps until it is woken, or calls the idle function if that is due.
    pub(super) fn idle<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        worker: usize,
        idling: &mut Idling,
        idle_work: IdleWork<'_>,
    ) -> MutexGuard<'a, State<T>> {
        // A pool that is stopped or closed needs no idle function.
        let due = idling.due.filter(|_| state.gate == Gate::Open);
        let Some(due) = due else { return self.sleep(state, None) };
        let until = due.saturating_duration_since(Instant::now());
        if !until.is_zero() {
            return self.sleep(state, Some(until));
        }
        let seen = Cell::new(Some(self.stirred.0.load(Relaxed)));
        drop(state);
        let stops = || self.stops_idling(worker, &seen);
        let pause = idle_work(&stops);
        // If another worker took the task, the next one may come as soon.
        let pause = pause.map(|pause| if seen.get().is_some() { pause } else { pause.max(IDLE_BEFORE) });
        idling.due = pause.and_then(|pause| Instant::now().checked_add(pause));
        state = self.lock();
        state
    }

    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        at_most: Option<Duration>,
    ) -> MutexGuard<'a, State<T>> {
        state.asleep += 1;
        state = match at_most {
            None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.wake.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.asleep -= 1;
        state
    }

    /// Returns whether a worker should stop its idle function. `seen` is the last seen value of the counter of
    /// changes; `None` once it should stop.
    fn stops_idling(&self, worker: usize, seen: &Cell<Option<u64>>) -> bool {
        let Some(before) = seen.get() else { return true };
        let now = self.stirred.0.load(Relaxed);
        if now == before && !self.is_recalled(worker) {
            return false;
        }
        let state = self.lock();
        let stops = state.gate != Gate::Open || state.can_begin() || state.shared || self.is_recalled(worker);
        seen.set(if stops { None } else { Some(now) });
        stops
    }
}

//! A worker that has watched in vain: it sleeps, and now and then does what the program wants done
//! [meanwhile](crate::Task::idle).
//!
//! It remains idle all the time: the queue is hungry, the node steals, and whoever adds a task finds a worker that
//! takes it as soon as the program looks whether it is to stop.

use std::{
    cell::Cell,
    sync::{PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{Gate, Queue, State};
use crate::{idle::Meanwhile, pool::sync::MutexGuard, task::Task};

/// The time for which a worker has no task before it does anything else: most get one sooner, and none of them
/// should have to wait for the program's next look.
const IDLE_BEFORE: Duration = Duration::from_millis(10);

/// When a worker does something meanwhile.
pub(super) struct Idling {
    /// `None` if not before it has had a task.
    due: Option<Instant>,
}

impl Idling {
    pub(super) fn begin() -> Self {
        // A model of threads has no clock.
        Self { due: if cfg!(feature = "loom") { None } else { Some(Instant::now() + IDLE_BEFORE) } }
    }
}

impl<T: Task> Queue<T> {
    /// Sleeps until it is woken, or does what is due.
    pub(super) fn idle<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        worker: usize,
        idling: &mut Idling,
        meanwhile: Meanwhile<'_>,
    ) -> MutexGuard<'a, State<T>> {
        // What is over, or about to be, is no reason to do anything.
        let due = idling.due.filter(|_| state.gate == Gate::Open);
        let Some(due) = due else { return self.sleep(state, None) };
        let until = due.saturating_duration_since(Instant::now());
        if !until.is_zero() {
            return self.sleep(state, Some(until));
        }
        let seen = Cell::new(Some(self.stirred.0.load(Relaxed)));
        drop(state);
        let stops = || self.stops_idling(worker, &seen);
        let pause = meanwhile(&stops);
        // If the task was taken by another worker, the next one may come as soon.
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

    /// Returns whether a worker is to stop what it does meanwhile. `seen` is what it has seen of the counter of
    /// changes; `None` once it is to stop.
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

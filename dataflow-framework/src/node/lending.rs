//! Threads whose tasks wait for calls that they have made: other calls are run meanwhile.
//!
//! A thread that waits lends its place among the workers. Another thread takes it, which is started if none is idle; so
//! there are as many calls that really run as there are workers, and no task waits for one that cannot begin. When the
//! task goes on, its thread works beside the others until one of them has ended its call.
//!
//! The deepest calls begin first, so there are about as many threads that wait as the workers times the depth of the
//! recursion. A task that would be one too many fails.

use std::{cell::RefCell, sync::Arc};

use super::queue::Queue;
use crate::failure::Failed;

/// The maximum number of threads of a node that wait for calls.
const WAITING_MAX: usize = 1_024;

/// Whether a thread that runs a call counts as one of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Works,
    /// Its task waits, and another thread works.
    IsLent,
    /// It was left to a call that takes too long.
    IsLeft,
}

/// The place of a thread, which only changes while the queue is locked.
#[derive(Debug, Clone)]
pub(super) struct Seat(Arc<std::sync::Mutex<Place>>);

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

impl Seat {
    /// Returns the place of this thread, if it is one that runs calls.
    pub(super) fn current() -> Option<Self> {
        SEAT.with_borrow(Clone::clone)
    }

    /// Makes this thread one that runs calls.
    pub(super) fn take() -> Self {
        let seat = Self(Arc::new(std::sync::Mutex::new(Place::Works)));
        SEAT.set(Some(seat.clone()));
        seat
    }

    pub(super) fn place(&self) -> Place {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn set(&self, place: Place) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = place;
    }
}

/// A thread that waits, until this is dropped.
pub(super) struct Lent {
    of: Option<(Arc<Queue>, Seat)>,
}

impl Queue {
    /// Lets another thread work in the place of this one, until the result is dropped.
    ///
    /// # Errors
    /// If too many wait.
    pub(super) fn lend(self: &Arc<Self>) -> Result<Lent, Failed> {
        // Otherwise the program runs its calls itself, and each has ended when it is waited for.
        let Some(seat) = Seat::current() else { return Ok(Lent { of: None }) };
        let mut state = self.lock();
        if seat.place() == Place::IsLeft {
            return Ok(Lent { of: None });
        }
        if state.lent >= WAITING_MAX {
            return Err(Failed::of(format!(
                "{WAITING_MAX} tasks of this node wait for calls that they have made, and it would be another one: \
                 call to less depth, or return the handles of what is called without waiting for it"
            )));
        }
        seat.set(Place::IsLent);
        state.busy.remove();
        state.lent += 1;
        let needs_thread = state.idle == 0;
        drop(state);
        if needs_thread {
            self.work("task worker in place of one that waits")
                .map_err(|error| {
                    Failed::of(format!("no thread could be started that works while it waits: {error}"))
                })
                .inspect_err(|_| self.takes_back(&seat))?;
        } else {
            self.changed.ring();
        }
        Ok(Lent { of: Some((Arc::clone(self), seat)) })
    }

    fn takes_back(&self, seat: &Seat) {
        let mut state = self.lock();
        if seat.place() == Place::IsLent {
            seat.set(Place::Works);
            state.lent -= 1;
            state.busy.add();
        }
    }

    /// Leaves a thread to a call that takes too long. Returns whether another one has to take its place.
    pub(super) fn leaves(&self, seat: Option<&Seat>) -> bool {
        let mut state = self.lock();
        state.threads -= 1;
        // In the simulator workers are no threads.
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
        before == Place::Works && state.idle == 0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some((queue, seat)) = self.of.take() {
            queue.takes_back(&seat);
        }
    }
}

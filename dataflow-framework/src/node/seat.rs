//! Whether a thread counts as a worker.

use std::{cell::RefCell, sync::Arc};

/// Whether a thread that runs a call counts as a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Works,
    /// Its task waits, and another thread works.
    IsLent,
    /// It was abandoned to a call beyond its timeout.
    IsLeft,
}

/// The place of a thread, which changes only while the queue is locked.
#[derive(Debug, Clone)]
pub(super) struct Seat(Arc<std::sync::Mutex<Place>>);

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

impl Seat {
    /// Returns the place of this thread, if it is a worker.
    pub(super) fn current() -> Option<Self> {
        SEAT.with_borrow(Clone::clone)
    }

    /// Makes this thread a worker.
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

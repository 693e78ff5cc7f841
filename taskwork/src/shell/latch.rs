//! A one-time event with several waiting tasks. They are woken in the order in which they started to wait, so that
//! the simulator can replay runs.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Release},
};

use tokio::sync::Notify;

/// A flag that can be set once and awaited.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    is_set: AtomicBool,
    set: Notify,
}

impl Latch {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Release);
        self.set.notify_waiters();
    }

    /// Waits until the flag is set.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn wait(&self) {
        let set = self.set.notified();
        tokio::pin!(set);
        set.as_mut().enable();
        if !self.is_set.load(Acquire) {
            set.await;
        }
    }
}

/// A flag that can change, with several followers. They are woken in the order in which they started to wait.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    changed: Notify,
}

impl Flag {
    pub(crate) fn new(is_set: bool) -> Self {
        Self { is_set: AtomicBool::new(is_set), ..Self::default() }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Acquire)
    }

    /// Sets the flag to a value. Returns whether it had another one.
    pub(crate) fn change(&self, is_set: bool) -> bool {
        let is_changed = self.is_set.swap(is_set, AcqRel) != is_set;
        if is_changed {
            self.changed.notify_waiters();
        }
        is_changed
    }

    /// Waits until the flag has another value than `before`, and returns it.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn changed(&self, before: bool) -> bool {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_set() != before {
                return !before;
            }
            changed.await;
        }
    }
}

//! A one-time event with several waiting tasks. They are woken in the order in which they started to wait, so that
//! the simulator can replay runs.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
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

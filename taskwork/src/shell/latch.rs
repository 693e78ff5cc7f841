//! Something that happens once, for several who wait. They are woken in the order in which they began to wait: in
//! the simulator, a run can be replayed.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use tokio::sync::Notify;

/// Whether it has happened.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    is_set: AtomicBool,
    set: Notify,
}

impl Latch {
    /// Notes that it has happened.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Release);
        self.set.notify_waiters();
    }

    /// Waits until it has happened.
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

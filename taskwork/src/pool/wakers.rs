//! External wake-ups for waiting tasks.
//!
//! A wake-up only records the waiting task and notifies the driver, which queues the task: the caller never waits for
//! the queue's lock.

use std::{
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
};

use tokio::sync::Notify;

use super::lock;
use crate::id::TaskId;

/// Wakes a task that waits for an external event; see [`Context::waker`](crate::Context::waker).
///
/// A wake-up before the task waits makes it continue immediately. A wake-up has no effect after the task has continued,
/// has moved to another node or is complete, or after the end of the job.
///
/// A task that was handed over may temporarily exist twice on a node, until it is known which of the two counts. Each
/// takes a waker, and the later one wakes both.
#[derive(Clone)]
pub struct Waker(Arc<WakeUp>);

/// One wait of one task for an external event.
pub(super) struct WakeUp {
    /// Its number in the pool.
    pub(super) number: u64,
    pub(super) task: TaskId,
    came: AtomicBool,
    queue: Weak<WakeUps>,
}

/// The receiver of wake-ups, which notifies the driver of changes of the pool.
#[derive(Default)]
pub(super) struct WakeUps {
    pub(super) changed: Notify,
    pending: Mutex<Vec<Arc<WakeUp>>>,
    next_number: AtomicU64,
}

impl Waker {
    /// Causes the task to be searched again. Never blocks, and may be called from any thread, repeatedly.
    pub fn wake(&self) {
        if self.0.came.swap(true, SeqCst) {
            return;
        }
        if let Some(queue) = self.0.queue.upgrade() {
            lock(&queue.pending).push(Arc::clone(&self.0));
            queue.changed.notify_one();
        }
    }

    pub(super) fn wake_up(self) -> Arc<WakeUp> {
        self.0
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").field("woken", &self.0.has_come()).finish_non_exhaustive()
    }
}

impl WakeUp {
    /// Returns whether the wake-up has come. Called under the queue's lock when the task starts to wait: if it returns
    /// false, the wake-up is recorded later than that.
    pub(super) fn has_come(&self) -> bool {
        self.came.load(SeqCst)
    }
}

impl WakeUps {
    pub(super) fn waker(self: &Arc<Self>, task: TaskId) -> Waker {
        let number = self.next_number.fetch_add(1, Relaxed);
        Waker(Arc::new(WakeUp { number, task, came: AtomicBool::new(false), queue: Arc::downgrade(self) }))
    }

    /// Returns the wake-ups that have come since the last call.
    pub(super) fn take_pending(&self) -> Vec<Arc<WakeUp>> {
        std::mem::take(&mut *lock(&self.pending))
    }
}

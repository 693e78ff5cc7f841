//! Wake-ups from outside for tasks that wait.
//!
//! A wake-up only notes the waiting task and notifies the driver, which queues the task: whoever wakes a task does
//! not wait for a lock under which much is done.

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

/// Wakes a task that waits for something outside; see [`Context::waker`](crate::Context::waker).
///
/// A wake-up before the task waits lets it go on at once. One after the task has gone on, has moved to another
/// node or is complete, or after the end of the job, has no effect.
///
/// A task that was handed over may for a while be twice on a node, until it is known which of the two counts. Each
/// takes a waker, and the later one wakes both.
#[derive(Clone)]
pub struct Waker(Arc<Bell>);

/// One wait of one task for something outside.
pub(super) struct Bell {
    /// Its number in the pool.
    pub(super) number: u64,
    /// The task that waits.
    pub(super) task: TaskId,
    rung: AtomicBool,
    desk: Weak<Desk>,
}

/// Where wake-ups arrive, and the driver is notified of changes of the pool.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) changed: Notify,
    rung: Mutex<Vec<Arc<Bell>>>,
    bells: AtomicU64,
}

impl Waker {
    /// Lets the task be searched again. Never blocks, and may be called from any thread, however often.
    pub fn wake(&self) {
        if self.0.rung.swap(true, SeqCst) {
            return;
        }
        if let Some(desk) = self.0.desk.upgrade() {
            lock(&desk.rung).push(Arc::clone(&self.0));
            desk.changed.notify_one();
        }
    }

    pub(super) fn bell(self) -> Arc<Bell> {
        self.0
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").field("woken", &self.0.has_rung()).finish_non_exhaustive()
    }
}

impl Bell {
    /// Returns whether the wake-up has come. Asked under the queue's lock when the task begins to wait: if the
    /// answer is no, the wake-up is noted later than that.
    pub(super) fn has_rung(&self) -> bool {
        self.rung.load(SeqCst)
    }
}

impl Desk {
    pub(super) fn waker(self: &Arc<Self>, task: TaskId) -> Waker {
        let number = self.bells.fetch_add(1, Relaxed);
        Waker(Arc::new(Bell { number, task, rung: AtomicBool::new(false), desk: Arc::downgrade(self) }))
    }

    /// Returns the wake-ups that have come since the last call.
    pub(super) fn take_rung(&self) -> Vec<Arc<Bell>> {
        std::mem::take(&mut *lock(&self.rung))
    }
}

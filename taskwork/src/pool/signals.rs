//! The words that a running task polls.
//!
//! A poll is one relaxed load of a word that hardly ever changes, so it costs no traffic between cores. Relaxed is
//! enough: a word only says *that* there is something to see; what there is to see stands behind a lock.

use std::sync::atomic::Ordering::Relaxed;

use super::sync::{AtomicBool, AtomicIsize, AtomicU64};

/// What the pool wants of the tasks that run in it. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Signals {
    stop: AtomicBool,
    demand: AtomicIsize,
    epoch: AtomicU64,
}

impl Signals {
    /// Whether running tasks are to stop at their next `migrate()`.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(crate) fn set_stop(&self, stop: bool) {
        self.stop.store(stop, Relaxed);
    }

    /// Hungry workers + waiting thieves − queued tasks.
    #[inline]
    pub(crate) fn demand(&self) -> isize {
        self.demand.load(Relaxed)
    }

    pub(crate) fn set_demand(&self, demand: isize) {
        self.demand.store(demand, Relaxed);
    }

    /// Grows whenever a variable of the node changes.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    pub(crate) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }
}

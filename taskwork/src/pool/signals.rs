//! The word that a running task polls.
//!
//! A poll is one relaxed load of a word that hardly ever changes, so it costs no traffic between cores.
//! Relaxed is enough: the word only says *that* there is something to see; what there is to see stands behind
//! a lock.

use std::sync::atomic::Ordering::Relaxed;

use super::sync::AtomicU64;

/// What the pool wants of the tasks that run in it. On a cache line of its own.
///
/// ```text
///   63                    2    1      0
///   epoch of the variables  stop  split
/// ```
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Signals(AtomicU64);

const SPLIT: u64 = 1;
const STOP: u64 = 2;
const EPOCH: u64 = 4;

impl Signals {
    /// Everything at once: it changes when there is something to see.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// The word of an epoch in which nobody wants anything of a task.
    #[inline]
    pub(crate) fn quiet(epoch: u64) -> u64 {
        epoch * EPOCH
    }

    /// Whether running tasks are to stop at their next `migrate()`.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.word() & STOP != 0
    }

    pub(crate) fn set_stop(&self, stop: bool) {
        self.set(STOP, stop);
    }

    /// Whether hungry workers and waiting thieves are more than the tasks that are queued.
    #[inline]
    pub(crate) fn split(&self) -> bool {
        self.word() & SPLIT != 0
    }

    pub(crate) fn set_split(&self, split: bool) {
        self.set(SPLIT, split);
    }

    /// Whoever sets a bit holds the queue's lock, so nobody sets it otherwise between the look and the
    /// change; and as long as nothing changes, the word stays in every core's cache.
    fn set(&self, bit: u64, on: bool) {
        let is_on = self.word() & bit != 0;
        if on && !is_on {
            self.0.fetch_or(bit, Relaxed);
        } else if !on && is_on {
            self.0.fetch_and(!bit, Relaxed);
        }
    }

    /// Grows whenever a variable of the node changes.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.word() / EPOCH
    }

    pub(crate) fn next_epoch(&self) {
        self.0.fetch_add(EPOCH, Relaxed);
    }
}

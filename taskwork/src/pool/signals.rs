//! The word that running tasks poll.
//!
//! A poll is one relaxed load of a word that rarely changes, so it causes no traffic between cores.
//! Relaxed suffices: the word only indicates *that* there is a change; the data itself is behind a
//! lock.

use std::sync::atomic::{
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::sync::AtomicU64;

/// The pool's requests to the tasks that run in it, on its own cache line.
///
/// ```text
///   63                    3  2         1     0
///   epoch of the variables    snapshot  stop  split
/// ```
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Signals(AtomicU64);

const SPLIT: u64 = 1;
const STOP: u64 = 2;
const SNAPSHOT: u64 = 4;
const EPOCH: u64 = 8;

impl Signals {
    /// An epoch that never occurs.
    pub(crate) const NO_EPOCH: u64 = u64::MAX / EPOCH;

    /// Returns the whole word, which changes when there is a new request.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Returns the word of an epoch in which nothing is requested.
    #[inline]
    pub(crate) fn quiet(epoch: u64) -> u64 {
        epoch * EPOCH
    }

    /// Returns whether all running tasks should stop, or some of them should return, at their next
    /// `migrate()`.
    #[inline]
    pub(crate) fn interrupts(&self) -> bool {
        self.word() & (STOP | SNAPSHOT) != 0
    }

    /// Returns whether running tasks should stop at their next `migrate()`.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.word() & STOP != 0
    }

    /// Returns whether some running tasks should return briefly.
    #[inline]
    pub(crate) fn snapshot(&self) -> bool {
        self.word() & SNAPSHOT != 0
    }

    pub(crate) fn set_snapshot(&self, snapshot: bool) {
        self.set(SNAPSHOT, snapshot);
    }

    /// Makes every task check again whether it should return, even if it has checked for an earlier request.
    pub(crate) fn announce_snapshot(&self) {
        self.set(SNAPSHOT, true);
        // A task that sees the new word also sees which tasks are meant.
        self.0.fetch_add(EPOCH, Release);
    }

    /// Must be called between reading the word and checking whether a task is meant.
    pub(crate) fn fence_snapshot() {
        fence(Acquire);
    }

    /// Returns the word of an epoch in which only tasks other than the caller's should return, and there is no other
    /// request.
    #[inline]
    pub(crate) fn quiet_but_snapshot(epoch: u64) -> u64 {
        Self::quiet(epoch) | SNAPSHOT
    }

    pub(crate) fn set_stop(&self, stop: bool) {
        self.set(STOP, stop);
    }

    /// Returns whether hungry workers and waiting thieves outnumber the queued tasks.
    #[inline]
    pub(crate) fn split(&self) -> bool {
        self.word() & SPLIT != 0
    }

    pub(crate) fn set_split(&self, split: bool) {
        self.set(SPLIT, split);
    }

    /// The caller holds the queue's lock, so no other thread changes the bit between the test and the update;
    /// the test keeps the word in every core's cache while nothing changes.
    fn set(&self, bit: u64, on: bool) {
        let is_on = self.word() & bit != 0;
        if on && !is_on {
            self.0.fetch_or(bit, Relaxed);
        } else if !on && is_on {
            self.0.fetch_and(!bit, Relaxed);
        }
    }

    /// Returns the epoch, which increases whenever a variable of the node changes.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.word() / EPOCH
    }

    pub(crate) fn next_epoch(&self) {
        self.0.fetch_add(EPOCH, Relaxed);
    }
}

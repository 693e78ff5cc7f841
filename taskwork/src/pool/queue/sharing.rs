//! The queue's side of the [crew](crate::pool::crew): the number of workers, and those that should leave.

use std::sync::atomic::Ordering::Relaxed;

use super::{Gate, Queue, State};
use crate::{
    pool::{Claim, crew::Post, signals::Signals, sync::MutexGuard},
    task::Task,
};

impl<T: Task> Queue<T> {
    /// Releases the lock, and notifies the crew of added tasks if its workers may be in other pools.
    pub(super) fn offer(&self, state: MutexGuard<'_, State<T>>, added: usize) {
        let (shared, first) = (state.shared && state.can_begin(), state.tasks.len() <= added);
        drop(state);
        if shared && let Some(post) = self.post.get() {
            post.offer(first);
        }
    }

    /// Connects the queue to the crew.
    pub(in crate::pool) fn enlist(&self, post: Post) {
        let _ = self.post.set(post);
    }

    pub(in crate::pool) fn set_claim(&self, claim: Claim) {
        if let Some(post) = self.post.get() {
            post.set_claim(claim);
        }
    }

    /// Prevents further workers from coming.
    pub(in crate::pool) fn dismiss(&self) {
        if let Some(post) = self.post.get() {
            post.leave();
        }
    }

    /// Returns the number of tasks that could start now.
    pub(in crate::pool) fn waiting(&self) -> usize {
        let state = self.lock();
        if state.gate == Gate::Open { state.tasks.len() } else { 0 }
    }

    /// Sets the number of workers that could be here, and whether they have other pools to work in. Returns whether
    /// the queue has become hungry.
    pub(in crate::pool) fn allot(&self, slots: usize, shared: bool, signals: &Signals) -> bool {
        let mut state = self.lock();
        if (state.slots, state.shared) == (slots, shared) {
            return false;
        }
        let was_hungry = state.tasks.is_empty() && state.idle() > 0;
        (state.slots, state.shared) = (slots, shared);
        state.signal(signals);
        let is_hungry = state.tasks.is_empty() && state.idle() > 0;
        if shared {
            self.stir();
            drop(state);
            self.wake.notify_all();
        }
        is_hungry && !was_hungry
    }

    /// Asks a worker to leave after its task, or at its next `migrate()`.
    pub(in crate::pool) fn recall(&self, worker: usize, signals: &Signals) {
        let state = self.lock();
        self.recalled[worker].store(true, Relaxed);
        if state.running[worker].is_some() {
            self.interrupted[worker].store(true, Relaxed);
            signals.announce_snapshot();
        }
    }

    /// Cancels the recall of a worker before it comes.
    pub(in crate::pool) fn welcome(&self, worker: usize) {
        self.recalled[worker].store(false, Relaxed);
    }

    pub(in crate::pool) fn is_recalled(&self, worker: usize) -> bool {
        self.recalled[worker].load(Relaxed)
    }
}

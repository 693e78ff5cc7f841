//! The queue's side of stealing: tasks that come from other nodes, and tasks for thieves.

use tokio::time::Instant;

use super::{End, Queue, Queued, Waits};
use crate::{
    figures::Histogram,
    holdings::Basis,
    pool::{Entry, signals::Signals},
    task::Task,
};

impl<T: Task> Queue<T> {
    /// Queues tasks that were requested from another node at the time `asked`; the steal is timed until the
    /// first of them starts. Their basis is open from now on.
    pub(in crate::pool) fn put_stolen(
        &self,
        entries: impl IntoIterator<Item = Entry<T>>,
        basis: Basis,
        asked: Option<Instant>,
        signals: &Signals,
    ) -> bool {
        let mut state = self.lock();
        state.cut.open(basis);
        let (waiting, others): (Vec<Entry<T>>, Vec<Entry<T>>) =
            entries.into_iter().partition(|entry| entry.spawned.awaited().is_some());
        for entry in waiting {
            if !state.cut.is_void(entry.basis) {
                state.let_wait(Queued { waits: Waits::Scope, ..Queued::new(entry) });
            }
        }
        self.put_locked(state, others, End::Back, asked, signals)
    }

    /// Puts tasks back to the front, after they were [taken for a thief](Self::take_for_thief) or for a
    /// cut.
    pub(in crate::pool) fn put_back(&self, kept: Vec<Queued<T>>, signals: &Signals) {
        if kept.is_empty() {
            return;
        }
        let mut state = self.lock();
        let added = kept.len();
        for queued in kept.into_iter().rev() {
            if state.cut.is_void(queued.entry.basis) {
                continue;
            }
            if matches!(queued.waits, Waits::No) {
                state.staying += usize::from(queued.stays());
                state.queue(queued, End::Front);
            } else {
                state.let_wait(queued);
            }
        }
        self.added(added, state, signals);
    }

    pub(in crate::pool) fn steal_times(&self) -> Histogram {
        self.lock().steal_times
    }

    /// Takes up to `tasks_max` tasks for a thief, oldest first, but at most half of the queue unless it has a
    /// single task, so that local workers do not starve. They have one basis. Tasks of known size have at most
    /// `bytes_max` bytes in total, or are a single larger one; tasks that are too large to be
    /// sent remain.
    pub(in crate::pool) fn take_for_thief(
        &self,
        tasks_max: usize,
        bytes_max: usize,
        signals: &Signals,
    ) -> Vec<Queued<T>> {
        let mut state = self.lock();
        let tasks_max = state.tasks.len().div_ceil(2).min(tasks_max);
        let (mut taken, mut bytes, mut passed) = (Vec::<Queued<T>>::new(), 0, 0);
        // Spawned tasks are queued in reverse order.
        let from_back = state.tasks.back().is_some_and(|oldest| oldest.spawned);
        while taken.len() < tasks_max && passed < state.tasks.len() {
            let place = if from_back { state.tasks.len() - 1 - passed } else { passed };
            let Some(next) = state.tasks.get(place) else { break };
            if next.stays() {
                passed += 1;
                continue;
            }
            bytes += next.bytes.unwrap_or(0);
            let basis = taken.first().map_or(next.entry.basis, |first| first.entry.basis);
            if next.entry.basis != basis || (bytes > bytes_max && !taken.is_empty()) {
                break;
            }
            taken.extend(state.tasks.remove(place));
        }
        for queued in &taken {
            state.waiting.left(&queued.entry);
        }
        state.signal(signals);
        taken
    }

    /// Sets the number of thieves that wait at this node; each adds to the demand.
    pub(in crate::pool) fn set_thieves(&self, thieves: usize, signals: &Signals) {
        let mut state = self.lock();
        state.thieves = thieves;
        state.signal(signals);
    }
}

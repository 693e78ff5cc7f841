//! The queue's side of the [cut](crate::pool::cut): the tasks that it contains, and the workers that it waits for.

use std::sync::atomic::Ordering::Relaxed;

use super::{Interruption, Judgement, Queue, Queued, State, Waiting, Waits};
use crate::{
    holdings::Basis,
    id::TaskId,
    pool::{
        cut::{Seal, Sealed, Standing},
        signals::Signals,
    },
    task::Task,
};

impl<T: Task> Queue<T> {
    /// Starts a cut in which these bases count, and takes out the queued tasks to encode for it.
    /// Without a [ledger](crate::Limits::ledger_interval_ms), only completions count.
    pub(in crate::pool) fn begin_cut(
        &self,
        firm: &[Basis],
        ledger: bool,
        signals: &Signals,
    ) -> Vec<Queued<T>> {
        let mut state = self.lock();
        state.cut.begin(firm);
        if !ledger {
            let untried: Vec<TaskId> = state.untried().collect();
            for task in untried {
                state.cut.note_untried(task);
            }
            // Tasks are not written.
            let State { running, cut, tasks, waiting, .. } = &mut *state;
            if !tasks.is_empty() || waiting.len() > 0 || running.iter().any(Option::is_some) {
                cut.add(None);
            }
            return Vec::new();
        }
        let State { running, cut, .. } = &mut *state;
        for (worker, basis) in running.iter().enumerate() {
            if basis.is_some_and(|basis| cut.counts(basis)) {
                cut.awaits_now(worker);
                self.interrupted[worker].store(true, Relaxed);
            }
        }
        if cut.awaits_any() {
            signals.announce_snapshot();
        }
        let tasks = std::mem::take(&mut state.tasks);
        let (counting, others) = tasks.into_iter().partition(|queued| state.cut.counts(queued.entry.basis));
        state.tasks = others;
        state.staying = state.tasks.iter().filter(|queued| queued.stays()).count();
        let State { cut, waiting, .. } = &mut *state;
        let mut counting = Vec::from(counting);
        counting.extend(waiting.take(|basis| cut.counts(basis)));
        state.signal(signals);
        counting
    }

    /// Adds queued tasks to the cut, and puts them back. Returns whether the cut is collected.
    pub(in crate::pool) fn sealed(&self, sealed: Vec<(Queued<T>, Seal)>, signals: &Signals) -> bool {
        let mut state = self.lock();
        let mut kept = Vec::with_capacity(sealed.len());
        for (queued, seal) in sealed {
            state.cut.add(seal);
            match queued.waits {
                Waits::Outside(_) => state.cut.note_waiting_outside(queued.entry.id),
                Waits::Trial => state.cut.note_untried(queued.entry.id),
                Waits::No | Waits::Scope => {}
            }
            kept.push(queued);
        }
        drop(state);
        self.put_back(kept, signals);
        let mut state = self.lock();
        state.cut.sealed_queue();
        state.cut.is_collected()
    }

    /// Returns whether a worker's task should return briefly.
    pub(in crate::pool) fn is_interrupted(&self, worker: usize) -> bool {
        self.interrupted[worker].load(Relaxed)
    }

    /// Returns the number of the current cut, and the workers that have not reached their points yet.
    pub(in crate::pool) fn awaited(&self) -> (u64, Vec<usize>) {
        self.lock().cut.awaited()
    }

    pub(in crate::pool) fn interruption(
        &self,
        worker: usize,
        basis: Basis,
        signals: &Signals,
    ) -> Interruption {
        let state = self.lock();
        self.interrupted[worker].store(false, Relaxed);
        self.signal_interrupts(signals);
        if state.cut.is_void(basis) {
            Interruption::Drop
        } else if state.cut.awaits(worker) {
            Interruption::Seal
        } else {
            Interruption::GoOn
        }
    }

    /// Adds a running task to the cut: its worker's point. Returns whether the cut is collected.
    pub(in crate::pool) fn pass(&self, worker: usize, sealed: Seal) -> bool {
        let mut state = self.lock();
        if state.cut.awaits(worker) {
            state.cut.add(sealed);
        }
        state.cut.pass(worker)
    }

    /// Records that a worker has no task, which passes its point of a cut. Returns whether that completes the
    /// collection of the cut.
    pub(super) fn rest(&self, state: &mut State<T>, worker: usize, signals: &Signals) -> bool {
        state.busy -= usize::from(state.running[worker].take().is_some());
        if self.interrupted[worker].swap(false, Relaxed) {
            self.signal_interrupts(signals);
        }
        if self.yields[worker].load(Relaxed) {
            self.yields[worker].store(false, Relaxed);
        }
        state.cut.pass(worker)
    }

    /// Must be called under the lock.
    pub(super) fn signal_interrupts(&self, signals: &Signals) {
        signals.set_snapshot(self.interrupted.iter().any(|interrupted| interrupted.load(Relaxed)));
    }

    /// Returns the cut in which a completion of a worker counts.
    pub(in crate::pool) fn standing(&self, worker: usize, basis: Basis) -> Standing {
        self.lock().cut.standing(worker, basis)
    }

    /// Returns whether completions on this basis belong to the node, or never will.
    pub(in crate::pool) fn judge(&self, basis: Basis) -> Judgement {
        let state = self.lock();
        if state.cut.is_void(basis) {
            Judgement::Void
        } else if state.cut.counts(basis) {
            Judgement::Firm
        } else {
            Judgement::Tentative
        }
    }

    /// Returns whether a cut is collected and not finished yet.
    pub(in crate::pool) fn cut_is_collected(&self) -> bool {
        self.lock().cut.is_collected()
    }

    pub(in crate::pool) fn finish_cut(&self) -> Option<(u64, Sealed)> {
        self.lock().cut.finish()
    }

    /// Drops queued tasks on these bases, and interrupts running ones.
    pub(in crate::pool) fn void(&self, bases: &[Basis], signals: &Signals) {
        let mut state = self.lock();
        state.cut.void(bases);
        state.tasks.retain(|queued| !bases.contains(&queued.entry.basis));
        state.waiting.void(bases);
        state.staying = state.tasks.iter().filter(|queued| queued.stays()).count();
        for (worker, basis) in state.running.iter().enumerate() {
            if basis.is_some_and(|basis| bases.contains(&basis)) {
                self.interrupted[worker].store(true, Relaxed);
                signals.announce_snapshot();
            }
        }
        state.signal(signals);
    }

    /// Forgets the bases and the cut of a previous attempt. No task may run during that.
    pub(in crate::pool) fn reset(&self, signals: &Signals) {
        let mut state = self.lock();
        state.cut.reset();
        state.waiting = Waiting::default();
        for interrupted in &self.interrupted {
            interrupted.store(false, Relaxed);
        }
        self.signal_interrupts(signals);
    }
}

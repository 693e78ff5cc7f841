//! A pool worked in slices of virtual time instead of by threads: the queue, the ledger, the
//! variables and the contexts are the production ones, and only the scheduling differs.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    Claim, Entry, Pool, PoolFault, PoolView, Signals, VariableTable, Work, Workplace,
    batches::Taken,
    crew::{Post, Stint},
    queue::Next,
    work::{Merging, merge_shown},
    worker::Searched,
};
use crate::{
    companion::{Run, Stage},
    core::Cut,
    envelope::Envelope,
    figures::Figures,
    holdings::Basis,
    id::{NodeId, TaskId},
    outlook::Outlook,
    scope::{Mark, Scope},
    task::{Outcome, Task},
};

/// Determines the duration of tasks.
pub trait Pace: Send + Sync + 'static {
    /// Waits until a worker of the node may run its next slice.
    fn slice(&self, node: NodeId) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Runs a slice of a task of the job with this number: calls `run` once. The task's search then returns
    /// [`Outcome::Migrate`] at the end of the slice, without a request.
    fn work(&self, node: NodeId, job: u64, run: &mut dyn FnMut());
}

/// A pool whose workers are tasks on the runtime with virtual time.
pub(crate) struct Slices<T: Task> {
    pool: Pool<T>,
    job: u64,
    pace: Arc<dyn Pace>,
    /// Notified when waiting workers should look again.
    look: Notify,
}

impl<T: Task> Slices<T> {
    pub(crate) fn new(pool: Pool<T>, job: u64, pace: Arc<dyn Pace>) -> Self {
        Self { pool, job, pace, look: Notify::new() }
    }

    async fn work(self: Arc<Self>, worker: usize) {
        let (mut begun, mut waits) = (None, false);
        loop {
            let entry = if let Some(entry) = begun.take() {
                entry
            } else {
                let hungry = || self.pool.notify_changed();
                match self.pool.queue.try_next(worker, &self.pool.signals, &mut waits, hungry) {
                    Next::Leave => return,
                    Next::Task(entry) => entry,
                    Next::Nothing => {
                        self.look.notified().await;
                        continue;
                    }
                }
            };
            self.pace.slice(self.pool.node).await;
            let mut entry = Some(entry);
            self.pace.work(self.pool.node, self.job, &mut || {
                begun = entry.take().and_then(|entry| self.slice(entry, worker));
            });
            // Waiting workers may take tasks that were split off or put back.
            self.look.notify_waiters();
        }
    }

    /// Runs a task for a slice; returns it if it should continue.
    fn slice(&self, mut entry: Entry<T>, worker: usize) -> Option<Entry<T>> {
        // The interruption of a task takes microseconds, far less than a slice.
        if self.pool.is_interrupted(worker) {
            let Some(same) = self.pool.handle_interruption(worker, entry) else {
                self.pool.runs(worker, None);
                return None;
            };
            entry = same;
        }
        match self.pool.search(entry, worker) {
            Searched { outcome: Ok(Outcome::Migrate), finished, crashes, task }
                if !finished.requested.stop =>
            {
                let entry = finished.part.stopped(crashes.polled(Instant::now()), task);
                // After the slice: otherwise a quantum shorter than a slice would allow no progress.
                let goes_on = self.pool.yield_if_asked(worker, entry);
                if goes_on.is_none() {
                    self.pool.runs(worker, None);
                }
                goes_on
            }
            searched => {
                let again = self.pool.conclude(searched, worker);
                if again.is_none() {
                    self.pool.runs(worker, None);
                }
                again
            }
        }
    }
}

impl<T: Task> Workplace for Slices<T> {
    fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    fn allot(&self, slots: usize, shared: bool) {
        self.pool.allot(slots, shared);
        // Waiting workers may leave.
        self.look.notify_waiters();
    }

    fn recall(&self, worker: usize, for_task: bool) {
        self.pool.recall(worker, for_task);
    }

    fn welcome(&self, worker: usize) {
        self.pool.welcome(worker);
    }

    fn stint(self: Arc<Self>, worker: usize) -> Stint {
        Stint::Sliced(Box::pin(self.work(worker)))
    }

    fn enlist(&self, post: Post) {
        self.pool.enlist(post);
    }

    fn set_claim(&self, claim: Claim) {
        self.pool.set_claim(claim);
    }
}

impl<T: Task> Work for Slices<T> {
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Work::changed(&self.pool)
    }

    fn view(&self) -> PoolView {
        self.pool.view()
    }

    fn fault(&self) -> Option<PoolFault> {
        self.pool.fault()
    }

    fn figures(&self) -> Figures {
        Work::figures(&self.pool)
    }

    fn outlook(&self) -> Outlook {
        Work::outlook(&self.pool)
    }

    fn running(&self) -> Vec<TaskId> {
        self.pool.running()
    }

    fn awaited(&self) -> (u64, Vec<TaskId>) {
        self.pool.awaited()
    }

    fn signals(&self) -> &Signals {
        self.pool.signals()
    }

    fn variables(&self) -> &VariableTable {
        self.pool.variables()
    }

    fn put(&self, envelopes: Vec<Envelope>, basis: Basis, asked: Option<Instant>) -> Result<(), PoolFault> {
        let done = Work::put(&self.pool, envelopes, basis, asked);
        self.look.notify_waiters();
        done
    }

    fn take(&self, tasks_max: usize, bytes_max: usize) -> Result<(Basis, Vec<Envelope>), PoolFault> {
        let taken = Work::take(&self.pool, tasks_max, bytes_max);
        // Tasks that do not fit are put back.
        self.look.notify_waiters();
        taken
    }

    fn awaited_scopes(&self) -> Vec<(Mark, Scope)> {
        self.pool.awaited_scopes()
    }

    fn wake(&self, scopes: &[Scope]) {
        self.pool.wake(scopes);
        self.look.notify_waiters();
    }

    fn wake_rung(&self) {
        self.pool.wake_rung();
        self.look.notify_waiters();
    }

    fn begin_trial(&self, task: TaskId) {
        self.pool.begin_trial(task);
        self.look.notify_waiters();
    }

    fn set_thieves(&self, thieves: usize) {
        self.pool.set_thieves(thieves);
    }

    fn stop(&self) {
        self.pool.stop();
    }

    fn resume(&self) {
        self.pool.resume();
        self.look.notify_waiters();
    }

    fn unload(&self) -> Result<Vec<(Basis, Envelope)>, PoolFault> {
        self.pool.unload()
    }

    fn discard(&self) {
        self.pool.discard();
    }

    fn begin_cut(&self, firm: &[Basis]) -> Result<(), PoolFault> {
        let begun = self.pool.begin_cut(firm);
        // Queued tasks are put back.
        self.look.notify_waiters();
        begun
    }

    fn ready_cut(self: Arc<Self>) -> Result<Option<Cut>, PoolFault> {
        let pool = &self.pool;
        loop {
            match pool.batches.take(&pool.queue) {
                // A task that has panicked would be missing in the cut.
                Taken::Cut(_) if pool.fault().is_some() => return Ok(None),
                Taken::Cut(cut) => return cut.map(Some),
                Taken::Later => return Ok(None),
                // Immediately and on this thread: another thread would not use the run's virtual time.
                Taken::Merges => pool.batches.merge(&pool.queue),
            }
        }
    }

    fn void(&self, bases: &[Basis]) {
        self.pool.void(bases);
    }

    fn merge(self: Arc<Self>, outputs: Vec<Vec<u8>>, show: bool) -> Merging {
        // Immediately and on this thread: another thread would not use the run's virtual time.
        Box::pin(ready(merge_shown::<T::Output>(&outputs, show)))
    }

    fn suggest(&self, given: serde_json::Value) -> Result<(bool, String), String> {
        self.pool.suggest(given)
    }

    fn companion(&self) -> Option<(Run, Stage)> {
        Some((self.pool.companion()?.0, Stage::Here))
    }

    fn close(&self) {
        self.pool.close();
        self.look.notify_waiters();
    }
}

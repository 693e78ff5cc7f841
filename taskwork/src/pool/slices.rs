//! A pool that is worked in slices of virtual time instead of by threads: the queue, the ledger, the variables and the contexts
//! are the real ones, only who calls them, and when, is decided elsewhere.

use std::{future::Future, pin::Pin, sync::Arc};

use tokio::{sync::Notify, time::Instant};

use super::{
    Batch, Entry, Pool, PoolFault, PoolView, Signals, VariableTable, Work, queue::Next, worker::Searched,
};
use crate::{
    context::Finished,
    envelope::Envelope,
    figures::Figures,
    id::NodeId,
    outlook::Outlook,
    task::{Outcome, Task},
};

/// Decides about the time that tasks take.
pub trait Pace: Send + Sync + 'static {
    /// Passes when a worker of the node may do its next slice.
    fn slice(&self, node: NodeId) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Does a slice: calls `run` once. A task's search then returns [`Outcome::Migrate`] at the end of the slice, without
    /// having been told to.
    fn work(&self, node: NodeId, run: &mut dyn FnMut());
}

/// A pool whose workers are loops on the runtime that has the virtual time.
pub(crate) struct Slices<T: Task> {
    pool: Pool<T>,
    pace: Arc<dyn Pace>,
    /// Workers that wait look again.
    look: Notify,
}

impl<T: Task> Slices<T> {
    /// Starts as many workers as the pool was made for. They end with the pool.
    pub(crate) fn start(pool: Pool<T>, pace: Arc<dyn Pace>) -> Arc<Self> {
        let slices = Arc::new(Self { pool, pace, look: Notify::new() });
        for worker in 0..slices.pool.worked.len() {
            tokio::spawn(Arc::clone(&slices).keep_working(worker));
        }
        slices
    }

    async fn keep_working(self: Arc<Self>, worker: usize) {
        let (mut begun, mut waits) = (None, false);
        loop {
            let entry = if let Some(entry) = begun.take() {
                entry
            } else {
                let hungry = || self.pool.notify_changed();
                match self.pool.queue.try_next(&self.pool.signals, &mut waits, hungry) {
                    Next::Closed => return,
                    Next::Task(entry) => entry,
                    Next::Nothing => {
                        self.look.notified().await;
                        continue;
                    }
                }
            };
            self.pace.slice(self.pool.node).await;
            let mut entry = Some(entry);
            self.pace.work(self.pool.node, &mut || {
                begun = entry.take().and_then(|entry| self.slice(entry, worker));
            });
            // What was split off, or put back, is for whoever waits.
            self.look.notify_waiters();
        }
    }

    /// Runs a task for a slice; gives it back if it is to go on.
    fn slice(&self, entry: Entry<T>, worker: usize) -> Option<Entry<T>> {
        match self.pool.search(entry, worker) {
            Searched { outcome: Ok(Outcome::Migrate), finished, task } if !finished.told_to_stop => {
                let Finished { id, children, output, .. } = finished;
                Some(Entry { id, children, output, task })
            }
            searched => {
                self.pool.conclude(searched);
                None
            }
        }
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

    fn signals(&self) -> &Signals {
        self.pool.signals()
    }

    fn variables(&self) -> &VariableTable {
        self.pool.variables()
    }

    fn put(&self, envelopes: Vec<Envelope>, asked: Option<Instant>) -> Result<(), PoolFault> {
        let done = Work::put(&self.pool, envelopes, asked);
        self.look.notify_waiters();
        done
    }

    fn take(&self, tasks_max: usize, bytes_max: usize) -> Result<Vec<Envelope>, PoolFault> {
        let taken = Work::take(&self.pool, tasks_max, bytes_max);
        // What does not fit is put back.
        self.look.notify_waiters();
        taken
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

    fn unload(&self) -> Result<Vec<Envelope>, PoolFault> {
        self.pool.unload()
    }

    fn discard(&self) {
        self.pool.discard();
    }

    fn take_batch(&self) -> Result<Batch, PoolFault> {
        self.pool.take_batch()
    }

    fn merge(&self, outputs: &[Vec<u8>], show: bool) -> Result<(Vec<u8>, serde_json::Value), PoolFault> {
        self.pool.merge(outputs, show)
    }

    fn suggest(&self, given: serde_json::Value) -> Result<(bool, String), String> {
        self.pool.suggest(given)
    }

    fn close(&self) {
        self.pool.close();
        self.look.notify_waiters();
    }
}

//! The local task pool: shared memory and threads, no network.
//!
//! ```text
//!   worker   worker   worker        search: a task runs until it is complete or told to stop
//!     │  ▲     │  ▲     │  ▲
//!     │  └──┬──┘  └──┬──┘  │         potential split: one load of `demand`; positive → split, put
//!     ▼     │        │     ▼
//!   ledger  └ queue ─┘  variables    each behind a lock of its own, none held while a task is searched
//!     │         │           │
//!     └─────────┴─ Work ────┘        what the shell sees, whatever the program
//! ```
//!
//! A local split never leaves this module: the child goes into the queue and a hungry worker takes it. The rest of the node
//! hears only that something has changed ([`Work::changed`]), and looks.

mod signals;
mod queue;
mod worker;
#[cfg(feature = "simulation")]
mod slices;
mod ledger;
mod variables;
mod work;
mod sync;
#[cfg(test)]
mod stress;
#[cfg(all(test, feature = "loom"))]
mod interleavings;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

#[cfg(feature = "simulation")]
pub use self::slices::Pace;
#[cfg(feature = "simulation")]
pub(crate) use self::slices::Slices;
use self::{ledger::Ledger, queue::Queue};
pub(crate) use self::{
    signals::Signals,
    variables::{Source, Unpublished, VariableTable},
    work::{Batch, PoolFault, PoolView, Work, merge},
    worker::Workers,
};
use crate::{
    config::Limits,
    envelope::Envelope,
    figures::{Counter, Figures},
    id::{NodeId, TaskId},
    outlook::{AtWork, Outlook},
    task::{Task, Variables},
    wire::codec::{self, DecodeError, EncodeError},
};

/// A task with what belongs to it but is the runtime's.
pub(crate) struct Entry<T: Task> {
    pub(crate) id: TaskId,
    pub(crate) children: Vec<TaskId>,
    pub(crate) output: T::Output,
    pub(crate) task: T,
}

/// The pool of one node for one job.
pub(crate) struct Pool<T: Task> {
    pub(crate) node: NodeId,
    pub(crate) shared: Arc<T::Shared>,
    pub(crate) signals: Signals,
    pub(crate) variables: VariableTable,
    pub(crate) limits: PoolLimits,
    queue: Queue<T>,
    ledger: Mutex<Ledger<T::Output>>,
    fault: Mutex<Option<PoolFault>>,
    tasks_made: AtomicU64,
    /// Units of work, a counter for each worker.
    worked: Vec<Counter>,
    /// Those of attempts before the present one.
    worked_earlier: Counter,
    /// Shares of the whole that are done, likewise, of the present attempt.
    done: Vec<Counter>,
    /// What the task of each worker may still hold.
    at_work: Vec<AtWork>,
    completed: Counter,
    splits: Counter,
    changed: Notify,
}

impl<T: Task> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("node", &self.node)
            .field("queue", &self.queue.view())
            .finish_non_exhaustive()
    }
}

/// The limits that the pool itself keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    pub(crate) task_children_max: usize,
    pub(crate) batch_ids_commit: usize,
}

impl PoolLimits {
    pub(crate) fn of(limits: &Limits) -> Self {
        let Limits { task_children_max, batch_ids_commit, .. } = *limits;
        Self { task_children_max, batch_ids_commit }
    }
}

impl<T: Task> Pool<T> {
    pub(crate) fn new(node: NodeId, shared: Arc<T::Shared>, workers: usize, limits: PoolLimits) -> Self {
        let mut variables = Variables::default();
        T::variables(&mut variables);
        Self {
            node,
            shared,
            signals: Signals::default(),
            variables: VariableTable::new(variables),
            limits,
            queue: Queue::new(workers),
            ledger: Mutex::default(),
            fault: Mutex::default(),
            tasks_made: AtomicU64::new(0),
            worked: (0..workers).map(|_| Counter::default()).collect(),
            worked_earlier: Counter::default(),
            done: (0..workers).map(|_| Counter::default()).collect(),
            at_work: (0..workers).map(|_| AtWork::default()).collect(),
            completed: Counter::default(),
            splits: Counter::default(),
            changed: Notify::new(),
        }
    }

    /// A task id that this node has never given.
    pub(crate) fn new_id(&self) -> TaskId {
        TaskId { node: self.node, number: self.tasks_made.fetch_add(1, Relaxed) }
    }

    /// Puts a task that was just split off where the hungry will find it.
    pub(crate) fn put_split(&self, entry: Entry<T>) {
        self.splits.add(1);
        if self.queue.put([entry], &self.signals) {
            self.changed.notify_one();
        }
    }

    /// Notes a completed task, and says so if the batch has grown enough to be committed.
    pub(crate) fn complete(&self, id: TaskId, children: &[TaskId], output: T::Output) {
        let mut ledger = lock(&self.ledger);
        ledger.complete(id, children, output);
        let full = ledger.ids() >= self.limits.batch_ids_commit;
        drop(ledger);
        self.completed.add(1);
        if full {
            self.changed.notify_one();
        }
    }

    pub(crate) fn worked(&self, worker: usize) -> &Counter {
        &self.worked[worker]
    }

    pub(crate) fn worked_here(&self) -> u64 {
        self.worked.iter().map(Counter::get).sum()
    }

    pub(crate) fn done(&self, worker: usize) -> &Counter {
        &self.done[worker]
    }

    pub(crate) fn at_work(&self, worker: usize) -> &AtWork {
        &self.at_work[worker]
    }

    /// What may still be found here. A worker between two tasks, of which one may be neither queued nor begun, hides it.
    fn outlook(&self) -> Outlook {
        let (busy, mut outlook) = self.queue.outlook();
        let at_work: Vec<Outlook> = self.at_work.iter().filter_map(AtWork::get).collect();
        if at_work.len() < busy {
            return Outlook::Unknown;
        }
        for one in at_work {
            outlook += one;
        }
        outlook
    }

    pub(crate) fn notify_changed(&self) {
        self.changed.notify_one();
    }

    fn fail(&self, fault: PoolFault) {
        lock(&self.fault).get_or_insert(fault);
        self.changed.notify_one();
    }

    fn figures(&self) -> Figures {
        Figures {
            worked: self.worked_here(),
            worked_earlier: self.worked_earlier.get(),
            done_attos: self.done.iter().map(Counter::get).fold(0, u64::saturating_add),
            tasks: self.completed.get(),
            splits: self.splits.get(),
            steal_times: self.queue.steal_times(),
            ..Figures::default()
        }
    }
}

impl<T: Task> Entry<T> {
    pub(crate) fn new(id: TaskId, task: T) -> Self {
        Self { id, children: Vec::new(), output: T::Output::default(), task }
    }

    /// Packs the task for its way to another node.
    pub(crate) fn seal(&self) -> Result<Envelope, EncodeError> {
        Ok(Envelope {
            id: self.id,
            children: self.children.clone(),
            output: codec::encode(&self.output)?,
            task: codec::encode(&self.task)?,
        })
    }

    /// Unpacks a task that came from elsewhere.
    pub(crate) fn open(envelope: Envelope) -> Result<Self, DecodeError> {
        Ok(Self {
            id: envelope.id,
            children: envelope.children,
            output: codec::decode(&envelope.output)?,
            task: codec::decode(&envelope.task)?,
        })
    }
}

/// Locks; a lock left by a panic is taken as it is. Only the program's own code (`merge`, `improves`) can panic under
/// these locks, and a panic there fails the job, so what it left behind is never reported.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

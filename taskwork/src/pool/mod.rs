//! The local task pool: shared memory and threads, no network.
//!
//! ```text
//!   worker   worker   worker        search: a task runs until it is complete or asked to stop
//!     │  ▲     │  ▲     │  ▲
//!     │  └──┬──┘  └──┬──┘  │         potential split: one load of the signals; if wanted → split, put
//!     ▼     │        │     ▼
//!   ledger  └ queue ─┘  variables    each behind a separate lock, none held while a task is searched
//!     │         │           │
//!     └─────────┴─ Work ────┘        the shell's type-erased interface
//! ```
//!
//! The workers belong to the node's [crew](crew), and work in the pools of all its jobs.
//!
//! A local split never leaves this module: the child goes into the queue and a hungry worker takes it. The
//! rest of the node is only notified of a change ([`Work::changed`]), and then reads the state of the pool.

mod signals;
mod places;
mod queue;
mod cut;
mod crashes;
mod lineage;
mod worker;
mod crew;
mod shares;
mod slices;
mod times;
mod ledger;
mod batches;
mod variables;
mod wakers;
mod work;
pub(crate) mod check;
mod sync;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod waiting_tests;
#[cfg(test)]
mod waking_tests;
#[cfg(all(test, feature = "loom"))]
mod interleavings;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use self::{
    batches::Batches,
    cut::Seal,
    queue::{End, Queue, Waits},
    times::{Doing, Times},
    wakers::WakeUps,
};
pub(crate) use self::{
    crashes::Crashes,
    crew::{Crew, Workers, Workplace},
    lineage::Lineage,
    places::Places,
    shares::Claim,
    signals::Signals,
    slices::Slices,
    variables::{Source, Unpublished, VariableTable},
    work::{Merged, PoolFault, Work, merge},
};
pub use self::{slices::Pace, wakers::Waker};
use crate::{
    companion::{Companion, Handle, Run},
    config::Limits,
    context::Hunger,
    core::PoolView,
    envelope::{Envelope, TASK_BYTES_MAX},
    figures::{Counter, Figures},
    holdings::Basis,
    id::{NodeId, TaskId},
    outlook::{AtWork, Outlook},
    scope::{Completed, Scope, Spawned},
    steps,
    task::Task,
    variable::Variables,
    wire::codec::{self, DecodeError, EncodeError},
};

/// A task with the runtime's data about it.
pub(crate) struct Entry<T: Task> {
    pub(crate) id: TaskId,
    pub(crate) scope: Option<Scope>,
    pub(crate) children: Vec<TaskId>,
    pub(crate) spawned: Spawned,
    pub(crate) crashes: Crashes,
    pub(crate) output: T::Output,
    /// The task's outlook when it was queued: it does not change while the task is queued, and the program's code
    /// is not called under a lock.
    pub(crate) outlook: Option<f64>,
    /// The task's [order](crate::Hooks::order) when it was queued.
    pub(crate) order: u64,
    /// The basis on which it belongs to this node.
    pub(crate) basis: Basis,
    pub(crate) lineage: Lineage,
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
    batches: Batches<T::Output>,
    /// Whether a thread merges outputs for a cut.
    merging: AtomicBool,
    fault: Mutex<Option<PoolFault>>,
    tasks_made: Arc<AtomicU64>,
    /// The part of the companion that tasks can access, if there is one.
    pub(crate) companion: Option<Handle>,
    /// The companion itself, until it is started.
    unstarted: Mutex<Option<Run>>,
    /// Units of work, one counter per worker.
    worked: Vec<Counter>,
    /// Units of work done in earlier attempts.
    worked_earlier: Counter,
    /// Shares of the whole job done in the current attempt, one counter per worker.
    done: Vec<Counter>,
    /// The outlook of each worker's task.
    at_work: Vec<AtWork>,
    /// The outlook of the work that was left in tasks that have completed.
    left_open: Mutex<Outlook>,
    /// The task of each worker. Each lock is taken when its worker's task begins, ends or is renewed.
    running: Vec<Mutex<Option<TaskId>>>,
    completed: Counter,
    splits: Counter,
    times: Times,
    wake_ups: Arc<WakeUps>,
    /// The polls that interrupt a task, if its job is checked.
    pub(crate) interrupts: Option<check::Interrupts>,
}

impl<T: Task> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("node", &self.node)
            .field("queue", &self.queue.view())
            .finish_non_exhaustive()
    }
}

/// The limits that the pool itself enforces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    pub(crate) task_children_max: usize,
    pub(crate) batch_ids_commit: usize,
    pub(crate) spawned_tasks_max: usize,
    /// The number of consecutive nodes lost with a task after which the task is set aside; 0 for no limit.
    pub(crate) crashes_max: u32,
    /// Whether the node's tasks are written to ZooKeeper periodically; if not, only completions are.
    pub(crate) ledger: bool,
    /// The size of the tasks of a cut beyond which further queued tasks need not be in it, in bytes.
    pub(crate) ledger_bytes_max: usize,
}

/// The maximum number of children of a task, independent of the limits.
const CHILDREN_MAX: usize = 500;

impl PoolLimits {
    pub(crate) fn of(limits: &Limits) -> Self {
        let Limits { task_children_max, batch_ids_commit, ledger_interval_ms, spawned_tasks_max, .. } =
            *limits;
        Self {
            task_children_max: task_children_max.min(CHILDREN_MAX),
            batch_ids_commit,
            spawned_tasks_max,
            crashes_max: limits.crashes_max,
            ledger: ledger_interval_ms > 0,
            ledger_bytes_max: limits.ledger_bytes(),
        }
    }
}

impl<T: Task> Pool<T> {
    pub(crate) fn new(node: NodeId, shared: Arc<T::Shared>, workers: usize, limits: PoolLimits) -> Self {
        let mut variables = Variables::default();
        T::variables(&mut variables);
        let (companion, unstarted) =
            (T::HOOKS.companion)(&shared).map(|Companion { handle, run }| (handle, run)).unzip();
        Self {
            node,
            shared,
            signals: Signals::default(),
            variables: VariableTable::new(variables),
            limits,
            queue: Queue::new(workers, limits.crashes_max),
            batches: Batches::default(),
            merging: AtomicBool::new(false),
            fault: Mutex::default(),
            tasks_made: Arc::default(),
            companion,
            unstarted: Mutex::new(unstarted),
            worked: (0..workers).map(|_| Counter::default()).collect(),
            worked_earlier: Counter::default(),
            done: (0..workers).map(|_| Counter::default()).collect(),
            at_work: (0..workers).map(|_| AtWork::default()).collect(),
            left_open: Mutex::default(),
            running: (0..workers).map(|_| Mutex::default()).collect(),
            completed: Counter::default(),
            splits: Counter::default(),
            times: Times::new(workers),
            wake_ups: Arc::default(),
            interrupts: None,
        }
    }

    /// Takes the ids of new tasks from this counter of the node, so that no id is used twice.
    pub(crate) fn numbered(self, tasks_made: Arc<AtomicU64>) -> Self {
        Self { tasks_made, ..self }
    }

    /// Returns a task id that this node has never used.
    pub(crate) fn new_id(&self) -> TaskId {
        TaskId { node: self.node, number: self.tasks_made.fetch_add(1, Relaxed) }
    }

    pub(crate) fn put_split(&self, worker: usize, entry: Entry<T>) {
        self.splits.add(1);
        self.put_by(worker, entry, End::Back);
    }

    /// Queues a task just spawned by a worker's task. Returns whether there are so many that the worker's
    /// task is asked to let them start first.
    pub(crate) fn put_spawned(&self, worker: usize, entry: Entry<T>) -> bool {
        self.put_by(worker, entry, End::Spawned);
        self.queue.is_crowded(worker, self.limits.spawned_tasks_max, &self.signals)
    }

    /// Fails the job because a task spawns without limit.
    pub(crate) fn fail_spawner(&self, task: TaskId) {
        self.fail(PoolFault::TooManySpawned { task, max: self.limits.spawned_tasks_max });
    }

    /// Fails the job because a task has found an error in the program.
    pub(crate) fn fail_mistaken(&self, task: TaskId, reason: String) {
        self.fail(PoolFault::Mistake { task, reason });
    }

    /// Opens a scope for the tasks that a task with this basis spawns.
    pub(crate) fn open_scope(&self, basis: Basis) -> Scope {
        let scope = Scope(self.new_id());
        self.queue.open_scope(scope, basis);
        scope
    }

    /// Returns a waker for one wait of a task.
    pub(crate) fn waker(&self, task: TaskId) -> Waker {
        self.wake_ups.waker(task)
    }

    /// Queues a task of a worker.
    fn put_by(&self, worker: usize, entry: Entry<T>, end: End) {
        let put = self.queue.put_by(worker, entry, end, None, &self.signals).or_else(|entry| {
            // The entry may be part of the cut that is being taken.
            let sealed = self.seal_for_cut(&entry);
            self.queue.put_by(worker, *entry, end, Some(sealed), &self.signals)
        });
        if matches!(put, Ok(true)) {
            steps::split();
            self.notify_changed();
        }
    }

    /// Makes a worker's task wait. `named` are the tasks that it has spawned in the scope that it waits for; none if it
    /// waits for an external event.
    fn wait_by(&self, worker: usize, entry: Entry<T>, waits: Waits, named: &[TaskId]) {
        let again = waits.clone();
        let waiting =
            self.queue.wait_by(worker, (entry, waits), named, None, &self.signals).or_else(|entry| {
                let sealed = self.seal_for_cut(&entry);
                self.queue.wait_by(worker, (*entry, again), named, Some(sealed), &self.signals)
            });
        if matches!(waiting, Ok(true)) {
            self.notify_changed();
        }
    }

    /// Seals a task for a cut; `None` if it is too large. A task that cannot be encoded fails the job.
    fn seal_for_cut(&self, entry: &Entry<T>) -> Seal {
        match catch_unwind(AssertUnwindSafe(|| entry.seal())) {
            Ok(Ok(envelope)) => Some(envelope),
            Ok(Err(EncodeError::TooLarge { .. })) => None,
            Ok(Err(error)) => {
                self.fail(PoolFault::Unsendable { task: entry.id, reason: error.to_string() });
                None
            }
            Err(panic) => {
                self.fail(PoolFault::panicked(entry.id, entry.lineage.clone(), &*panic));
                None
            }
        }
    }

    /// Returns whether a worker's task is asked to return.
    pub(crate) fn is_interrupted(&self, worker: usize) -> bool {
        Signals::fence_snapshot();
        self.queue.is_interrupted(worker)
    }

    /// Records the completion of a worker's task. Notifies the driver (`shell/driver.rs`) if it waits for a cut that is
    /// now finished, if it must act on a task that waited for this one, or if the batch is large enough to commit.
    pub(crate) fn complete(&self, worker: usize, basis: Basis, completed: &Completed<'_>, output: T::Output) {
        let standing = || self.queue.standing(worker, basis);
        let waited_for = self.batches.complete(&self.queue, standing, completed, output);
        self.completed.add(1);
        let woken = completed.scope.is_some() && self.queue.note_completed(basis, completed, &self.signals);
        if woken || waited_for || self.batches.ids() >= self.limits.batch_ids_commit {
            self.notify_changed();
        }
    }

    /// Returns the demand for more tasks than are queued, if there is one.
    pub(crate) fn hunger(&self) -> Option<Hunger> {
        self.queue.hunger()
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

    /// Records the task that a worker runs now.
    pub(crate) fn runs(&self, worker: usize, task: Option<TaskId>) {
        *lock(&self.running[worker]) = task;
        if task.is_none() {
            self.times.note(worker, Doing::Looking);
        }
    }

    /// Records the outlook of work that is left in a task that is about to complete.
    pub(crate) fn leave_open(&self, outlook: Option<f64>) {
        lock(&self.left_open).merge_best(Outlook::from_number(outlook));
    }

    /// Returns the outlook of all tasks here; unknown while a worker is between two tasks, because its task
    /// may be neither queued nor running.
    fn outlook(&self) -> Outlook {
        let (busy, mut outlook) = self.queue.outlook();
        let at_work: Vec<Outlook> = self.at_work.iter().filter_map(AtWork::get).collect();
        if at_work.len() < busy {
            return Outlook::Unknown;
        }
        for one in at_work {
            outlook.merge_best(one);
        }
        outlook.merge_best(*lock(&self.left_open));
        outlook
    }

    pub(crate) fn notify_changed(&self) {
        self.wake_ups.changed.notify_one();
    }

    fn fail(&self, fault: PoolFault) {
        lock(&self.fault).get_or_insert(fault);
        self.notify_changed();
    }

    fn figures(&self) -> Figures {
        Figures {
            worked: self.worked_here(),
            worked_earlier: self.worked_earlier.get(),
            done_attos: self.done.iter().map(Counter::get).fold(0, u64::saturating_add),
            tasks: self.completed.get(),
            splits: self.splits.get(),
            steal_times: self.queue.steal_times(),
            left_open: *lock(&self.left_open),
            open_tasks: Some(self.queue.open_tasks()),
            times: self.times.sums(),
            ..Figures::default()
        }
    }
}

impl<T: Task> Entry<T> {
    pub(crate) fn new(id: TaskId, task: T) -> Self {
        Self::resume(id, Vec::new(), T::Output::default(), task)
    }

    /// Creates the entry of a task that continues from its last state.
    pub(crate) fn resume(id: TaskId, children: Vec<TaskId>, output: T::Output, task: T) -> Self {
        Self {
            id,
            scope: None,
            children,
            spawned: Spawned::Nothing,
            crashes: Crashes::default(),
            output,
            outlook: (T::HOOKS.outlook)(&task),
            order: (T::HOOKS.order)(&task),
            basis: Basis::FIRM,
            lineage: Lineage::default(),
            task,
        }
    }

    /// Packs the task for transfer to another node.
    ///
    /// # Errors
    /// If it cannot be encoded, or is larger than [`TASK_BYTES_MAX`].
    pub(crate) fn seal(&self) -> Result<Envelope, EncodeError> {
        let envelope = Envelope {
            id: self.id,
            scope: self.scope,
            children: self.children.clone(),
            spawned: self.spawned.clone(),
            crashes: self.crashes.count(),
            output: codec::encode(&self.output)?.into(),
            task: codec::encode(&self.task)?.into(),
        };
        match envelope.bytes() {
            bytes if bytes > TASK_BYTES_MAX => Err(EncodeError::TooLarge { bytes, limit: TASK_BYTES_MAX }),
            _ => Ok(envelope),
        }
    }

    /// Unpacks a task that came from another node.
    pub(crate) fn open(envelope: Envelope) -> Result<Self, DecodeError> {
        let (output, task) = (codec::decode(&envelope.output)?, codec::decode(&envelope.task)?);
        let Envelope { id, scope, children, spawned, crashes, .. } = envelope;
        let crashes = Crashes::new(crashes);
        Ok(Self { scope, spawned, crashes, ..Self::resume(id, children, output, task) })
    }
}

/// Locks a mutex; a poisoned lock is used anyway. Only the program's own code (`merge`, `improves`) can
/// panic under these locks, and a panic there fails the job, so the resulting state is never
/// reported.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

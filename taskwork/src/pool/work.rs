//! The type-erased interface of a pool for the rest of a node: tasks and outputs are bytes.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};

use thiserror::Error;
use tokio::{task, time::Instant};

use super::{
    CHILDREN_MAX, Entry, Lineage, Pool, PoolView, Signals, Source, VariableTable, Workplace, batches::Taken,
    lock, queue::Queued, worker::message,
};
use crate::{
    companion::{Run, Stage},
    core::Cut,
    envelope::{Envelope, TASK_BYTES_MAX},
    figures::{Counter, Figures},
    holdings::Basis,
    id::{NodeId, TaskId},
    outlook::Outlook,
    output::Output,
    scope::{Mark, Scope},
    task::Task,
    variable::Suggested,
    wire::codec::{self, EncodeError},
};

/// The maximum size of an encoded value to be shown as JSON, in bytes: JSON takes many times as much.
pub(super) const SHOWN_ENCODED_BYTES_MAX: usize = 256 << 10;

/// An error of the program that would recur in another attempt: the job fails.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum PoolFault {
    #[error("task {task} panicked: {message}")]
    Panicked { task: TaskId, lineage: Lineage, message: String },
    #[error("the program panicked on a worker without a task, in Hooks::idle: {message}")]
    PanickedIdle { message: String },
    #[error("task {task} returned Migrate although nothing asked it to")]
    Deserted { task: TaskId },
    #[error(
        "task {task} returned Wait, but nothing can end that: it has spawned nothing since it last waited, and has \
         taken no waker in this call"
    )]
    WaitsForNothing { task: TaskId },
    #[error(
        "task {task} has spawned {max} tasks (spawned_tasks_max) after it was asked to stop, because as many were queued \
         on its node. Call migrate() between two calls of spawn(), and return Migrate when it returns true"
    )]
    TooManySpawned { task: TaskId, max: usize },
    #[error("task {task} has failed the job: {reason}")]
    Mistake { task: TaskId, reason: String },
    #[error("task {task} cannot be sent: {reason}")]
    Unsendable { task: TaskId, reason: String },
    #[error("task {task} cannot be read as it was sent: {reason}")]
    Unreadable { task: TaskId, reason: String },
    #[error("the outputs of the job cannot be merged, the program panicked: {message}")]
    Unmergeable { message: String },
    #[error("an output of the job cannot be encoded or read back: {reason}")]
    Unencodable { reason: String },
    #[error("what the job has produced cannot be recorded: {reason}")]
    Unrecordable { reason: String },
    #[error("the companion of the job on node {node} has failed: {reason}")]
    Companion { node: NodeId, reason: String },
}

impl PoolFault {
    pub(super) fn panicked(task: TaskId, lineage: Lineage, panic: &(dyn Any + Send)) -> Self {
        Self::Panicked { task, lineage, message: message(panic) }
    }
}

pub(crate) type Merging = Pin<Box<dyn Future<Output = Result<Merged, PoolFault>> + Send>>;

/// A pool with its type of task erased.
///
/// The driver calls these methods and must not wait for the program's own code: a search, a merge or a
/// comparison may take seconds. So they take no lock that is held while such code runs.
pub(crate) trait Work: Workplace + 'static {
    /// Waits for an event that the node must react to: a worker went hungry, a task was queued for a thief,
    /// the batch grew large, a variable improved, the program failed.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn view(&self) -> PoolView;
    fn fault(&self) -> Option<PoolFault>;
    fn figures(&self) -> Figures;
    fn outlook(&self) -> Outlook;
    /// Returns the tasks that are being searched or completed.
    fn running(&self) -> Vec<TaskId>;
    /// Returns the number of the current cut, and the tasks that it waits for.
    fn awaited(&self) -> (u64, Vec<TaskId>);
    fn signals(&self) -> &Signals;
    fn variables(&self) -> &VariableTable;
    /// Queues tasks from elsewhere, with a basis that is open from now on, and the time of the request for
    /// them.
    fn put(&self, envelopes: Vec<Envelope>, basis: Basis, asked: Option<Instant>) -> Result<(), PoolFault>;
    /// Takes queued tasks for a thief, with one basis and at most `bytes_max` bytes in total; a larger task is taken
    /// alone. Tasks that are too large to be sent remain.
    fn take(&self, tasks_max: usize, bytes_max: usize) -> Result<(Basis, Vec<Envelope>), PoolFault>;
    /// Returns the scopes that tasks here wait for, each with the id of the waiting task.
    fn awaited_scopes(&self) -> Vec<(Mark, Scope)>;
    /// Queues the tasks that wait for these scopes, which are complete.
    fn wake(&self, scopes: &[Scope]);
    /// Queues the tasks with an external wake-up.
    fn wake_rung(&self);
    /// Lets a task continue that has waited for its trial.
    fn begin_trial(&self, task: TaskId);
    /// Sets the number of thieves that wait for a split.
    fn set_thieves(&self, thieves: usize);
    /// Asks running tasks to stop and lets no task start.
    fn stop(&self);
    fn resume(&self);
    /// Takes every queued task of a stopped pool.
    fn unload(&self) -> Result<Vec<(Basis, Envelope)>, PoolFault>;
    /// Discards every task of a quiet pool, its batch and its outputs: they belong to an attempt that is
    /// over.
    fn discard(&self);
    /// Makes these bases the node's own, and starts a cut. It is [`ready`](Self::ready_cut) when every
    /// running task has been polled, which [`changed`](Self::changed) announces; in a quiet pool immediately.
    fn begin_cut(&self, firm: &[Basis]) -> Result<(), PoolFault>;
    /// Returns the cut that was started, if it is finished. If outputs have to be merged first, another thread does
    /// that, since it may take seconds, and [`changed`](Self::changed) announces its completion.
    fn ready_cut(self: Arc<Self>) -> Result<Option<Cut>, PoolFault>;
    /// Drops all tasks and completions on these bases.
    fn void(&self, bases: &[Basis]);
    /// Merges outputs of nodes on another thread, since it may take seconds. A node without any output has
    /// an empty one.
    fn merge(self: Arc<Self>, outputs: Vec<Vec<u8>>, show: bool) -> Merging;
    /// Offers a user's suggestion. Returns whether it was adopted, and the answer.
    fn suggest(&self, given: serde_json::Value) -> Result<(bool, String), String>;
    /// Returns the function that starts the companion of the pool, and its stage; once.
    fn companion(&self) -> Option<(Run, Stage)>;
    /// Closes the pool: running tasks are asked to stop, workers leave, and no more come.
    fn close(&self);
}

impl<T: Task> Work for Pool<T> {
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.wake_ups.changed.notified())
    }

    fn view(&self) -> PoolView {
        // The queue first: a worker completes its task before it becomes idle. In the other order, a pool
        // that has just become idle might not show its last completion, and a leaving node would
        // lose it.
        let queue = self.queue.view();
        PoolView { batch_ids: self.batches.ids(), ..queue }
    }

    fn fault(&self) -> Option<PoolFault> {
        lock(&self.fault).clone()
    }

    fn figures(&self) -> Figures {
        Pool::figures(self)
    }

    fn outlook(&self) -> Outlook {
        Pool::outlook(self)
    }

    fn running(&self) -> Vec<TaskId> {
        self.running.iter().filter_map(|task| *lock(task)).collect()
    }

    fn awaited(&self) -> (u64, Vec<TaskId>) {
        let (cut, workers) = self.queue.awaited();
        (cut, workers.iter().filter_map(|&worker| *lock(self.running.get(worker)?)).collect())
    }

    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn variables(&self) -> &VariableTable {
        &self.variables
    }

    fn put(&self, envelopes: Vec<Envelope>, basis: Basis, asked: Option<Instant>) -> Result<(), PoolFault> {
        let open = |envelope: Envelope| {
            let task = envelope.id;
            let entry = self.guarded(task, &Lineage::default(), || Entry::open(envelope))?;
            let entry = entry.map_err(|e| PoolFault::Unreadable { task, reason: e.to_string() })?;
            Ok(Entry { basis, ..entry })
        };
        let entries: Vec<Entry<T>> = envelopes.into_iter().map(open).collect::<Result<_, _>>()?;
        self.queue.put_stolen(entries, basis, asked, &self.signals);
        Ok(())
    }

    fn take(&self, tasks_max: usize, bytes_max: usize) -> Result<(Basis, Vec<Envelope>), PoolFault> {
        let (bytes_max, mut basis) = (bytes_max.min(TASK_BYTES_MAX), Basis::FIRM);
        let (mut envelopes, mut bytes, mut kept, mut full) = (Vec::new(), 0, Vec::new(), false);
        // Sealing takes time and is therefore done outside the queue's lock.
        for queued in self.queue.take_for_thief(tasks_max, bytes_max, &self.signals) {
            if full {
                kept.push(queued);
                continue;
            }
            basis = queued.entry.basis;
            match self.sealed(&queued.entry)? {
                Ok(envelope) if envelopes.is_empty() || bytes + envelope.bytes() <= bytes_max => {
                    bytes += envelope.bytes();
                    envelopes.push(envelope);
                }
                Ok(envelope) => {
                    full = true;
                    kept.push(Queued { bytes: Some(envelope.bytes()), ..queued });
                }
                // The task is completed here. Only if this node must leave first, no node can complete it.
                Err(EncodeError::TooLarge { bytes, limit }) => {
                    tracing::warn!(
                        task = %queued.entry.id, bytes, limit,
                        "a task is too large to be given away"
                    );
                    kept.push(Queued { bytes: Some(bytes), ..queued });
                }
                Err(error) => return Err(unsendable(queued.entry.id, &error)),
            }
        }
        self.queue.put_back(kept, &self.signals);
        Ok((basis, envelopes))
    }

    fn awaited_scopes(&self) -> Vec<(Mark, Scope)> {
        self.queue.awaited_scopes()
    }

    fn wake(&self, scopes: &[Scope]) {
        if self.queue.wake(scopes, &self.signals) > 0 {
            self.notify_changed();
        }
    }

    fn wake_rung(&self) {
        let pending = self.wake_ups.take_pending();
        if !pending.is_empty() {
            self.queue.wake_rung(&pending, &self.signals);
        }
    }

    fn begin_trial(&self, task: TaskId) {
        self.queue.begin_trial(task, &self.signals);
    }

    fn set_thieves(&self, thieves: usize) {
        self.queue.set_thieves(thieves, &self.signals);
    }

    fn stop(&self) {
        self.queue.stop(&self.signals);
    }

    fn resume(&self) {
        self.queue.resume(&self.signals);
    }

    fn unload(&self) -> Result<Vec<(Basis, Envelope)>, PoolFault> {
        let mut entries = self.queue.take_all(&self.signals);
        // The oldest stay first.
        entries.reverse();
        let mut unloaded = Vec::with_capacity(entries.len());
        while let Some(mut entry) = entries.pop() {
            match self.sealed(&entry)? {
                Ok(envelope) => unloaded.push((entry.basis, envelope)),
                Err(error @ EncodeError::TooLarge { .. }) => {
                    let pieces = self.split_off(&mut entry)?;
                    if pieces.is_empty() {
                        return Err(unsendable(entry.id, &error));
                    }
                    entries.push(entry);
                    entries.extend(pieces);
                }
                Err(error) => return Err(unsendable(entry.id, &error)),
            }
        }
        Ok(unloaded)
    }

    fn discard(&self) {
        self.queue.take_all(&self.signals);
        // Another attempt starts from zero.
        self.worked_earlier.reset();
        self.worked_earlier.add(self.worked_here());
        self.done.iter().for_each(Counter::reset);
        // The queue first: otherwise a merging thread could finish a cut of the previous attempt.
        self.queue.reset(&self.signals);
        self.batches.reset();
    }

    fn begin_cut(&self, firm: &[Basis]) -> Result<(), PoolFault> {
        let queued = self.queue.begin_cut(firm, self.limits.ledger, &self.signals);
        // Encoding takes time and is therefore done outside the queue's lock. A cut that is too large is not
        // written, so no further task is encoded for it.
        let mut bytes = 0;
        let seal = |queued: Queued<T>| {
            let is_too_large = bytes > self.limits.ledger_bytes_max;
            let sealed = if is_too_large { None } else { self.seal_for_cut(&queued.entry) };
            bytes += sealed.as_ref().map_or(0, Envelope::bytes);
            (queued, sealed)
        };
        self.queue.sealed(queued.into_iter().map(seal).collect(), &self.signals);
        match self.fault() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn ready_cut(self: Arc<Self>) -> Result<Option<Cut>, PoolFault> {
        match self.batches.take(&self.queue) {
            // A task that has panicked would be missing in the cut.
            Taken::Cut(_) if self.fault().is_some() => Ok(None),
            Taken::Cut(cut) => cut.map(Some),
            Taken::Later => Ok(None),
            Taken::Merges => {
                if !self.merging.swap(true, Relaxed) {
                    let merging = Arc::clone(&self);
                    thread::spawn(move || {
                        merging.batches.merge(&merging.queue);
                        merging.merging.store(false, Relaxed);
                        merging.notify_changed();
                    });
                }
                Ok(None)
            }
        }
    }

    fn void(&self, bases: &[Basis]) {
        self.queue.void(bases, &self.signals);
    }

    fn merge(self: Arc<Self>, outputs: Vec<Vec<u8>>, show: bool) -> Merging {
        let merging = task::spawn_blocking(move || merge_shown::<T::Output>(&outputs, show));
        Box::pin(async move {
            match merging.await {
                Ok(merged) => merged,
                // Panics are caught there, so the runtime is shutting down, and nothing waits for the answer.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn suggest(&self, given: serde_json::Value) -> Result<(bool, String), String> {
        // The suggestion comes from outside and is read by the program's own code, which may panic.
        let read = catch_unwind(AssertUnwindSafe(|| (T::HOOKS.suggest)(&self.shared, given)));
        let Suggested { variable, value, mut said, describe } =
            read.map_err(|_| "the program has panicked at what was given".to_owned())??;
        let slot = self.variables.slot_of(variable);
        let slot = slot.ok_or("the program has not declared the variable it is for")?;
        let taken = self.variables.offer(slot, value, Source::Node, &self.signals);
        if taken {
            self.notify_changed();
        } else if let (Some(describe), Some(known)) = (describe, self.variables.read(slot)) {
            let known = catch_unwind(AssertUnwindSafe(|| describe(&*known)));
            let known =
                known.map_err(|_| "the program has panicked at the value that is known".to_owned())?;
            said = format!("{said} is no better than what is known: {known}");
        }
        Ok((taken, said))
    }

    fn companion(&self) -> Option<(Run, Stage)> {
        Some((lock(&self.unstarted).take()?, Stage::Thread))
    }

    fn close(&self) {
        self.queue.dismiss();
        self.queue.close(&self.signals);
    }
}

impl<T: Task> Pool<T> {
    /// Runs the program's code for a task on the driver's thread. After a panic, no further cut is finished.
    fn guarded<R>(&self, task: TaskId, lineage: &Lineage, code: impl FnOnce() -> R) -> Result<R, PoolFault> {
        catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
            let fault = PoolFault::panicked(task, lineage.clone(), &*panic);
            self.fail(fault.clone());
            fault
        })
    }

    fn sealed(&self, entry: &Entry<T>) -> Result<Result<Envelope, EncodeError>, PoolFault> {
        self.guarded(entry.id, &entry.lineage, || entry.seal())
    }

    /// Splits tasks off a task that does not run, because it is too large to be sent; at most as many as it may have
    /// children, and none if it cannot be split.
    fn split_off(&self, entry: &mut Entry<T>) -> Result<Vec<Entry<T>>, PoolFault> {
        let mut pieces = Vec::new();
        while pieces.len() < PIECES_MAX && entry.children.len() < CHILDREN_MAX {
            let split = || {
                let task = entry.task.split(&self.shared)?;
                let lineage = entry.lineage.of_child(entry.id);
                let Entry { scope, basis, .. } = *entry;
                Some(Entry { scope, basis, lineage, ..Entry::new(self.new_id(), task) })
            };
            let Some(piece) = self.guarded(entry.id, &entry.lineage.clone(), split)? else { break };
            entry.children.push(piece.id);
            pieces.push(piece);
        }
        Ok(pieces)
    }
}

/// The number of tasks that are split off a too large one before it is encoded again.
const PIECES_MAX: usize = 16;

#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) encoded: Vec<u8>,
    /// Its form in JSON, if that was requested and exists.
    pub(crate) shown: serde_json::Value,
    /// See [`Output::failure`].
    pub(crate) failure: Option<String>,
}

/// Merges outputs, and encodes and shows the result: all of it the program's own code.
pub(super) fn merge_shown<O: Output>(outputs: &[Vec<u8>], show: bool) -> Result<Merged, PoolFault> {
    let merging = || {
        let merged = merge::<O>(outputs)?;
        let encoded = codec::encode(&merged).map_err(|e| PoolFault::Unencodable { reason: e.to_string() })?;
        // A result without a JSON form, such as a map with pairs as keys, is only for the program.
        let shown =
            if show { serde_json::to_value(&merged).unwrap_or_default() } else { serde_json::Value::Null };
        Ok(Merged { encoded, shown, failure: merged.failure() })
    };
    catch_unwind(AssertUnwindSafe(merging))
        .unwrap_or_else(|panic| Err(PoolFault::Unmergeable { message: message(&*panic) }))
}

/// Merges the encoded outputs of several nodes.
pub(crate) fn merge<O: Output>(outputs: &[Vec<u8>]) -> Result<O, PoolFault> {
    let mut merged = O::default();
    for output in outputs.iter().filter(|output| !output.is_empty()) {
        let output = codec::decode(output).map_err(|e| PoolFault::Unencodable { reason: e.to_string() })?;
        merged.merge(output);
    }
    Ok(merged)
}

fn unsendable(task: TaskId, error: &EncodeError) -> PoolFault {
    PoolFault::Unsendable { task, reason: error.to_string() }
}

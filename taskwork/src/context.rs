//! A running task's view of the runtime.

use std::{any::TypeId as RustType, cell::Cell, fmt, sync::Arc};

use crate::{
    figures::Figures,
    holdings::Basis,
    id::{NodeId, TaskId},
    pool::{Entry, Pool, Signals, Source},
    task::Task,
    variable::{AnyValue, Variable, value},
};

/// A running task's interface to the runtime.
///
/// The three queries of the search loop, [`migrate`](Self::migrate),
/// [`potential_split`](Self::potential_split) and [`variables_changed`](Self::variables_changed), cost one
/// load each while the answer is no; [`has_requests`](Self::has_requests) is one load for all three.
pub struct Context<'a, T: Task> {
    pool: &'a Pool<T>,
    worker: usize,
    id: TaskId,
    children: Vec<TaskId>,
    output: T::Output,
    /// On which the task and its children are this node's.
    basis: Basis,
    requested: Cell<Requested>,
    /// The task's copies of the variables, as they were in this epoch of the node.
    copies: Vec<TaskCopy>,
    epoch: u64,
    /// The value of the signals word in this epoch while nothing is requested.
    quiet: u64,
}

/// A task's copy of a variable.
struct TaskCopy {
    variable: RustType,
    value: Option<Arc<AnyValue>>,
}

/// What was requested of a task that has polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Requested {
    /// To stop.
    pub(crate) stop: bool,
    /// To return for a moment, so that it can be written.
    pub(crate) snapshot: bool,
}

/// What remains of a context when its search has returned.
pub(crate) struct Finished<O> {
    pub(crate) id: TaskId,
    pub(crate) children: Vec<TaskId>,
    pub(crate) output: O,
    pub(crate) basis: Basis,
    pub(crate) requested: Requested,
}

impl<'a, T: Task> Context<'a, T> {
    pub(crate) fn new(
        pool: &'a Pool<T>,
        worker: usize,
        id: TaskId,
        children: Vec<TaskId>,
        output: T::Output,
        basis: Basis,
    ) -> Self {
        let copies = pool.variables.types().map(|variable| TaskCopy { variable, value: None }).collect();
        // An epoch that never occurs, so that the first call reads the variables.
        let epoch = Signals::NO_EPOCH;
        let quiet = Signals::quiet(epoch);
        let requested = Cell::default();
        Self { pool, worker, id, children, output, basis, requested, copies, epoch, quiet }
    }

    /// Returns the read-only data of the job.
    #[inline]
    pub fn shared(&self) -> &'a T::Shared {
        &self.pool.shared
    }

    /// Returns whether the task should stop here and return [`Outcome::Migrate`](crate::Outcome::Migrate):
    /// its node is leaving, or the job is over (paper, 3.4), or its state is to be written, about once a
    /// second, in which case it goes on at once. Call it every few microseconds.
    #[inline]
    pub fn migrate(&self) -> bool {
        self.pool.signals.interrupts() && self.is_interrupted()
    }

    #[cold]
    fn is_interrupted(&self) -> bool {
        let mut requested = self.requested.get();
        requested.stop |= self.pool.signals.stop();
        requested.snapshot |= self.pool.is_interrupted(self.worker);
        self.requested.set(requested);
        requested.stop || requested.snapshot
    }

    /// Marks a point at which a part of the task could be done elsewhere. If work is needed, the runtime
    /// calls [`Task::split`] on `task`, which must be the task being searched (paper, 3.7).
    #[inline]
    pub fn potential_split(&mut self, task: &mut T) {
        if self.pool.signals.split() {
            self.split(task);
        }
    }

    /// Returns whether anything may be requested of the task or be new to it: only then are
    /// [`migrate`](Self::migrate), [`potential_split`](Self::potential_split) and [`get_var`](Self::get_var)
    /// worth calling. One load for all of them, for loops whose steps take a few nanoseconds.
    #[inline]
    pub fn has_requests(&mut self) -> bool {
        self.pool.signals.word() != self.quiet && self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        if self.variables_changed() {
            self.refresh();
        }
        // While other tasks are awaited, there is nothing to see for this one, until the next announcement.
        let others = self.pool.signals.snapshot() && !self.pool.is_interrupted(self.worker);
        self.quiet =
            if others { Signals::quiet_but_snapshot(self.epoch) } else { Signals::quiet(self.epoch) };
        true
    }

    #[cold]
    fn split(&mut self, task: &mut T) {
        let Some(child) = task.split(&self.pool.shared) else { return };
        let child = Entry { basis: self.basis, ..Entry::new(self.pool.new_id(), child) };
        if self.children.len() >= self.pool.limits.task_children_max {
            self.renew();
        }
        self.children.push(child.id);
        self.pool.put_split(self.worker, child);
    }

    /// Continues under a new id, as if the whole rest had been split off: the old id completes with its
    /// children, the last of them being the new id. This bounds the list of children, however long a task
    /// runs.
    fn renew(&mut self) {
        let renewed = self.pool.new_id();
        self.children.push(renewed);
        self.pool.complete(self.worker, (self.id, self.basis), &self.children, T::Output::default());
        self.children.clear();
        self.id = renewed;
        self.pool.runs(self.worker, Some(renewed));
    }

    /// Returns whether any variable may have changed since the last call of [`get_var`](Self::get_var), for
    /// whichever variable.
    #[inline]
    pub fn variables_changed(&self) -> bool {
        self.pool.signals.epoch() != self.epoch
    }

    /// Returns the value of a variable, if it has one yet (paper, 3.6).
    ///
    /// # Panics
    /// If the program did not declare the variable in [`Task::variables`].
    #[inline]
    pub fn get_var<V: Variable>(&mut self) -> Option<&V::Value> {
        if self.pool.signals.word() != self.quiet && self.variables_changed() {
            self.refresh();
        }
        // Searches the copies rather than calling `slot`: they are contiguous, and this is called at every
        // step of a search.
        match self.copies.iter().find(|copy| copy.variable == RustType::of::<V>()) {
            Some(copy) => copy.value.as_deref().map(value::<V>),
            None => undeclared::<V>(),
        }
    }

    #[cold]
    fn refresh(&mut self) {
        // The epoch is read first: a later change is noticed by the next call.
        self.epoch = self.pool.signals.epoch();
        self.quiet = Signals::quiet(self.epoch);
        for (slot, copy) in self.copies.iter_mut().enumerate() {
            copy.value = self.pool.variables.read(slot);
        }
    }

    /// Offers a new value, which is adopted and spread if it improves on the value known to the node. Returns
    /// whether it was adopted.
    ///
    /// # Panics
    /// If the program did not declare the variable in [`Task::variables`].
    pub fn set_var<V: Variable>(&mut self, value: V::Value) -> bool {
        let slot = self.slot::<V>();
        let taken = self.pool.variables.offer(slot, Arc::new(value), Source::Node, &self.pool.signals);
        if taken {
            self.pool.notify_changed();
        }
        taken
    }

    fn slot<V: Variable>(&self) -> usize {
        let slot = self.pool.variables.slot_of(RustType::of::<V>());
        slot.unwrap_or_else(|| undeclared::<V>())
    }

    /// Returns what this task has produced so far, to be added to. It counts exactly once, when the task
    /// completes.
    #[inline]
    pub fn output(&mut self) -> &mut T::Output {
        &mut self.output
    }

    /// Reports progress in units of the program's choice, such as states visited. The cost of batched calls,
    /// say one per thousand units, is not measurable.
    #[inline]
    pub fn worked(&self, units: u64) {
        self.pool.worked(self.worker).add(units);
    }

    /// Reports that `share` (of 1) of the whole job is done, as far as the program can tell. The sum over all
    /// tasks is shown to observers ([`Figures::share`](crate::Figures::share)).
    #[inline]
    pub fn progressed(&self, share: f64) {
        self.pool.done(self.worker).add(Figures::attos(share));
    }

    /// Updates the task's [`Task::outlook`].
    pub fn set_outlook(&self, outlook: Option<f64>) {
        self.pool.at_work(self.worker).set(outlook);
    }

    /// Returns the units of work reported on this node for this job, by all its workers.
    pub fn worked_here(&self) -> u64 {
        self.pool.worked_here()
    }

    /// Returns the handle of the [companion](crate::Companion) on the node that the task is on now; `None` if the
    /// program has none, or its handle is of another type.
    pub fn companion<H: Send + Sync + 'static>(&self) -> Option<&'a H> {
        self.pool.companion.as_deref()?.downcast_ref()
    }

    /// Returns the node that the task is on now.
    pub fn node(&self) -> NodeId {
        self.pool.node
    }

    pub(crate) fn finish(self) -> Finished<T::Output> {
        let requested = self.requested.get();
        let Self { id, children, output, basis, .. } = self;
        Finished { id, children, output, basis, requested }
    }
}

#[cold]
fn undeclared<V: Variable>() -> ! {
    panic!("variable {:?} is not declared in Task::variables", V::NAME)
}

impl<T: Task> fmt::Debug for Context<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id)
            .field("worker", &self.worker)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}

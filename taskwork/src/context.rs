//! A running task's view of the runtime.

use std::{any::TypeId as RustType, cell::Cell, fmt, sync::Arc, time::Duration};

use crate::{
    figures::Figures,
    holdings::Basis,
    id::{NodeId, TaskId},
    pool::{Crashes, Entry, Lineage, Pool, Signals, Source, Waker, check::Interrupts},
    scope::{Completed, Scope, Spawned},
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
    part: Part<T::Output>,
    /// The waker taken in this call.
    waker: Option<Waker>,
    /// The number of tasks spawned since the task was asked to let others start.
    spawned_since_request: usize,
    requested: Cell<Requested>,
    /// The task's copies of the variables, as of this epoch of the node.
    copies: Vec<TaskCopy>,
    epoch: u64,
    /// The value of the signals word in this epoch while nothing is requested.
    quiet: u64,
}

/// Demand for more tasks than are queued.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Hunger {
    /// The duration of the demand so far.
    pub lasts: Duration,
    /// Whether a worker of this node needs a task, and not only other nodes.
    pub here: bool,
}

/// A task's copy of a variable.
struct TaskCopy {
    variable: RustType,
    value: Option<Arc<AnyValue>>,
}

/// The requests to a task at a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Requested {
    pub(crate) stop: bool,
    /// To return soon, so that it can be written.
    pub(crate) snapshot: bool,
}

/// The belongings of a running task, apart from the task itself.
pub(crate) struct Part<O> {
    pub(crate) id: TaskId,
    pub(crate) scope: Option<Scope>,
    pub(crate) children: Vec<TaskId>,
    pub(crate) spawned: Spawned,
    pub(crate) output: O,
    /// The basis on which the task and its children belong to this node.
    pub(crate) basis: Basis,
    /// The task's ancestors on this node.
    pub(crate) lineage: Lineage,
}

/// The remains of a context when its search has returned.
pub(crate) struct Finished<O> {
    pub(crate) part: Part<O>,
    pub(crate) requested: Requested,
    pub(crate) waker: Option<Waker>,
}

impl<O> Part<O> {
    /// Returns the entry of the task, which has stopped.
    pub(crate) fn stopped<T: Task<Output = O>>(self, crashes: Crashes, task: T) -> Entry<T> {
        let Self { id, scope, children, spawned, output, basis, lineage } = self;
        Entry { scope, spawned, crashes, basis, lineage, ..Entry::resume(id, children, output, task) }
    }
}

impl<'a, T: Task> Context<'a, T> {
    pub(crate) fn new(pool: &'a Pool<T>, worker: usize, part: Part<T::Output>) -> Self {
        let copies = pool.variables.types().map(|variable| TaskCopy { variable, value: None }).collect();
        // An epoch that never occurs, so that the first call reads the variables.
        let epoch = Signals::NO_EPOCH;
        let quiet = Signals::quiet(epoch);
        let requested = Cell::default();
        Self { pool, worker, part, waker: None, spawned_since_request: 0, requested, copies, epoch, quiet }
    }

    /// Returns the read-only data of the job.
    #[inline]
    pub fn shared(&self) -> &'a T::Shared {
        &self.pool.shared
    }

    /// Returns the read-only data of the job, for code that outlives the task, such as a thread.
    pub fn shared_arc(&self) -> Arc<T::Shared> {
        Arc::clone(&self.pool.shared)
    }

    /// Returns whether the task should stop here and return [`Outcome::Migrate`](crate::Outcome::Migrate):
    /// its node is leaving, or the job is over (paper, 3.4), or its state must be written, about once a
    /// second, in which case it is continued immediately. Call it every few microseconds.
    #[inline]
    pub fn migrate(&self) -> bool {
        self.pool.signals.interrupts() && self.is_interrupted()
    }

    #[cold]
    fn is_interrupted(&self) -> bool {
        let mut requested = self.requested.get();
        let is_due = || self.pool.interrupts.as_ref().is_none_or(Interrupts::poll);
        requested.stop |= self.pool.signals.stop() && is_due();
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

    /// Returns whether more tasks are needed than are queued here, and for how long; `None` if not. A program that
    /// prefers to split certain tasks may leave the split to another task for a short time, by not calling
    /// [`potential_split`](Self::potential_split); but not for long, since all tasks may do so.
    #[cold]
    pub fn hunger(&self) -> Option<Hunger> {
        self.pool.hunger()
    }

    /// Returns whether there may be a request to the task or a change for it: only then are
    /// [`migrate`](Self::migrate), [`potential_split`](Self::potential_split) and [`get_var`](Self::get_var)
    /// worth calling. One load for all three, for loops with steps of a few nanoseconds.
    #[inline]
    pub fn has_requests(&mut self) -> bool {
        self.pool.signals.word() != self.quiet && self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        if self.variables_changed() {
            self.refresh();
        }
        // While other tasks are awaited, this one has no request until the next announcement.
        let others = self.pool.signals.snapshot() && !self.pool.is_interrupted(self.worker);
        self.quiet =
            if others { Signals::quiet_but_snapshot(self.epoch) } else { Signals::quiet(self.epoch) };
        true
    }

    #[cold]
    fn split(&mut self, task: &mut T) {
        let Some(child) = task.split(&self.pool.shared) else { return };
        let child = self.child(child);
        self.pool.put_split(self.worker, child);
    }

    /// Makes a task a child of this one, in the same scope.
    fn child(&mut self, task: T) -> Entry<T> {
        let Part { id, scope, basis, ref lineage, .. } = self.part;
        let lineage = lineage.of_child(id);
        let child = Entry { scope, basis, lineage, ..Entry::new(self.pool.new_id(), task) };
        if self.part.children.len() >= self.pool.limits.task_children_max {
            self.renew();
        }
        self.part.children.push(child.id);
        child
    }

    /// Spawns a task: a child with work of its own, for which this task can [wait](crate::Outcome::Wait). It is
    /// queued immediately, and may run on any node.
    ///
    /// This task is complete only when all tasks that it has spawned are. If it returns
    /// [`Outcome::Complete`](crate::Outcome::Complete) before that, it is not called again, but waits in memory
    /// without a worker, provided that another task may wait for it. A chain of tasks, each of which spawns the next
    /// one, would fill the memory: such tasks [spawn siblings](Self::spawn_sibling).
    ///
    /// Call [`migrate`](Self::migrate) periodically while spawning. It returns true when `spawned_tasks_max` tasks (see
    /// [`Limits`](crate::Limits)) are queued or wait on the node, so that some of them are searched first. If the task
    /// ignores that, and spawns as many more in the same call, the job fails.
    ///
    /// # Examples
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use taskwork::{Context, Job, Outcome, Task};
    ///
    /// /// Adds up a range by its halves.
    /// #[derive(Serialize, Deserialize)]
    /// struct Sum {
    ///     from: u64,
    ///     to: u64,
    ///     waits: bool,
    /// }
    ///
    /// impl Task for Sum {
    ///     type Shared = ();
    ///     type Output = u64;
    ///
    ///     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
    ///         if self.waits {
    ///             // Both halves are complete.
    ///             return Outcome::Complete;
    ///         }
    ///         if self.to - self.from <= 8 {
    ///             *cx.output() += (self.from..self.to).sum::<u64>();
    ///             return Outcome::Complete;
    ///         }
    ///         let middle = u64::midpoint(self.from, self.to);
    ///         cx.spawn(Self { from: self.from, to: middle, waits: false });
    ///         cx.spawn(Self { from: middle, to: self.to, waits: false });
    ///         self.waits = true;
    ///         Outcome::Wait
    ///     }
    ///
    ///     fn split(&mut self, (): &()) -> Option<Self> {
    ///         None
    ///     }
    /// }
    ///
    /// let report = Job::new(Sum { from: 0, to: 1000, waits: false }, ()).run()?;
    /// assert_eq!(report.output, 499_500);
    /// # Ok::<(), taskwork::JobError>(())
    /// ```
    pub fn spawn(&mut self, task: T) {
        let scope = match self.part.spawned {
            Spawned::Tasks { scope, .. } => scope,
            Spawned::Nothing | Spawned::Awaited { .. } => {
                let scope = self.pool.open_scope(self.part.basis);
                self.part.spawned = Spawned::Tasks { scope, tasks: Vec::new() };
                scope
            }
        };
        let Part { id, basis, ref lineage, .. } = self.part;
        let (scope, lineage) = (Some(scope), lineage.of_child(id));
        let child = Entry { scope, basis, lineage, ..Entry::new(self.pool.new_id(), task) };
        if let Spawned::Tasks { tasks, .. } = &mut self.part.spawned {
            if tasks.len() >= self.pool.limits.task_children_max {
                // As if all siblings had been split off from one spawned task that is complete.
                let id = self.pool.new_id();
                let before = std::mem::replace(tasks, vec![id]);
                let bundle = Completed { scope, ..Completed::plain(id, &before) };
                self.pool.complete(self.worker, self.part.basis, &bundle, T::Output::default());
            }
            tasks.push(child.id);
        }
        self.put_spawned(child);
    }

    fn put_spawned(&mut self, task: Entry<T>) {
        if self.pool.put_spawned(self.worker, task) {
            self.spawned_since_request += 1;
            if self.spawned_since_request > self.pool.limits.spawned_tasks_max {
                self.pool.fail_spawner(self.part.id);
            }
        }
    }

    /// Spawns a task for which this one does not wait, not even in memory. A task that waits for this one also waits
    /// for the sibling, as for a part that was split off. Otherwise like [`spawn`](Self::spawn).
    pub fn spawn_sibling(&mut self, task: T) {
        let sibling = self.child(task);
        self.put_spawned(sibling);
    }

    /// Returns a waker. If this call of [`Task::search`] returns [`Outcome::Wait`](crate::Outcome::Wait), the task
    /// waits until the waker is used, for example by another thread or the answer to a request.
    ///
    /// A wake-up before the task waits is not lost. The task may also be called again without a wake-up, for example
    /// after it was moved to another node, where the waker has no effect on it: so it must check whether the event has
    /// happened, and take another waker if not, like a future that is polled.
    pub fn waker(&mut self) -> Waker {
        let task = self.part.id;
        self.waker.get_or_insert_with(|| self.pool.waker(task)).clone()
    }

    /// Continues under a new id, as if the whole rest had been split off: the old id completes with its
    /// children, the last of which is the new id. This bounds the list of children of a task that runs for
    /// long.
    fn renew(&mut self) {
        let renewed = self.pool.new_id();
        let Part { id, scope, children, basis, lineage, .. } = &mut self.part;
        children.push(renewed);
        let completed = Completed { scope: *scope, ..Completed::plain(*id, children) };
        self.pool.complete(self.worker, *basis, &completed, T::Output::default());
        children.clear();
        lineage.add(*id);
        *id = renewed;
        self.pool.runs(self.worker, Some(renewed));
    }

    /// Returns whether any variable may have changed since the last call of [`get_var`](Self::get_var) for
    /// any variable.
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
        // The epoch is read first: the next call notices a later change.
        self.epoch = self.pool.signals.epoch();
        self.quiet = Signals::quiet(self.epoch);
        for (slot, copy) in self.copies.iter_mut().enumerate() {
            copy.value = self.pool.variables.read(slot);
        }
    }

    /// Offers a new value, which is adopted and published if it improves on the value known to the node. Returns
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

    /// Returns this task's output so far, for adding to it. It counts exactly once, when the task
    /// completes.
    #[inline]
    pub fn output(&mut self) -> &mut T::Output {
        &mut self.part.output
    }

    /// Reports progress in units of the program's choice, such as states visited. The cost of batched calls,
    /// for example one per thousand units, is not measurable.
    #[inline]
    pub fn worked(&self, units: u64) {
        self.pool.worked(self.worker).add(units);
    }

    /// Reports that `share` (of 1) of the whole job is done, as estimated by the program. The sum over all
    /// tasks is shown to observers ([`Figures::share`](crate::report::Figures::share)).
    #[inline]
    pub fn progressed(&self, share: f64) {
        self.pool.done(self.worker).add(Figures::attos(share));
    }

    /// Updates the task's [outlook](crate::Hooks::outlook).
    pub fn set_outlook(&self, outlook: Option<f64>) {
        self.pool.at_work(self.worker).set(outlook);
    }

    /// Reports that the task is about to complete although work in it is left, such as at a limit: nothing better than
    /// this number is in it (`None`: unknown). Observers take it into account, also after the job is done.
    pub fn leave_open(&self, outlook: Option<f64>) {
        self.pool.leave_open(outlook);
    }

    /// Fails the job because of an error in the program: the same task would fail again on any node, so it is not
    /// repeated as after a panic. The task should return soon; its output is ignored.
    pub fn fail(&self, reason: impl Into<String>) {
        self.pool.fail_mistaken(self.part.id, reason.into());
    }

    /// Returns the units of work reported on this node for this job, by all its workers.
    pub fn worked_here(&self) -> u64 {
        self.pool.worked_here()
    }

    /// Returns the handle of the [companion](crate::companion::Companion) on the task's current node; `None` if the
    /// program has none, or its handle is of another type.
    pub fn companion<H: Send + Sync + 'static>(&self) -> Option<&'a H> {
        self.pool.companion.as_deref()?.downcast_ref()
    }

    /// Returns the task's current node.
    pub fn node(&self) -> NodeId {
        self.pool.node
    }

    pub(crate) fn finish(self) -> Finished<T::Output> {
        let requested = self.requested.get();
        Finished { part: self.part, requested, waker: self.waker }
    }
}

#[cold]
pub(crate) fn undeclared<V: Variable>() -> ! {
    panic!("variable {:?} is not declared in Task::variables", V::NAME)
}

impl<T: Task> fmt::Debug for Context<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.part.id)
            .field("worker", &self.worker)
            .field("children", &self.part.children)
            .finish_non_exhaustive()
    }
}

//! Running a task on a worker.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Claim, Entry, Pool, PoolFault,
    crashes::Crashes,
    crew::{Post, Stint, Workplace},
    queue::{End, Interruption, Waits},
    times::Doing,
};
use crate::{
    context::{Context, Finished, Part},
    idle::Idle,
    scope::{Completed, Spawned, Then},
    task::{Outcome, Task},
};

/// A search that has returned, or panicked.
pub(super) struct Searched<T: Task> {
    pub(super) outcome: thread::Result<Outcome>,
    pub(super) finished: Finished<T::Output>,
    pub(super) crashes: Crashes,
    pub(super) task: T,
}

impl<T: Task> Workplace for Pool<T> {
    fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    fn allot(&self, slots: usize, shared: bool) {
        if self.queue.allot(slots, shared, &self.signals) {
            self.notify_changed();
        }
    }

    fn recall(&self, worker: usize, _: bool) {
        self.queue.recall(worker, &self.signals);
    }

    fn welcome(&self, worker: usize) {
        self.queue.welcome(worker);
    }

    fn stint(self: Arc<Self>, worker: usize) -> Stint {
        let next =
            || self.queue.next(worker, &self.signals, || self.notify_changed(), &|stops| self.idle(stops));
        self.times.note(worker, Doing::Looking);
        while let Some(entry) = next() {
            self.run(entry, worker);
        }
        self.times.note(worker, Doing::Away);
        Stint::Over
    }

    fn enlist(&self, post: Post) {
        self.queue.enlist(post);
    }

    fn set_claim(&self, claim: Claim) {
        self.queue.set_claim(claim);
    }
}

impl<T: Task> Pool<T> {
    /// Runs a task until it is complete or stops.
    pub(crate) fn run(&self, entry: Entry<T>, worker: usize) {
        let mut next = Some(entry);
        while let Some(entry) = next {
            let searched = self.search(entry, worker);
            next = self.conclude(searched, worker);
        }
        self.at_work(worker).clear();
        self.runs(worker, None);
    }

    /// Lets the program use a worker without a task. Returns the time of the next call.
    fn idle(&self, stops: &dyn Fn() -> bool) -> Option<Duration> {
        catch_unwind(AssertUnwindSafe(|| (T::HOOKS.idle)(&Idle::new(self, stops)))).unwrap_or_else(|panic| {
            self.fail(PoolFault::PanickedIdle { message: message(&*panic) });
            None
        })
    }

    /// Calls the program's search once.
    pub(super) fn search(&self, entry: Entry<T>, worker: usize) -> Searched<T> {
        let Entry {
            id, scope, children, spawned, crashes, output, outlook, basis, lineage, mut task, ..
        } = entry;
        self.runs(worker, Some(id));
        self.at_work(worker).set(outlook);
        let crashes = crashes.running(Instant::now());
        // It has only waited for its spawned tasks: no work is left to search.
        let is_done = spawned.awaited().is_some();
        let spawned = if is_done { Spawned::Nothing } else { spawned };
        let mut cx =
            Context::new(self, worker, Part { id, scope, children, spawned, output, basis, lineage });
        let mut search = || if is_done { Outcome::Complete } else { task.search(&mut cx) };
        self.times.note(worker, Doing::Searching);
        let outcome = catch_unwind(AssertUnwindSafe(&mut search));
        self.times.note(worker, Doing::Handling);
        Searched { outcome, finished: cx.finish(), crashes, task }
    }

    /// Handles the outcome of a search. Returns the task if it continues immediately. A panic of the program's code,
    /// even while it encodes a task, counts as a panic of the task.
    pub(super) fn conclude(&self, searched: Searched<T>, worker: usize) -> Option<Entry<T>> {
        let Part { id, lineage, .. } = &searched.finished.part;
        let (task, lineage) = (*id, lineage.clone());
        let concluding = AssertUnwindSafe(|| self.conclude_unguarded(searched, worker));
        catch_unwind(concluding).unwrap_or_else(|panic| {
            self.fail(PoolFault::panicked(task, lineage, &*panic));
            None
        })
    }

    fn conclude_unguarded(&self, searched: Searched<T>, worker: usize) -> Option<Entry<T>> {
        let Searched { outcome, finished, crashes, task } = searched;
        let Finished { part, requested, waker } = finished;
        let id = part.id;
        match outcome {
            Ok(Outcome::Complete) => self.complete_or_join(worker, part, crashes, task),
            Ok(Outcome::Wait) => {
                let now = Instant::now();
                let entry = part.stopped(crashes.polled(now).resting(now), task);
                match waker {
                    Some(waker) => self.wait_by(worker, entry, Waits::Outside(waker.wake_up()), &[]),
                    None => self.wait_for_spawned(worker, entry, Then::GoesOn),
                }
            }
            Ok(Outcome::Migrate) if requested.stop => {
                self.put_by(worker, part.stopped(crashes.polled(Instant::now()), task), End::Back);
            }
            Ok(Outcome::Migrate) if requested.snapshot => {
                return self.interrupt(worker, part.stopped(crashes.polled(Instant::now()), task));
            }
            // A task that stops without a request would be started and stop again without end.
            Ok(Outcome::Migrate) => self.fail(PoolFault::Deserted { task: id }),
            Err(panic) => self.fail(PoolFault::panicked(id, part.lineage, &*panic)),
        }
        None
    }

    /// Completes a task. If others may wait for it, it waits first until its spawned tasks are complete.
    fn complete_or_join(&self, worker: usize, part: Part<T::Output>, crashes: Crashes, task: T) {
        if let Spawned::Tasks { scope, tasks } = &part.spawned {
            if part.scope.is_none() {
                self.queue.forget_scope(*scope);
            } else if !self.queue.close_scope(worker, *scope, tasks) {
                return self.wait_for_spawned(
                    worker,
                    part.stopped(crashes.resting(Instant::now()), task),
                    Then::Completes,
                );
            }
        }
        let Part { id, scope, children, spawned, output, basis, .. } = part;
        let completed = Completed { id, scope, children: &children, renewed: None, spawned: &spawned };
        self.complete(worker, basis, &completed, output);
    }

    /// Makes a task wait for its spawned tasks. It continues under a new id, which names the spawned tasks: when the
    /// new id is in the global task list, so are they.
    fn wait_for_spawned(&self, worker: usize, entry: Entry<T>, then: Then) {
        let Entry { id, scope, children, spawned, basis, .. } = entry;
        let Spawned::Tasks { scope: own, ref tasks } = spawned else {
            return self.fail(PoolFault::WaitsForNothing { task: id });
        };
        let renewed = self.new_id();
        let completed =
            Completed { id, scope, children: &children, renewed: Some(renewed), spawned: &spawned };
        self.complete(worker, basis, &completed, T::Output::default());
        let waiting = Entry {
            id: renewed,
            scope,
            children: Vec::new(),
            spawned: Spawned::Awaited { scope: own, then },
            crashes: entry.crashes,
            output: entry.output,
            outlook: entry.outlook,
            order: entry.order,
            basis,
            lineage: entry.lineage.of_child(id),
            task: entry.task,
        };
        self.wait_by(worker, waiting, Waits::Scope, tasks);
    }

    /// Handles an interrupted task. Returns it if it continues.
    fn interrupt(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
        self.yield_if_asked(worker, self.handle_interruption(worker, entry)?)
    }

    /// Queues a running task if its worker should leave, or should run the spawned tasks. Returns it
    /// otherwise.
    pub(super) fn yield_if_asked(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
        let yields = self.queue.yields(worker);
        if self.queue.is_recalled(worker) || yields {
            self.put_by(worker, entry, if yields { End::Second } else { End::Front });
            return None;
        }
        Some(entry)
    }

    /// Performs the request for which a running task was interrupted. Returns the task unless it was dropped.
    pub(super) fn handle_interruption(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
        match self.queue.interruption(worker, entry.basis, &self.signals) {
            Interruption::Drop => return None,
            Interruption::GoOn => {}
            Interruption::Seal => {
                if self.queue.pass(worker, self.seal_for_cut(&entry)) {
                    self.notify_changed();
                }
            }
        }
        Some(entry)
    }
}

pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

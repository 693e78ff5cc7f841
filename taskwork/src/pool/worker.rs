//! What a worker does with a task.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use tokio::time::Instant;

use super::{
    Entry, Pool, PoolFault,
    crew::{Post, Stint, Workplace},
    deaths::Deaths,
    queue::{End, Interruption},
};
use crate::{
    context::{Context, Finished},
    task::{Outcome, Task},
};

/// A search that has returned, or panicked.
pub(super) struct Searched<T: Task> {
    pub(super) outcome: thread::Result<Outcome>,
    pub(super) finished: Finished<T::Output>,
    pub(super) deaths: Deaths,
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

    fn recall(&self, worker: usize) {
        self.queue.recall(worker, &self.signals);
    }

    fn welcome(&self, worker: usize) {
        self.queue.welcome(worker);
    }

    fn stint(self: Arc<Self>, worker: usize) -> Stint {
        while let Some(entry) = self.queue.next(worker, &self.signals, || self.notify_changed()) {
            self.run(entry, worker);
        }
        Stint::Over
    }

    fn enlist(&self, post: Post) {
        self.queue.enlist(post);
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

    /// Calls the program's search once.
    pub(super) fn search(&self, entry: Entry<T>, worker: usize) -> Searched<T> {
        let Entry { id, children, deaths, output, outlook, basis, mut task } = entry;
        self.runs(worker, Some(id));
        self.at_work(worker).set(outlook);
        let deaths = deaths.running(Instant::now());
        let mut cx = Context::new(self, worker, id, children, output, basis);
        let outcome = catch_unwind(AssertUnwindSafe(|| task.search(&mut cx)));
        Searched { outcome, finished: cx.finish(), deaths, task }
    }

    /// Handles the outcome of a search. Returns the task if it goes on at once. A panic of the program's code, also
    /// where it encodes a task, is that of the task.
    pub(super) fn conclude(&self, searched: Searched<T>, worker: usize) -> Option<Entry<T>> {
        let task = searched.finished.id;
        let concluding = AssertUnwindSafe(|| self.conclude_unguarded(searched, worker));
        catch_unwind(concluding).unwrap_or_else(|panic| {
            self.fail(PoolFault::Panicked { task, message: message(&*panic) });
            None
        })
    }

    fn conclude_unguarded(&self, searched: Searched<T>, worker: usize) -> Option<Entry<T>> {
        let Searched { outcome, finished, deaths, task } = searched;
        let Finished { id, children, output, basis, requested } = finished;
        match outcome {
            Ok(Outcome::Complete) => self.complete(worker, (id, basis), &children, output),
            Ok(Outcome::Migrate) if requested.stop => {
                let deaths = deaths.polled(Instant::now());
                let entry = Entry { deaths, basis, ..Entry::resume(id, children, output, task) };
                self.put_by(worker, entry, End::Back);
            }
            Ok(Outcome::Migrate) if requested.snapshot => {
                let deaths = deaths.polled(Instant::now());
                let entry = Entry { deaths, basis, ..Entry::resume(id, children, output, task) };
                return self.interrupt(worker, entry);
            }
            // A task that stops without a request would be begun and stop again for ever.
            Ok(Outcome::Migrate) => self.fail(PoolFault::Deserted { task: id }),
            Err(panic) => self.fail(PoolFault::Panicked { task: id, message: message(&*panic) }),
        }
        None
    }

    /// Handles a running task that was interrupted. Returns it if it goes on.
    fn interrupt(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
        self.yield_if_recalled(worker, self.heed(worker, entry)?)
    }

    /// Queues a running task if its worker is to leave. Returns it otherwise.
    pub(super) fn yield_if_recalled(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
        if self.queue.is_recalled(worker) {
            self.put_by(worker, entry, End::Front);
            return None;
        }
        Some(entry)
    }

    /// Does with a running task what it was interrupted for. Returns it unless it is to be dropped.
    pub(super) fn heed(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
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

/// Returns the message of a panic.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

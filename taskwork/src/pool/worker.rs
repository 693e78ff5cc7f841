//! The workers: threads that run tasks.

use std::{
    any::Any,
    convert::Infallible,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

use tokio::{sync::mpsc, time::Instant};

use super::{Entry, Pool, PoolFault, deaths::Deaths, queue::Interruption};
use crate::{
    context::{Context, Finished},
    task::{Outcome, Task},
};

/// The threads of a pool. Dropping them does not end them: close the pool first, then [`join`](Self::join)
/// them, or wait until they have [returned](Self::returned).
#[derive(Debug)]
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    /// Closed when the last worker has returned: each holds a sender.
    back: mpsc::Receiver<Infallible>,
}

impl Workers {
    /// Starts as many workers as the pool was made for.
    ///
    /// # Errors
    /// If the operating system refuses a thread. The workers already started are ended.
    pub(crate) fn start<T: Task>(pool: &Arc<Pool<T>>) -> io::Result<Self> {
        let (away, back) = mpsc::channel(1);
        let mut workers = Self { threads: Vec::new(), back };
        for worker in 0..pool.worked.len() {
            let (its_pool, away) = (Arc::clone(pool), away.clone());
            let thread = thread::Builder::new().name(format!("worker-{worker}"));
            let work = move || {
                its_pool.work(worker);
                drop(away);
            };
            match thread.spawn(work) {
                Ok(handle) => workers.threads.push(handle),
                Err(refused) => {
                    pool.queue.close(&pool.signals);
                    workers.join();
                    return Err(refused);
                }
            }
        }
        Ok(workers)
    }

    /// Creates a handle without threads: the pool is worked by futures, which drop their senders when they
    /// return.
    #[cfg(feature = "simulation")]
    pub(crate) fn sliced(back: mpsc::Receiver<Infallible>) -> Self {
        Self { threads: Vec::new(), back }
    }

    /// Waits until every worker has returned, without blocking a thread.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn returned(&mut self) {
        // Nothing is ever sent.
        let _ = self.back.recv().await;
    }

    /// Returns the number of workers that have not returned.
    pub(crate) fn out(&self) -> usize {
        self.back.sender_strong_count()
    }

    /// Waits until every worker has returned: each does at its task's next `migrate()`.
    pub(crate) fn join(self) {
        for thread in self.threads {
            thread.join().expect("a worker catches the panics of its tasks");
        }
    }
}

/// A search that has returned, or panicked.
pub(super) struct Searched<T: Task> {
    pub(super) outcome: thread::Result<Outcome>,
    pub(super) finished: Finished<T::Output>,
    pub(super) deaths: Deaths,
    pub(super) task: T,
}

impl<T: Task> Pool<T> {
    fn work(&self, worker: usize) {
        while let Some(entry) = self.queue.next(worker, &self.signals, || self.notify_changed()) {
            self.run(entry, worker);
        }
    }

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
                self.put_by(worker, Entry { deaths, basis, ..Entry::resume(id, children, output, task) });
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
    pub(super) fn interrupt(&self, worker: usize, entry: Entry<T>) -> Option<Entry<T>> {
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

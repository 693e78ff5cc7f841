//! Runs a job on the caller's thread, and interrupts, sends and splits its tasks far more often than a cluster: see
//! [`check`](crate::check()).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use super::{
    Entry, Pool, PoolLimits, Source, Work as _,
    queue::{End, Next},
    worker::{Searched, message},
};
use crate::{
    check::{CheckError, Drill},
    config::Limits,
    figures::Figures,
    holdings::Basis,
    id::{NodeId, TaskId},
    job::Job,
    output::Output as _,
    report::{Report, Values},
    task::{Outcome, Task},
    wire::{codec, large},
};

/// The polls of a task that interrupt it.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// 0 for none.
    every: AtomicU64,
    polls: AtomicU64,
    /// Whether the current call of `search` was interrupted.
    done: AtomicBool,
}

impl Interrupts {
    fn begin_call(&self, every: u64) {
        self.every.store(every, Relaxed);
        self.polls.store(0, Relaxed);
        self.done.store(false, Relaxed);
    }

    /// Counts a poll. Returns whether the task must stop; once true, it remains true for this call.
    pub(crate) fn poll(&self) -> bool {
        let (every, polls) = (self.every.load(Relaxed), self.polls.fetch_add(1, Relaxed) + 1);
        if every > 0 && polls >= every {
            self.done.store(true, Relaxed);
        }
        self.done.load(Relaxed)
    }
}

/// The number of thieves with which every offered split is taken.
const INSATIABLE: usize = usize::MAX / 2;

/// Runs a job with a disturbance.
///
/// # Errors
/// If the job fails.
pub(crate) fn run<T: Task>(job: Job<T>, drill: Drill) -> Result<Report<T>, CheckError> {
    let began = Instant::now();
    let failed = |reason: String| CheckError::Failed { drill, reason };
    let values = Job::<T>::encoded_values(job.start_values)
        .map_err(|error| failed(format!("a start value: {error}")))?;
    let shared = if drill.sends() {
        let sent =
            large::encode(&*job.shared).map_err(|error| failed(format!("the shared data: {error}")))?;
        let read = large::decode(&sent);
        Arc::new(read.map_err(|error| {
            failed(format!("the shared data, {}: {error}", std::any::type_name::<T::Shared>()))
        })?)
    } else {
        job.shared
    };
    let limits = PoolLimits { ledger: false, ..PoolLimits::of(&Limits::default()) };
    let pool =
        Pool { interrupts: Some(Interrupts::default()), ..Pool::<T>::new(NodeId(1), shared, 1, limits) };
    for (name, value) in &values {
        let slot = pool.variables.names().position(|known| known == name);
        let slot =
            slot.ok_or_else(|| failed(format!("variable {name:?} is not declared in Task::variables")))?;
        let offered = pool.variables.offer_encoded(slot, value, Source::Node, &pool.signals);
        offered.map_err(|error| failed(format!("a start value: {error}")))?;
    }
    let mut running = Running { pool, drill, output: T::Output::default() };
    if drill.splits() {
        running.pool.set_thieves(INSATIABLE);
    }
    running.pool.signals.set_stop(true);
    let root = Entry::new(TaskId::ROOT, job.root);
    running.put(root)?;
    running.run_all()?;
    let Running { pool, output, .. } = running;
    Ok(Report {
        output,
        finished: true,
        suspended: false,
        cancelled: None,
        set_aside: Vec::new(),
        figures: Figures { worked: pool.worked_here(), ..Figures::default() },
        elapsed: began.elapsed(),
        variables: Values { table: pool.variables },
    })
}

struct Running<T: Task> {
    pool: Pool<T>,
    drill: Drill,
    output: T::Output,
}

impl<T: Task> Running<T> {
    fn failed(&self, reason: impl Into<String>) -> CheckError {
        CheckError::Failed { drill: self.drill, reason: reason.into() }
    }

    fn run_all(&mut self) -> Result<(), CheckError> {
        let mut waits = false;
        loop {
            match self.pool.queue.try_next(0, &self.pool.signals, &mut waits, || {}) {
                Next::Task(entry) => {
                    let entry = self.sent(entry)?;
                    self.search(entry)?;
                }
                Next::Nothing | Next::Leave if self.pool.queue.open_tasks() == 0 => return Ok(()),
                Next::Nothing | Next::Leave => {
                    return Err(
                        self.failed("a task waits for an event from outside, which no check can make happen")
                    );
                }
            }
            if let Some(fault) = self.pool.fault() {
                return Err(self.failed(fault.to_string()));
            }
        }
    }

    /// Calls a task until it is complete or waits.
    fn search(&mut self, entry: Entry<T>) -> Result<(), CheckError> {
        let (mut next, mut every) = (Some(entry), self.drill.every());
        while let Some(entry) = next.take() {
            let before = codec::encode(&entry.task).ok();
            self.pool.interrupts.iter().for_each(|interrupts| interrupts.begin_call(every));
            let Searched { outcome, mut finished, crashes, task } = self.pool.search(entry, 0);
            match outcome {
                Err(panic) => return Err(self.failed(format!("a task panicked: {}", message(&*panic)))),
                Ok(Outcome::Migrate) if finished.requested.stop => {
                    // A task that polls before its first step must be able to do that step.
                    every = if codec::encode(&task).ok() == before { every * 2 } else { self.drill.every() };
                    next = Some(self.sent(finished.part.stopped(crashes, task))?);
                }
                Ok(outcome) => {
                    if outcome == Outcome::Complete {
                        let output = std::mem::take(&mut finished.part.output);
                        self.output.merge(self.sent_output(output)?);
                    }
                    let next =
                        self.pool.conclude(Searched { outcome: Ok(outcome), finished, crashes, task }, 0);
                    debug_assert!(next.is_none(), "nothing has interrupted it");
                }
            }
        }
        self.pool.runs(0, None);
        Ok(())
    }

    fn put(&self, root: Entry<T>) -> Result<(), CheckError> {
        let put = self.pool.queue.put_by(0, root, End::Back, None, &self.pool.signals);
        put.map(drop).map_err(|_| self.failed("the root task cannot be queued"))
    }

    /// Returns a task as decoded by another node.
    fn sent(&self, entry: Entry<T>) -> Result<Entry<T>, CheckError> {
        if !self.drill.sends() {
            return Ok(entry);
        }
        let name = std::any::type_name::<T>();
        let envelope =
            entry.seal().map_err(|error| self.failed(format!("a task, {name}, cannot be sent: {error}")))?;
        let opened = Entry::open(envelope).map_err(|error| {
            self.failed(format!("a task, {name}, cannot be read as it was sent: {error}"))
        })?;
        let (basis, lineage) = (Basis::FIRM, entry.lineage);
        Ok(Entry { basis, lineage, ..opened })
    }

    fn sent_output(&self, output: T::Output) -> Result<T::Output, CheckError> {
        if !self.drill.sends() {
            return Ok(output);
        }
        let bytes = codec::encode(&output).map_err(|error| self.failed(format!("an output: {error}")))?;
        codec::decode(&bytes).map_err(|error| self.failed(format!("an output: {error}")))
    }
}

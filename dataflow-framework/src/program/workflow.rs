//! Runs a program.

use std::{
    error::Error,
    io,
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread,
};

use thiserror::Error;

use super::{
    engine::{Engine, Stopped},
    flow::Flow,
};
use crate::{
    failure::Failure,
    figures::Figures,
    isolated,
    node::{Crew, Room, Store},
    task::{DuplicateTaskName, TaskDef, Tasks},
};

/// The default of [`Workflow::calls_ahead_max`].
const CALLS_AHEAD_MAX: usize = 100_000;

/// The maximum number of workers.
const WORKERS_MAX: usize = 1024;

/// A program to be run: its tasks, and where they run.
#[derive(Debug)]
#[must_use = "it is run by `run`"]
pub struct Workflow {
    tasks: Tasks,
    workers: usize,
    calls_ahead_max: usize,
    store_bytes: Option<u64>,
    is_checked: bool,
}

/// The failure of a program.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// The table of its tasks is wrong.
    #[error(transparent)]
    Tasks(#[from] DuplicateTaskName),
    /// The thread of a worker could not be started.
    #[error("no thread could be started: {0}")]
    Thread(#[source] io::Error),
    /// The process was started to run an isolated call, and runs the program instead.
    #[error(
        "this process was started for an isolated call, and runs the program again: its `main` has to begin with \
         `dataflow_framework::serve_isolated`"
    )]
    Isolated,
    /// A call has failed.
    #[error(transparent)]
    Call(#[from] Failure),
    /// The program itself has returned an error.
    #[error(transparent)]
    Program(Box<dyn Error + Send + Sync>),
}

impl Workflow {
    /// Describes a program by its tasks ([`tasks!`](crate::tasks)), to be run by all processors of this machine.
    ///
    /// # Errors
    /// If two tasks have one name.
    pub fn new(tasks: impl IntoIterator<Item = &'static TaskDef>) -> Result<Self, WorkflowError> {
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        let tasks = Tasks::new(tasks)?;
        Ok(Self { tasks, workers, calls_ahead_max: CALLS_AHEAD_MAX, store_bytes: None, is_checked: false })
    }

    /// Sets the number of workers, from 1 to 1024.
    ///
    /// # Panics
    /// If it is another one.
    pub fn workers(mut self, workers: usize) -> Self {
        assert!(
            (1..=WORKERS_MAX).contains(&workers),
            "{workers} workers are not between 1 and {WORKERS_MAX}"
        );
        self.workers = workers;
        self
    }

    /// Runs each call at once where the program makes it, as if the tasks were plain functions: for tests, and to find
    /// errors. The results are the same.
    pub fn sequential(mut self) -> Self {
        self.workers = 0;
        self
    }

    /// Runs each task twice on the same data, and compares what it writes, and what it only reads with what that was
    /// before. A call that shows a difference has failed: its task is not a function of what it reads.
    pub fn checked(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// Sets the maximum number of unfinished calls, by default 100,000. A program that is so far ahead of its tasks
    /// waits. Each takes some hundred bytes, and what its arguments hold.
    ///
    /// # Panics
    /// If it is 0.
    pub fn calls_ahead_max(mut self, calls: usize) -> Self {
        assert!(calls > 0, "a program that may not be ahead of its tasks cannot call one");
        self.calls_ahead_max = calls;
        self
    }

    /// Sets how much memory the data of the program may take, in bytes; by default there is no limit. Beyond it data is
    /// moved to files, and read when it is needed; see [`set_store`](crate::set_store) for what counts.
    ///
    /// # Panics
    /// If it is 0.
    pub fn store(mut self, bytes: u64) -> Self {
        assert!(bytes > 0, "a store of no bytes holds nothing");
        self.store_bytes = Some(bytes);
        self
    }

    /// Runs the program on this thread, and its tasks on those of the workers, until the program has returned and all
    /// calls have ended.
    ///
    /// # Errors
    /// If the program returns an error; or a call has failed, and the program was not told, by
    /// [`Data::get`](crate::Data::get), of that or of what depends on it; or a thread cannot be started.
    ///
    /// # Panics
    /// If the program panics.
    pub fn run<R, E>(self, program: impl FnOnce() -> Result<R, E>) -> Result<R, WorkflowError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.measured(program).map(|(returned, _)| returned)
    }

    /// Does the same as [`run`](Self::run), and returns also what was counted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// If the program panics.
    pub fn measured<R, E>(self, program: impl FnOnce() -> Result<R, E>) -> Result<(R, Figures), WorkflowError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        if isolated::is_child() {
            return Err(WorkflowError::Isolated);
        }
        let Self { tasks, workers, calls_ahead_max, store_bytes, is_checked } = self;
        let queue = Arc::default();
        let store = store_bytes.map_or_else(Store::default, |bytes| Store::limited(Room::Bytes(bytes)));
        let tasks = Arc::new(tasks);
        let engine =
            Engine::new(Arc::clone(&queue), store, workers, calls_ahead_max, Some(Arc::clone(&tasks)));
        if is_checked {
            engine.check();
        }
        // Ends the threads also when the program panics.
        let _crew = Crew::start(&queue, workers).map_err(WorkflowError::Thread)?;
        // Tasks that wait for calls must not be waited for.
        let _ended = EndsSite(&engine);
        let flow = Flow::new(Arc::clone(&engine), Some(tasks));
        let whole = AssertUnwindSafe(|| {
            let returned = {
                let _entered = flow.enter();
                program().map_err(|error| match error.into().downcast::<Failure>() {
                    Ok(failure) => WorkflowError::Call(*failure),
                    Err(error) => WorkflowError::Program(error),
                })?
            };
            Ok((returned, engine.settle()?))
        });
        match catch_unwind(whole) {
            Ok(ended) => ended,
            Err(panic) => match engine.fatal().filter(|_| panic.is::<Stopped>()) {
                Some(failure) => Err(WorkflowError::Call(failure)),
                None => resume_unwind(panic),
            },
        }
    }
}

/// Ends what is done for a program when it is dropped.
struct EndsSite<'a>(&'a Engine);

impl Drop for EndsSite<'_> {
    fn drop(&mut self) {
        self.0.site.end();
    }
}

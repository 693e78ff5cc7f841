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
    cache::Cache,
    failure::Failure,
    figures::Figures,
    isolated,
    node::{Crew, Room, Store},
    settings::Settings,
    task::{DuplicateTaskName, TaskDef, Tasks},
};

/// The maximum number of unfinished calls of a program, by default.
pub(crate) const CALLS_AHEAD_MAX: usize = 100_000;

const WORKERS_MAX: usize = 1024;

/// A program to run: its tasks, and the place where they run.
#[derive(Debug)]
#[must_use = "it is run by `run`"]
pub struct Workflow {
    tasks: Tasks,
    /// `None` if the program runs each call itself.
    workers: Option<usize>,
    calls_ahead_max: usize,
    store_bytes: Option<u64>,
    cache: Option<String>,
    is_checked: bool,
    settings: Settings,
}

/// The failure of a program.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// The table of the program's tasks is invalid.
    #[error(transparent)]
    Tasks(#[from] DuplicateTaskName),
    /// A setting, or a changed option of a task, is invalid.
    #[error("{0}")]
    Setting(String),
    /// The thread of a worker could not be started.
    #[error("no thread could be started: {0}")]
    Thread(#[source] io::Error),
    /// The process was started to run an isolated call, but runs the program.
    #[error(
        "this process was started for an isolated call, and runs the program again: its `main` must start with \
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
    /// Describes a program by its tasks ([`tasks!`](crate::tasks)). It uses all processors of this machine.
    ///
    /// # Errors
    /// Fails if two tasks have the same name.
    pub fn new(tasks: impl IntoIterator<Item = &'static TaskDef>) -> Result<Self, WorkflowError> {
        let workers = Some(thread::available_parallelism().map_or(1, NonZero::get).min(WORKERS_MAX));
        let tasks = Tasks::new(tasks)?;
        Ok(Self {
            tasks,
            workers,
            calls_ahead_max: CALLS_AHEAD_MAX,
            store_bytes: None,
            cache: None,
            is_checked: false,
            settings: Settings::default(),
        })
    }

    /// Sets the number of workers, from 1 to 1024.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Runs each call immediately where the program makes it, as if the tasks were plain functions: for tests,
    /// and for debugging. The results are the same.
    pub fn sequential(mut self) -> Self {
        self.workers = None;
        self
    }

    /// Runs each task twice on the same data and compares the outputs, and compares its read-only inputs before
    /// and after. A call with a difference has failed: the output of its task depends on more than its inputs.
    pub fn checked(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// Sets the maximum number of unfinished calls, by default 100,000. A program at this limit waits. Each
    /// call takes a few hundred bytes plus its arguments.
    pub fn calls_ahead_max(mut self, calls: usize) -> Self {
        self.calls_ahead_max = calls;
        self
    }

    /// Sets the maximum memory for the data of the program, in bytes; unlimited by default. Data beyond it is
    /// moved to files, and read when needed; [`Settings::store`] defines the memory that counts, and applies if this
    /// is not called.
    pub fn store(mut self, bytes: u64) -> Self {
        self.store_bytes = Some(bytes);
        self
    }

    /// Sets the folder, or the URI of the store, in which outputs of [cached](crate::Options::cached) calls are kept and found;
    /// [`Settings::cache`] describes it, and applies if this is not called.
    pub fn cache(mut self, place: impl Into<String>) -> Self {
        self.cache = Some(place.into());
        self
    }

    /// Applies settings to this process before the program starts.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Changes options of tasks, such as `align.retry=5`: they replace those of the attribute and of the calls.
    ///
    /// # Errors
    /// Fails if there is no such task or option, or the value is invalid.
    pub fn task_options(mut self, given: &[String]) -> Result<Self, WorkflowError> {
        self.tasks.change(given).map_err(WorkflowError::Setting)?;
        Ok(self)
    }

    /// Runs the program on this thread and its tasks on worker threads, until the program has returned and all
    /// calls have completed.
    ///
    /// # Errors
    /// Fails if the program returns an error; if a call has failed and the program has received neither its
    /// failure nor one of data that depends on it from [`Data::get`](crate::Data::get); if a thread cannot be
    /// started; or if a setting is invalid.
    ///
    /// # Panics
    /// Panics if the program panics.
    pub fn run<R, E>(self, program: impl FnOnce() -> Result<R, E>) -> Result<R, WorkflowError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.run_with_stats(program).map(|(returned, _)| returned)
    }

    /// Does the same as [`run`](Self::run), and also returns statistics.
    ///
    /// # Errors
    /// Fails like [`run`](Self::run).
    ///
    /// # Panics
    /// Panics if the program panics.
    pub fn run_with_stats<R, E>(
        self,
        program: impl FnOnce() -> Result<R, E>,
    ) -> Result<(R, Figures), WorkflowError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        if isolated::is_child() {
            return Err(WorkflowError::Isolated);
        }
        self.check_settings().map_err(WorkflowError::Setting)?;
        let Self { tasks, workers, calls_ahead_max, store_bytes, cache, is_checked, settings } = self;
        let store_bytes = store_bytes.or(settings.store_bytes);
        let invalid = |error: io::Error| WorkflowError::Setting(error.to_string());
        settings.apply().map_err(invalid)?;
        let cache = cache.map(|place| Cache::open(&place, false)).transpose().map_err(invalid)?;
        let workers = workers.unwrap_or(0);
        let queue = Arc::default();
        let store = store_bytes.map_or_else(Store::default, |bytes| Store::limited(Room::Bytes(bytes)));
        let tasks = Arc::new(tasks);
        let engine =
            Engine::new(Arc::clone(&queue), store, workers, calls_ahead_max, Some(Arc::clone(&tasks)));
        engine.executor.use_cache(cache.or_else(Cache::of_process));
        if is_checked {
            engine.check();
        }
        // Stops the threads even if the program panics.
        let _crew = Crew::start(&queue, workers).map_err(WorkflowError::Thread)?;
        // Tasks that wait for calls must not delay the end.
        let _ended = EndOnDrop(&engine);
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
            Err(panic) => {
                match engine.inspect(|graph| graph.fatal().cloned()).filter(|_| panic.is::<Stopped>()) {
                    Some(failure) => Err(WorkflowError::Call(failure)),
                    None => resume_unwind(panic),
                }
            }
        }
    }
}

impl Workflow {
    fn check_settings(&self) -> Result<(), String> {
        if let Some(workers) = self.workers.filter(|workers| !(1..=WORKERS_MAX).contains(workers)) {
            return Err(format!("the number of workers, {workers}, is not between 1 and {WORKERS_MAX}"));
        }
        if self.calls_ahead_max == 0 {
            return Err("the maximum number of unfinished calls, 0, is not at least 1".to_owned());
        }
        if self.store_bytes == Some(0) {
            return Err("a store of 0 bytes holds nothing".to_owned());
        }
        Ok(())
    }
}

/// Ends the work for a program on drop.
struct EndOnDrop<'a>(&'a Engine);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.executor.end();
    }
}

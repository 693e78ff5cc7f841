//! Running a job within this process, on all cores, without a server.

use std::{
    fmt,
    num::NonZeroUsize,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    config::{Limits, NODES_MAX, WORKERS_MAX},
    erased::{Kind, PoolOpening, PoolSetup},
    job::Job,
    report::{JobError, Observer, Progress, Report, Scaler, Stopper, variables_of},
    shell::{
        embedded::{self, Setup},
        kept::{Identity, Kept},
        kinds::Of,
        submit::Root,
    },
    state::State,
    task::Task,
    wire::{codec::EncodeError, large},
};

/// A job that runs within this process, created from a [`Job`] by its settings for such a run.
///
/// The default is one node with a worker for each processor. With [`nodes`](Self::nodes), several nodes, each with
/// its own pool, run within the process and communicate by the full protocol over the loopback interface, as on
/// several machines.
pub struct LocalJob<T: Task> {
    job: Job<T>,
    nodes: usize,
    workers: Option<usize>,
    limits: Limits,
    stopper: Stopper,
    scaler: Option<Scaler>,
    progress: Option<Observer>,
    state: Option<State>,
}

impl<T: Task> LocalJob<T> {
    pub(crate) fn new(job: Job<T>) -> Self {
        Self {
            job,
            nodes: 1,
            workers: None,
            limits: Limits::default(),
            stopper: Stopper::default(),
            scaler: None,
            progress: None,
            state: None,
        }
    }

    /// Sets the number of nodes within this process, 1 by default, at most [`NODES_MAX`].
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the number of workers of each node, at most [`WORKERS_MAX`]; by default the number of processors,
    /// shared among the nodes.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns a handle that stops the job.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns a handle that changes the number of nodes while the job runs.
    pub fn scaler(&mut self) -> Scaler {
        self.scaler.get_or_insert_default().clone()
    }

    /// Replaces the job's stopper by this one.
    #[must_use]
    pub fn stopped_by(mut self, stopper: Stopper) -> Self {
        self.stopper = stopper;
        self
    }

    /// Sets a callback for progress, which is called periodically while the job runs, on a thread of the runtime, so it
    /// must not block.
    #[must_use]
    pub fn on_progress(mut self, every: Duration, tell: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.progress = Some(Observer { every, tell: Box::new(tell) });
        self
    }

    /// Keeps the job's state in a directory, from which it continues. See [`State`].
    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Runs the job to completion, or until it is [stopped](Self::stopper). It blocks the thread: use
    /// `spawn_blocking` in `async` code.
    ///
    /// # Errors
    /// If the job cannot be set up, or the program is at fault: a task panics or cannot be encoded. With a
    /// [state](Self::state), if its directory holds another job, or cannot be used; a full disk ends the run, and the
    /// same job continues when there is space. A task that panics then is continued from its last written state, and
    /// [set aside](Report::set_aside) if it panics repeatedly.
    pub fn run(self) -> Result<Report<T>, JobError> {
        let started = Instant::now();
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        check("nodes", self.nodes, NODES_MAX)?;
        let workers = self.workers.unwrap_or_else(|| (processors / self.nodes).max(1));
        check("workers", workers, WORKERS_MAX)?;
        let start_values = Job::<T>::encoded_values(self.job.start_values)?;
        let root = Root::new(self.job.root)?;
        let kind = Shares::<T>::new(&self.job.shared)?;
        // Only the decoded form is used from here on.
        drop(self.job.shared);
        let kept = match self.state {
            None => None,
            Some(State { dir, release, time_limit }) => {
                let identity =
                    Identity::new(release.inner(), &self.job.kind, &kind.shared, &root, &start_values);
                Some(Kept { dir, identity, time_limit })
            }
        };
        let report = embedded::run(Setup {
            root,
            kind: Box::new(kind),
            variables: variables_of::<T>,
            nodes: self.nodes,
            workers,
            limits: self.limits,
            start_values,
            stopper: self.stopper,
            scale: self.scaler.map(|scaler| scaler.subscribe()),
            progress: self.progress,
            kept,
            started,
        })?;
        report.decode()
    }
}

/// A type of task with all its nodes in this process, with the encoded data. Each node decodes the data as on a
/// cluster, even a single one, so that fields lost in encoding are noticed before the program runs on a cluster.
pub(crate) struct Shares<T> {
    shared: Vec<Bytes>,
    of: Of<T>,
}

impl<T: Task> Shares<T> {
    pub(crate) fn new(shared: &T::Shared) -> Result<Self, EncodeError> {
        Ok(Self { shared: large::encode(shared)?, of: Of::default() })
    }
}

impl<T: Task> Kind for Shares<T> {
    fn task_type(&self) -> &'static str {
        self.of.task_type()
    }

    fn open(&self, setup: PoolSetup) -> PoolOpening<'_> {
        self.of.open(PoolSetup { shared: self.shared.clone(), ..setup })
    }
}

/// Checks that a number of nodes or workers is in range.
pub(crate) fn check(what: &'static str, given: usize, max: usize) -> Result<(), JobError> {
    if (1..=max).contains(&given) { Ok(()) } else { Err(JobError::Count { what, given, max }) }
}

impl<T: Task> fmt::Debug for LocalJob<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalJob")
            .field("nodes", &self.nodes)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

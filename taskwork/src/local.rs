//! Running a job within this process, on all cores, without a server.

use std::{num::NonZeroUsize, thread, time::Instant};

use bytes::Bytes;

use crate::{
    config::{NODES_MAX, WORKERS_MAX},
    erased::{Kind, PoolOpening, PoolSetup},
    job::{Job, LocalSettings},
    report::{JobError, Report, variables_of},
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

impl<T: Task> Job<T> {
    /// Runs the job within this process to completion, or until it is [stopped](Self::stopper). It blocks the thread: use
    /// `spawn_blocking` in `async` code.
    ///
    /// # Errors
    /// If the job cannot be set up, or the program is at fault: a task panics or cannot be encoded. With a
    /// [state](Self::state), if its directory holds another job, or cannot be used; a full disk ends the run, and the
    /// same job continues when there is space. A task that panics then is continued from its last written state, and
    /// [set aside](Report::set_aside) if it panics repeatedly.
    pub fn run(self) -> Result<Report<T>, JobError> {
        let started = Instant::now();
        let LocalSettings { nodes, workers, limits, stopper, scaler, progress, state } = self.local;
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        check("nodes", nodes, NODES_MAX)?;
        let workers = workers.unwrap_or_else(|| (processors / nodes).max(1));
        check("workers", workers, WORKERS_MAX)?;
        let start_values = Job::<T>::encoded_values(self.start_values)?;
        let root = Root::new(self.root)?;
        let kind = Shares::<T>::new(&self.shared)?;
        // Only the decoded form is used from here on.
        drop(self.shared);
        let kept = match state {
            None => None,
            Some(State { dir, release, time_limit }) => {
                let identity = Identity::new(release.inner(), &self.kind, &kind.shared, &root, &start_values);
                Some(Kept { dir, identity, time_limit })
            }
        };
        let report = embedded::run(Setup {
            root,
            kind: Box::new(kind),
            variables: variables_of::<T>,
            nodes,
            workers,
            limits,
            start_values,
            stopper,
            scale: scaler.map(|scaler| scaler.subscribe()),
            progress,
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

//! The directory for the state of a job within this process.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::release::Release;

/// A directory for the state of a job within this process, so that it survives the process: a restart of the machine,
/// `kill -9`, a full disk. Set by [`Job::state`](crate::Job::state).
///
/// If the directory already holds the same job, that job is continued, and a finished job returns its result
/// immediately. Two jobs are the same if the program, its version, the kind of task, the shared data, the root
/// task and the start values are; so the shared data must have the same encoding each time, which is not the case
/// for a `HashMap`. The numbers of nodes and workers may differ.
///
/// A job that is [stopped](crate::Stopper), or has reached its [time limit](Self::time_limit), is suspended: all of
/// its tasks are written to the directory, and [`Report::suspended`](crate::Report::suspended) is true.
///
/// ```no_run
/// # use taskwork::{Job, Release, State, Task};
/// # fn evening<T: Task>(job: Job<T>) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let state = State::new("search.state", Release::this_build("queens", "1.0")?);
/// let report = job.state(state.time_limit(Duration::from_secs(3 * 3600))).run()?;
/// if report.suspended {
///     println!("to be continued");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct State {
    pub(crate) dir: PathBuf,
    pub(crate) release: Release,
    pub(crate) time_limit: Option<Duration>,
}

impl State {
    /// Uses this directory, which is created if missing, for a job of this release. A release of
    /// [this build](Release::this_build) refuses jobs of another build, whose tasks may have another
    /// encoding; one [without a build](Release::new) continues jobs of any build of its version.
    pub fn new(dir: impl Into<PathBuf>, release: Release) -> Self {
        Self { dir: dir.into(), release, time_limit: None }
    }

    /// Suspends the job after this time, counted from the start of each run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

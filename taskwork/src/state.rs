//! The directory in which a job within this process keeps its state.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::release::Release;

/// A directory in which a job within this process keeps its state, so that it survives the process: a restart
/// of the machine, `kill -9`, a full disk. Set by [`LocalJob::state`](crate::LocalJob::state).
///
/// If the directory holds the same job already, that job is continued, and one that is done answers with its
/// result at once. It is the same if the program, its version, the kind of task, the shared data, the root
/// task and the start values are; so the shared data must be encoded alike each time, which is not the case
/// for a `HashMap`. The numbers of nodes and workers may differ.
///
/// A job that is [stopped](crate::Stopper), or whose [time](Self::time_limit) is up, is suspended: all of its
/// tasks are written to the directory, and [`Report::suspended`](crate::Report::suspended) is true.
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
    /// Uses this directory, which is created if it is missing, for a job of this release. A release of
    /// [this build](Release::this_build) refuses what another build has left, whose tasks may be encoded
    /// otherwise; one [without a build](Release::new) also continues what any build of its version has left.
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

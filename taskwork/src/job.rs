//! A job: the root of its tree, the data that all its tasks share, the values that its variables begin with.
//! The same job runs within this process or on a cluster.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::{
    config::Limits,
    local::LocalJob,
    report::{JobError, Report},
    task::Task,
    variable::Variable,
    wire::codec::{self, EncodeError},
};

/// A job: to be [run](Self::run) within this process, or [submitted](crate::Client::submit) to a cluster.
///
/// [`run`](Self::run) takes one node with a worker for each processor; [`nodes`](Self::nodes),
/// [`workers`](Self::workers) and what else concerns a run within this process make a [`LocalJob`] of it.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use taskwork::{Context, Job, Outcome, Task};
///
/// /// Counts the leaves of a binary tree.
/// #[derive(Serialize, Deserialize)]
/// struct Count {
///     /// The heights of the subtrees still to be counted.
///     open: Vec<u32>,
/// }
///
/// impl Task for Count {
///     type Shared = ();
///     type Output = u64;
///
///     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
///         while !self.open.is_empty() {
///             if cx.migrate() {
///                 return Outcome::Migrate;
///             }
///             match self.open.pop() {
///                 Some(0) => *cx.output() += 1,
///                 Some(height) => self.open.extend([height - 1, height - 1]),
///                 None => {}
///             }
///             cx.potential_split(self);
///         }
///         Outcome::Complete
///     }
///
///     /// Gives away the largest open subtree, the one at the bottom of the stack.
///     fn split(&mut self, _: &()) -> Option<Self> {
///         (self.open.len() > 1).then(|| Count { open: vec![self.open.remove(0)] })
///     }
/// }
///
/// let report = Job::new(Count { open: vec![16] }, ()).workers(2).run()?;
/// assert_eq!(report.output, 65_536);
/// # Ok::<(), taskwork::JobError>(())
/// ```
pub struct Job<T: Task> {
    pub(crate) root: T,
    pub(crate) shared: Arc<T::Shared>,
    pub(crate) start_values: Vec<(String, Result<Vec<u8>, EncodeError>)>,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) name: Option<String>,
    pub(crate) attempts_max: u32,
}

/// The name of a program's type of task where it has only one.
pub(crate) const ONLY_KIND: &str = "task";

/// How many attempts there may be at a job on a cluster.
const ATTEMPTS_MAX: u32 = 100;

impl<T: Task> Job<T> {
    /// A job that starts with this task, on data that all its tasks share.
    pub fn new(root: T, shared: T::Shared) -> Self {
        Self {
            root,
            shared: Arc::new(shared),
            start_values: Vec::new(),
            kind: Cow::Borrowed(ONLY_KIND),
            name: None,
            attempts_max: ATTEMPTS_MAX,
        }
    }

    /// Gives a variable a value to start with. It is there before the first task begins.
    #[must_use]
    pub fn start_value<V: Variable>(mut self, value: &V::Value) -> Self {
        self.start_values.push((V::NAME.to_owned(), codec::encode(value)));
        self
    }

    /// The name under which the nodes of the program have this type of task, where there are
    /// [several](crate::NodeBuilder::kinds). A run within this process has no need of it.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// What people call the job on a cluster; by default the name of the program. 1 to 200 characters, none
    /// of them a control character. A run within this process has no need of it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How many attempts there may be on a cluster: each node that is lost ends one. By default 100. A run
    /// within this process has one.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// The job within this process, where more can be chosen.
    pub fn here(self) -> LocalJob<T> {
        LocalJob::new(self)
    }

    /// The job on so many nodes within this process. See [`LocalJob::nodes`].
    #[must_use]
    pub fn nodes(self, nodes: usize) -> LocalJob<T> {
        self.here().nodes(nodes)
    }

    /// The job within this process with so many workers. See [`LocalJob::workers`].
    #[must_use]
    pub fn workers(self, workers: usize) -> LocalJob<T> {
        self.here().workers(workers)
    }

    /// The job within this process with other limits. See [`LocalJob::limits`].
    #[must_use]
    pub fn limits(self, limits: Limits) -> LocalJob<T> {
        self.here().limits(limits)
    }

    /// Runs the job within this process to its end, with a worker for each processor.
    ///
    /// # Errors
    /// As [`LocalJob::run`].
    pub fn run(self) -> Result<Report<T>, JobError> {
        self.here().run()
    }

    /// The start values, encoded.
    pub(crate) fn encoded_values(
        values: Vec<(String, Result<Vec<u8>, EncodeError>)>,
    ) -> Result<Vec<(String, Vec<u8>)>, EncodeError> {
        values.into_iter().map(|(name, value)| Ok((name, value?))).collect()
    }
}

impl<T: Task> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("kind", &self.kind).field("name", &self.name).finish_non_exhaustive()
    }
}

//! Running a job within this process: all cores at once, no server.

use std::{
    fmt, io,
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use thiserror::Error;
use tokio::sync::{Notify, watch};

use crate::{
    config::Limits,
    figures::Figures,
    pool::VariableTable,
    shell::embedded::{self, Setup},
    task::{Task, Variable, Variables},
    wire::codec::{self, EncodeError},
};

/// A job to be run within this process.
///
/// By default it runs on one node with a worker for each processor. With [`nodes`](Self::nodes) several nodes, each with
/// a pool of its own, run within the process and speak the whole protocol with each other over the loopback interface:
/// the same program as on many machines, made small.
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
    pub(crate) nodes: usize,
    pub(crate) workers: Option<usize>,
    pub(crate) limits: Limits,
    pub(crate) start_values: Vec<(String, Result<Vec<u8>, EncodeError>)>,
    pub(crate) stopper: Stopper,
    scaler: Option<Scaler>,
    pub(crate) progress: Option<Observer>,
}

/// Who is told how the job gets on, and how often.
pub(crate) struct Observer {
    pub(crate) every: Duration,
    pub(crate) tell: Box<dyn FnMut(&Progress) + Send>,
}

/// Stops a running job from another thread, such as a signal handler's.
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Asks the job to stop: [`Job::run`] then returns soon, with [`Report::finished`] false. May be called before the
    /// job runs, and more than once.
    pub fn stop(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn stopped(&self) {
        self.0.notified().await;
    }
}

/// Adds nodes to a running job and takes nodes away, from another thread.
///
/// A node that is added is found by the others and steals itself some work; one that is taken away hands on what it
/// has not finished. With no node at all the job rests, its tasks parked, until there is one again.
#[derive(Debug, Clone)]
pub struct Scaler(watch::Sender<Option<usize>>);

impl Scaler {
    /// From now on the job is to run on so many nodes, at most [`NODES_MAX`].
    pub fn scale_to(&self, nodes: usize) {
        self.0.send_replace(Some(nodes.min(NODES_MAX)));
    }
}

impl Default for Scaler {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

/// How a running job gets on.
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress {
    /// What all nodes together have done so far.
    pub figures: Figures,
    /// The time since the start of the run.
    pub elapsed: Duration,
    pub(crate) variables: Values,
}

/// The end of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<T: Task> {
    /// The outputs of all tasks, merged. If the job was stopped before its end, those of the tasks committed by then.
    pub output: T::Output,
    /// Whether every task was completed.
    pub finished: bool,
    /// What all nodes together have done.
    pub figures: Figures,
    /// The time from the start of the run to its result.
    pub elapsed: Duration,
    pub(crate) variables: Values,
}

/// The values of a program's variables at one moment.
pub(crate) struct Values {
    pub(crate) table: VariableTable,
}

impl Progress {
    /// The best value known of a variable; `None` if it has none yet, or is not declared.
    pub fn var<V: Variable>(&self) -> Option<Arc<V::Value>> {
        self.variables.var::<V>()
    }
}

impl<T: Task> Report<T> {
    /// The final value of a variable; `None` if it never had one, or is not declared.
    pub fn var<V: Variable>(&self) -> Option<Arc<V::Value>> {
        self.variables.var::<V>()
    }
}

impl Values {
    fn var<V: Variable>(&self) -> Option<Arc<V::Value>> {
        let slot = self.table.slot_of(std::any::TypeId::of::<V>())?;
        self.table.read(slot)?.downcast().ok()
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.table.names()).finish()
    }
}

/// Why a job had no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JobError {
    /// A number of nodes or workers that makes no sense.
    #[error("{given} {what} were asked for; it takes 1 to {max}")]
    Count {
        /// Nodes or workers.
        what: &'static str,
        /// What was asked for.
        given: usize,
        /// The most there can be.
        max: usize,
    },
    /// The root task, or a start value, could not be encoded.
    #[error("the job cannot be submitted: {0}")]
    Encode(EncodeError),
    /// The shared data of a job is not what this program expects.
    #[error("the shared data of the job cannot be read: {reason}")]
    Shared {
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused a thread.
    #[error("no thread could be started: {0}")]
    Thread(io::Error),
    /// A node could not be started.
    #[error("a node could not be started: {0}")]
    Node(Box<dyn std::error::Error + Send + Sync>),
    /// The znode tree refused something it should not have.
    #[error("the coordination failed: {0}")]
    Coordination(CoordinationError),
    /// The job failed; the program is at fault.
    #[error("the job failed: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
    /// What the job produced could not be read.
    #[error("the result of the job cannot be read: {reason}")]
    Result {
        /// Why.
        reason: String,
    },
}

/// What the znode tree has refused, or could not do.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct CoordinationError(zk::Error);

impl CoordinationError {
    /// What it was, for the runtime's own commands: no part of the interface.
    #[doc(hidden)]
    pub fn cause(&self) -> &zk::Error {
        &self.0
    }
}

impl From<zk::Error> for JobError {
    fn from(error: zk::Error) -> Self {
        Self::Coordination(CoordinationError(error))
    }
}

impl From<EncodeError> for JobError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

/// The most nodes of one process.
pub const NODES_MAX: usize = 256;
/// The most workers of one node.
pub const WORKERS_MAX: usize = 1024;

impl<T: Task> Job<T> {
    /// A job that starts with this task, on data that all its tasks share.
    pub fn new(root: T, shared: T::Shared) -> Self {
        Self {
            root,
            shared: Arc::new(shared),
            nodes: 1,
            workers: None,
            limits: Limits::default(),
            start_values: Vec::new(),
            stopper: Stopper::default(),
            scaler: None,
            progress: None,
        }
    }

    /// The number of nodes within this process, 1 by default, at most [`NODES_MAX`].
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// The number of workers of each node, by default as many as there are processors (shared among the nodes), at
    /// most [`WORKERS_MAX`].
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Limits other than the defaults.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Gives a variable a value to start with. It is there before the first task begins.
    #[must_use]
    pub fn start_value<V: Variable>(mut self, value: &V::Value) -> Self {
        self.start_values.push((V::NAME.to_owned(), codec::encode(value)));
        self
    }

    /// What stops the job when it is asked to.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What changes the number of nodes while the job runs.
    pub fn scaler(&mut self) -> Scaler {
        self.scaler.get_or_insert_default().clone()
    }

    /// Lets this stopper stop the job, in place of its own.
    #[must_use]
    pub fn stopped_by(mut self, stopper: Stopper) -> Self {
        self.stopper = stopper;
        self
    }

    /// Calls `tell` regularly while the job runs, on a thread of the runtime: it must not block for long.
    #[must_use]
    pub fn on_progress(mut self, every: Duration, tell: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.progress = Some(Observer { every, tell: Box::new(tell) });
        self
    }

    /// Runs the job to its end, or until it is [stopped](Self::stopper).
    ///
    /// # Errors
    /// If the job cannot be set up, or the program is at fault: a task panics, or cannot be encoded.
    pub fn run(self) -> Result<Report<T>, JobError> {
        let started = Instant::now();
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        check("nodes", self.nodes, NODES_MAX)?;
        let workers = self.workers.unwrap_or_else(|| (processors / self.nodes).max(1));
        check("workers", workers, WORKERS_MAX)?;
        let start_values = self
            .start_values
            .into_iter()
            .map(|(name, value)| Ok((name, value?)))
            .collect::<Result<_, EncodeError>>()?;
        embedded::run(Setup {
            root: self.root,
            shared: self.shared,
            nodes: self.nodes,
            workers,
            limits: self.limits,
            start_values,
            stopper: self.stopper,
            scale: self.scaler.map(|scaler| scaler.0.subscribe()),
            progress: self.progress,
            started,
        })
    }
}

fn check(what: &'static str, given: usize, max: usize) -> Result<(), JobError> {
    if (1..=max).contains(&given) { Ok(()) } else { Err(JobError::Count { what, given, max }) }
}

impl<T: Task> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("nodes", &self.nodes)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// The table of a program's variables, without values.
pub(crate) fn variables_of<T: Task>() -> VariableTable {
    let mut variables = Variables::default();
    T::variables(&mut variables);
    VariableTable::new(variables)
}

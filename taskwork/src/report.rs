//! Progress, result, errors and control of a job, within this process or on a cluster.

use std::{fmt, io, sync::Arc, time::Duration};

use serde::Serialize;
use thiserror::Error;
use tokio::sync::{Notify, watch};

pub use crate::figures::{Figures, Histogram, Outlook, WorkerTimes};

use crate::{
    config::NODES_MAX,
    display::JobDisplay,
    pool::VariableTable,
    task::Task,
    variable::{Variable, Variables},
    wire::codec::EncodeError,
};

/// A callback for the progress of a job, and its interval.
pub(crate) struct Observer {
    pub(crate) every: Duration,
    pub(crate) tell: Box<dyn FnMut(&Progress) + Send>,
}

/// Stops a running job from another thread, such as that of a signal handler.
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Asks the job to stop: [`Job::run`](crate::Job::run) then returns soon, with
    /// [`Report::finished`] false. A job that keeps its [state](crate::State) is suspended. May be called
    /// before the job runs, and repeatedly.
    pub fn stop(&self) {
        self.0.notify_one();
    }

    /// Waits until a stop is requested, for code outside this crate that runs a job.
    pub async fn stopped(&self) {
        self.0.notified().await;
    }
}

/// Adds nodes to a running job and removes nodes from it, from another thread.
///
/// Other nodes discover an added node, and it steals work; a removed node hands over its unfinished tasks.
/// Without any node the job pauses, with its tasks parked, until a node is added.
#[derive(Debug, Clone)]
pub struct Scaler(watch::Sender<Option<usize>>);

impl Scaler {
    /// Sets the number of nodes of the job, at most [`NODES_MAX`].
    pub fn scale_to(&self, nodes: usize) {
        self.0.send_replace(Some(nodes.min(NODES_MAX)));
    }

    /// Returns a receiver of the requested number of nodes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<usize>> {
        self.0.subscribe()
    }
}

impl Default for Scaler {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

/// The progress of a running job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The work of all nodes so far.
    pub figures: Figures,
    /// The number of nodes that have reported to work on it.
    pub nodes: usize,
    /// The display that the job's companion provides ([`StatusProvider`](crate::companion::StatusProvider)), if any.
    pub display: Option<JobDisplay>,
    /// The time since the start of the run.
    pub elapsed: Duration,
    pub(crate) variables: Values,
}

/// The result of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<T: Task> {
    /// The merged outputs of all tasks; if the job was stopped early, of the tasks committed by then.
    pub output: T::Output,
    /// Whether every task was completed.
    pub finished: bool,
    /// Whether the job was suspended: its tasks are in its [directory](crate::State), and the same job
    /// continues with them.
    pub suspended: bool,
    /// The reason for the cancellation; `None` if the job was not cancelled.
    pub cancelled: Option<String>,
    /// The tasks without which the job has continued, because nodes were lost with them repeatedly, or they
    /// panicked. Their part is missing in the output. [`Client::retry`](crate::Client::retry) retries
    /// them.
    pub set_aside: Vec<SetAside>,
    /// The work of all nodes; for a job that was continued, in this run.
    pub figures: Figures,
    /// The time from the start of the run to its result.
    pub elapsed: Duration,
    pub(crate) variables: Values,
}

/// A task without which a job has continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SetAside {
    /// The id of the task.
    pub task: String,
    /// The number of consecutive nodes that were lost with it, or in which it panicked.
    pub crashes: u32,
    /// The last known cause, such as the message of the panic; empty if the nodes were lost
    /// without a known cause.
    pub reason: String,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, crashes, reason } = self;
        write!(f, "task {task} was set aside after it had failed on {crashes} nodes in a row")?;
        if reason.is_empty() { Ok(()) } else { write!(f, "; it last said: {reason}") }
    }
}

/// The final state of a job before its output is decoded: everything that does not depend on the program's types.
pub(crate) struct RawReport {
    pub(crate) output: RawOutput,
    pub(crate) suspended: bool,
    pub(crate) cancelled: Option<String>,
    pub(crate) set_aside: Vec<SetAside>,
    pub(crate) figures: Figures,
    pub(crate) elapsed: Duration,
    pub(crate) variables: Values,
}

pub(crate) enum RawOutput {
    /// The merged output of all tasks.
    Finished(Vec<u8>),
    /// The outputs of each node committed before the job was stopped.
    Stopped(Vec<Vec<u8>>),
}

/// The values of a program's variables at one moment.
pub(crate) struct Values {
    pub(crate) table: VariableTable,
}

impl Progress {
    /// Returns the best known value of a variable; `None` if it has none yet, or is not declared.
    pub fn var<V: Variable>(&self) -> Option<Arc<V::Value>> {
        self.variables.var::<V>()
    }
}

impl<T: Task> Report<T> {
    /// Returns the final value of a variable; `None` if it never had one, or is not declared.
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

/// The reasons for which a job has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JobError {
    /// An invalid number of nodes or workers.
    #[error("{given} {what} were requested; the number must be from 1 to {max}")]
    Count {
        /// `nodes` or `workers`.
        what: &'static str,
        /// The requested number.
        given: usize,
        /// The maximum.
        max: usize,
    },
    /// A setting of the job is invalid, or two of them contradict each other.
    #[error("{reason}")]
    Setting {
        /// The problem, and the remedy.
        reason: String,
    },
    /// The root task, or a start value, could not be encoded.
    #[error("the job cannot be submitted: {0}")]
    Encode(EncodeError),
    /// The shared data of a job has another type than this program expects.
    #[error("the shared data of the job cannot be read: {reason}")]
    Shared {
        /// The cause.
        reason: String,
    },
    /// The operating system refused a thread.
    #[error("no thread could be started: {0}")]
    Thread(io::Error),
    /// A node could not be started.
    #[error("a node could not be started: {0}")]
    Node(Box<dyn std::error::Error + Send + Sync>),
    /// ZooKeeper refused a request, or did not answer.
    #[error(transparent)]
    Coordination(CoordinationError),
    /// The job failed; the program is at fault.
    #[error("the job failed: {reason}")]
    Failed {
        /// The cause.
        reason: String,
    },
    /// The output of the job could not be read.
    #[error("the result of the job cannot be read: {reason}")]
    Result {
        /// The cause.
        reason: String,
    },
    /// The [directory](crate::State) of the job cannot be used, or holds another job.
    #[error(transparent)]
    State(StateError),
}

/// The reasons for which a job cannot keep its state in a [directory](crate::State).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another process uses the directory, or its file is damaged, or was not written by this runtime.
    #[error("{reason}")]
    Unusable {
        /// The problem, with the name of the file or directory, and the remedy.
        reason: String,
    },
    /// The operating system refused an operation, such as writing to a full disk. The previous state is still
    /// there.
    #[error("{reason}")]
    Io {
        /// The refused operation, with the name of the file or directory.
        reason: String,
    },
    /// The directory holds a job of another program.
    #[error(
        "{file} holds a job of the program {there}, and this is {here}: use another directory, or delete it \
         to start from scratch"
    )]
    OtherProgram {
        /// The file in the directory.
        file: String,
        /// The program of the job.
        there: String,
        /// This program.
        here: String,
    },
    /// The directory holds a job of another version of this program.
    #[error(
        "{file} holds a job of {program} {there}, and this is version {here}: continue with that version, \
         use another directory, or delete it to start from scratch"
    )]
    OtherVersion {
        /// The file in the directory.
        file: String,
        /// The program.
        program: String,
        /// The version that started the job.
        there: String,
        /// This version.
        here: String,
    },
    /// The directory holds a job of another build of this version.
    #[error(
        "{file} holds a job of another build of {program} ({there}; this one is {here}): continue with that \
         build, or use --any-build if the source is the same; or use another directory, or delete it to \
         start from scratch"
    )]
    OtherBuild {
        /// The file in the directory.
        file: String,
        /// The program.
        program: String,
        /// The version and build that started the job.
        there: String,
        /// This version and build.
        here: String,
    },
    /// The directory holds another job of this program.
    #[error(
        "{file} holds another job of {program}: another instance, or one with other options. Repeat the \
         first command to continue it, use another directory, or delete it to start from scratch"
    )]
    OtherInstance {
        /// The file in the directory.
        file: String,
        /// The program.
        program: String,
    },
}

/// ZooKeeper refused a request, or did not answer.
#[derive(Clone, PartialEq, Eq)]
pub struct CoordinationError(pub(crate) zk::Error);

impl CoordinationError {
    /// Returns whether the same request may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        self.0.is_transient() || self.0 == zk::Error::SessionExpired
    }
}

impl fmt::Display for CoordinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the coordination failed: {}", self.0)
    }
}

impl fmt::Debug for CoordinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for CoordinationError {}

impl From<zk::Error> for CoordinationError {
    fn from(error: zk::Error) -> Self {
        Self(error)
    }
}

impl From<EncodeError> for JobError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl From<StateError> for JobError {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl From<zk::Error> for JobError {
    fn from(error: zk::Error) -> Self {
        match error {
            zk::Error::NotKept { .. } => Self::State(StateError::Io { reason: error.to_string() }),
            error => Self::Coordination(error.into()),
        }
    }
}

/// Creates the table of a program's variables, without values.
pub(crate) fn variables_of<T: Task>() -> VariableTable {
    let mut variables = Variables::default();
    T::variables(&mut variables);
    VariableTable::new(variables)
}

//! A job: its root task, the shared data of its tasks, and the start values of its variables. The same
//! job runs within this process or on a cluster.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use zk::Labels;

use crate::{
    config::Limits,
    id::JobId,
    report::{Observer, Progress, Scaler, Stopper},
    state::State,
    task::Task,
    variable::Variable,
    wire::codec::{self, EncodeError},
};

/// A job, to [run](Self::run) within this process or to [submit](crate::Client::submit) to a cluster.
///
/// A run within this process has one node with a worker for each processor by default. With
/// [`nodes`](Self::nodes), several nodes, each with its own pool, communicate by the full protocol over the loopback
/// interface, as on several machines.
///
/// The same job runs in both places; each uses its own settings and ignores those of the other:
///
/// | setting | within this process | on a cluster |
/// |---|---|---|
/// | root task, shared data, [`start_value`](Self::start_value), [`kind`](Self::kind) | used | used |
/// | [`nodes`](Self::nodes), [`workers`](Self::workers), [`limits`](Self::limits) | used | set for each [node](crate::node::NodeBuilder) |
/// | [`state`](Self::state) | used | ZooKeeper keeps the state |
/// | [`stopper`](Self::stopper), [`scaler`](Self::scaler), [`on_progress`](Self::on_progress) | used | see [`Submitted`](crate::client::Submitted) and [`NodeBuilder`](crate::node::NodeBuilder) |
/// | [`name`](Self::name), [`attempts_max`](Self::attempts_max), [`crashes_max`](Self::crashes_max), [`require`](Self::require), [`after`](Self::after), [`stay_open`](Self::stay_open), [`weight`](Self::weight), [`priority`](Self::priority), [`exclusive`](Self::exclusive) | ignored | used |
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
    pub(crate) crashes_max: u32,
    pub(crate) require: Labels,
    pub(crate) after: Vec<JobId>,
    pub(crate) stays_open: bool,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    pub(crate) exclusive: bool,
    pub(crate) brings_program: bool,
    pub(crate) local: LocalSettings,
}

/// The settings of a run within this process.
pub(crate) struct LocalSettings {
    pub(crate) nodes: usize,
    /// The number for each node; `None` divides the processors among the nodes.
    pub(crate) workers: Option<usize>,
    pub(crate) limits: Limits,
    pub(crate) stopper: Stopper,
    pub(crate) scaler: Option<Scaler>,
    pub(crate) progress: Option<Observer>,
    pub(crate) state: Option<State>,
}

/// The kind's name in programs with only one type of task.
pub(crate) const ONLY_KIND: &str = "task";

/// The default maximum number of attempts at a job on a cluster.
const ATTEMPTS_MAX: u32 = 100;

impl<T: Task> Job<T> {
    /// Creates a job with its root task and the shared data of its tasks.
    pub fn new(root: T, shared: T::Shared) -> Self {
        Self {
            root,
            shared: Arc::new(shared),
            start_values: Vec::new(),
            kind: Cow::Borrowed(ONLY_KIND),
            name: None,
            attempts_max: ATTEMPTS_MAX,
            crashes_max: Limits::default().crashes_max,
            require: Labels::default(),
            after: Vec::new(),
            stays_open: false,
            weight: 1,
            priority: 0,
            exclusive: false,
            brings_program: false,
            local: LocalSettings {
                nodes: 1,
                workers: None,
                limits: Limits::default(),
                stopper: Stopper::default(),
                scaler: None,
                progress: None,
                state: None,
            },
        }
    }

    /// Sets the start value of a variable, which is known before the first task starts.
    #[must_use]
    pub fn start_value<V: Variable>(mut self, value: &V::Value) -> Self {
        self.start_values.push((V::NAME.to_owned(), codec::encode(value)));
        self
    }

    /// Sets the name under which the program's nodes have this type of task, if they have
    /// [several](crate::node::NodeBuilder::kinds). For a run within this process it only matters if that keeps its
    /// [state](Self::state).
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the job's display name on a cluster; by default the name of the program. 1 to 200 characters
    /// without control characters. Not used for a run within this process.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the maximum number of attempts on a cluster, 100 by default: the loss of a node that held more than
    /// [it writes](crate::Limits::ledger_bytes_max) ends one. A run within this process has one.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// Sets the number of consecutive nodes of a cluster that may be lost with the same task, or in which it may
    /// panic, before the job continues without it, 5 by default; 0 means no limit, and 1 is taken as 2, since a
    /// single loss is no evidence against a task. The job is then [incomplete](crate::Report::set_aside). A run
    /// within this process uses [the limit](crate::Limits::crashes_max) of its node if it keeps its
    /// [state](Self::state), and otherwise fails at the first panic.
    #[must_use]
    pub fn crashes_max(mut self, crashes: u32) -> Self {
        self.crashes_max = crashes;
        self
    }

    /// Sets the labels that a node of a cluster must have to work on the job: see
    /// [`NodeBuilder::labels`](crate::node::NodeBuilder::labels). The job waits until there is such a node. Not
    /// used for a run within this process.
    #[must_use]
    pub fn require(mut self, labels: Labels) -> Self {
        self.require = labels;
        self
    }

    /// Makes the job wait on a cluster until another one is done. If that fails or is cancelled, this job
    /// fails. May be called repeatedly, for up to 100 jobs. Not used for a run within this process.
    #[must_use]
    pub fn after(mut self, job: &JobId) -> Self {
        self.after.push(job.clone());
        self
    }

    /// Keeps the job open on a cluster: root tasks can be [added](crate::client::Submitted::add) while it
    /// runs, and it is not done before that is [finished](crate::Client::finish), even if all its tasks are
    /// complete. Not used for a run within this process.
    #[must_use]
    pub fn stay_open(mut self) -> Self {
        self.stays_open = true;
        self
    }

    /// Sets the job's share of a cluster: nodes work on several jobs at a time, and divide their workers in
    /// proportion to the weights of the jobs that have tasks. 1 by default, at most 1000. Not used for a run within
    /// this process.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the job's priority on a cluster, 0 by default, from -100 to 100: jobs of higher priority come first,
    /// regardless of weights, and jobs of lower priority get the workers that are left idle. Not used for a run within
    /// this process.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Reserves the nodes of a cluster for this job while they work on it. It starts when jobs that started before it
    /// are over; later jobs wait. Not used for a run within this process.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Lets the program of this process travel with the job, when it is [submitted](crate::Client::submit) to a cluster:
    /// agents fetch its file and start nodes from it. Without effect within one process. See
    /// [`agents`](crate::client::agents).
    #[must_use]
    pub fn bring_program(mut self) -> Self {
        self.brings_program = true;
        self
    }

    /// Sets the number of nodes within this process, 1 by default, at most [`NODES_MAX`](crate::node::NODES_MAX).
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.local.nodes = nodes;
        self
    }

    /// Sets the number of workers of each node within this process, at most [`WORKERS_MAX`](crate::node::WORKERS_MAX);
    /// by default the number of processors, shared among the nodes.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.local.workers = Some(workers);
        self
    }

    /// Replaces the default limits of the nodes within this process.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.local.limits = limits;
        self
    }

    /// Keeps the state of a run within this process in a directory, from which it continues. See [`State`].
    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.local.state = Some(state);
        self
    }

    /// Returns a handle that stops the run within this process. On a cluster, use
    /// [`Submitted::cancel`](crate::client::Submitted::cancel).
    pub fn stopper(&self) -> Stopper {
        self.local.stopper.clone()
    }

    /// Replaces the job's stopper by this one.
    #[must_use]
    pub fn stopped_by(mut self, stopper: Stopper) -> Self {
        self.local.stopper = stopper;
        self
    }

    /// Returns a handle that changes the number of nodes while the job runs within this process.
    pub fn scaler(&mut self) -> Scaler {
        self.local.scaler.get_or_insert_default().clone()
    }

    /// Sets a callback for progress, which is called periodically while the job runs within this process, on a thread
    /// of the runtime, so it must not block. On a cluster, use
    /// [`Submitted::progress`](crate::client::Submitted::progress).
    #[must_use]
    pub fn on_progress(mut self, every: Duration, tell: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.local.progress = Some(Observer { every, tell: Box::new(tell) });
        self
    }

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

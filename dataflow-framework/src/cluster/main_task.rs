//! The task of a job that runs a program.

use std::{
    any::Any,
    error::Error,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use dataflow_view::Observation;
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned, ser::Error as _};
use taskwork::{Context, Hooks, Job, Outcome, Output, Report, Task, companion::Companion};

use super::{
    companion,
    leading::Leading,
    output::ProgramOutput,
    workflow_node::{Told, WorkflowNode},
};
use crate::{
    core::{Divergence, Mark},
    encoding::{decode, encode},
    failure::Failed,
    program::{Flow, Observe, Stopped},
    task::{TaskDef, Tasks},
};

/// A program that can be run by the nodes of a cluster.
///
/// It may run several times: if its node is lost or leaves, the program restarts on another node. So it must
/// make the same calls each time, and depend only on its arguments and the data that it reads.
pub trait Program: Sized + 'static {
    /// The arguments, which every node receives.
    type Arguments: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The output.
    type Output: Serialize + DeserializeOwned + 'static;

    /// Returns the tasks that the program calls ([`tasks!`](crate::tasks)).
    fn tasks() -> Vec<&'static TaskDef>;

    /// Returns the tasks that the program calls if it has these arguments. A program that makes its tasks from its
    /// arguments overrides this.
    fn tasks_of(_arguments: &Self::Arguments) -> Vec<&'static TaskDef> {
        Self::tasks()
    }

    /// Runs the program.
    ///
    /// # Errors
    /// Returns any error; a [`Failure`](crate::Failure) if a call has failed.
    fn run(arguments: &Self::Arguments) -> Result<Self::Output, Box<dyn Error + Send + Sync>>;
}

/// The only task of a job that runs a program.
///
/// # Examples
/// ```
/// use std::error::Error;
/// use dataflow_framework::{Main, Program, TaskDef, task, tasks};
///
/// #[task]
/// fn square(number: u64) -> u64 {
///     number * number
/// }
///
/// #[task]
/// fn add(sum: &mut u64, number: &u64) {
///     *sum += number;
/// }
///
/// struct Squares;
///
/// impl Program for Squares {
///     type Arguments = u64;
///     type Output = u64;
///
///     fn tasks() -> Vec<&'static TaskDef> {
///         tasks![square, add].to_vec()
///     }
///
///     fn run(most: &u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
///         let mut sum = square(0);
///         for number in 1..=*most {
///             add(&mut sum, &square(number));
///         }
///         Ok(*sum.get()?)
///     }
/// }
///
/// // On three nodes within this process, which communicate like those of a cluster.
/// let report = Main::<Squares>::job(10).nodes(3).run()?;
/// assert_eq!(Main::<Squares>::returned(&report)?, 385);
/// # Ok::<(), Box<dyn Error + Send + Sync>>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Main<P> {
    /// The number of earlier starts of the program.
    generation: u64,
    is_checked: bool,
    observe: Observe,
    program: PhantomData<fn() -> P>,
}

/// The output of a program, encoded, or its failure. Its form in JSON is the output alone, for users who do not have
/// the program.
#[derive(Debug, Default, Deserialize)]
pub struct Returned {
    result: Option<Result<ProgramOutput, String>>,
    /// The encoded [`Observation`].
    observation: Option<Vec<u8>>,
}

impl Returned {
    /// Returns the encoded output of the program, or its failure.
    pub(crate) fn into_result(self) -> Option<Result<Vec<u8>, String>> {
        Some(self.result?.map(|answer| answer.encoded))
    }
}

impl Serialize for Returned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return (&self.result, &self.observation).serialize(serializer);
        }
        let Some(Ok(answer)) = &self.result else { return serializer.serialize_none() };
        let shown =
            answer.shown.as_ref().and_then(|shown| serde_json::from_str::<serde_json::Value>(shown).ok());
        shown.ok_or_else(|| S::Error::custom("the output has no form in JSON"))?.serialize(serializer)
    }
}

impl Output for Returned {
    fn merge(&mut self, other: Self) {
        // There is only one task.
        if other.result.is_some() {
            *self = other;
        }
    }

    fn failure(&self) -> Option<String> {
        self.result.as_ref()?.as_ref().err().cloned()
    }
}

/// The arguments of a program, and the changed options of its tasks: every node receives them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Given<A> {
    pub(crate) arguments: A,
    task_options: Vec<String>,
}

impl<A> Given<A> {
    pub(crate) fn new(arguments: A) -> Self {
        Self { arguments, task_options: Vec::new() }
    }
}

/// The settings of a run of a program on nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOptions {
    is_checked: bool,
    observe: Observe,
    task_options: Vec<String>,
}

impl RunOptions {
    /// Runs each task twice to compare its outputs. See [`Workflow::checked`](crate::Workflow::checked).
    #[must_use]
    pub fn checked(self, checked: bool) -> Self {
        Self { is_checked: checked, ..self }
    }

    /// Records observations. See [`Main::observed`].
    #[must_use]
    pub fn observe(self, observe: Observe) -> Self {
        Self { observe, ..self }
    }

    /// Changes options of tasks, such as `align.retry=5`: they replace those of the attribute and of the calls. The
    /// program fails if one is invalid.
    #[must_use]
    pub fn task_options(self, task_options: Vec<String>) -> Self {
        Self { task_options, ..self }
    }
}

/// The part of the companion that the task uses.
struct Handle(Arc<WorkflowNode>);

impl<P: Program> Main<P> {
    /// Creates a job that runs the program.
    pub fn job(arguments: P::Arguments) -> Job<Self> {
        Self::job_with(arguments, RunOptions::default())
    }

    /// Creates a job that runs the program with these settings.
    pub fn job_with(arguments: P::Arguments, options: RunOptions) -> Job<Self> {
        let RunOptions { is_checked, observe, task_options } = options;
        Job::new(Self { is_checked, observe, ..Self::root() }, Given { arguments, task_options })
    }

    pub(crate) fn root() -> Self {
        Self { generation: 0, is_checked: false, observe: Observe::default(), program: PhantomData }
    }

    /// Returns the observations of the program, whether it has failed or not; `None` if it did not run to its
    /// end.
    pub fn observed(report: &Report<Self>) -> Option<Observation> {
        let encoded = report.output.observation.as_ref()?;
        decode(encoded)
            .inspect_err(|error| {
                tracing::warn!(reason = error.reason, "the observations of the program cannot be read");
            })
            .ok()
    }

    /// Returns the output of the program.
    ///
    /// # Errors
    /// Fails if the program has failed.
    pub fn returned(report: &Report<Self>) -> Result<P::Output, Box<dyn Error + Send + Sync>> {
        match &report.output.result {
            Some(Ok(answer)) => decode(&answer.encoded).map_err(|Failed { reason, .. }| reason.into()),
            Some(Err(reason)) => Err(reason.clone().into()),
            None => Err(match report.cancelled.as_deref() {
                None => "the program did not run to its end".to_owned(),
                Some("") => "the job was cancelled before the end of the program".to_owned(),
                Some(reason) => format!("the job was cancelled before the end of the program: {reason}"),
            }
            .into()),
        }
    }
}

impl<P: Program> Task for Main<P> {
    type Shared = Given<P::Arguments>;
    type Output = Returned;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|given| {
        let tasks = Tasks::new(P::tasks_of(&given.arguments)).map_err(|error| error.to_string());
        let tasks = tasks.and_then(|mut tasks| tasks.change(&given.task_options).map(|()| tasks));
        let (tasks, wrong) = match tasks {
            Ok(tasks) => (tasks, None),
            Err(wrong) => (Tasks::default(), Some(wrong)),
        };
        let workflow_node = Arc::new(WorkflowNode::new(tasks));
        let handle = Arc::new(Handle(Arc::clone(&workflow_node)));
        Some(Companion::new(handle, |cx| async move {
            match wrong {
                Some(wrong) => Err(wrong),
                None => companion::run(cx, workflow_node).await,
            }
        }))
    });

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let Some(Handle(workflow_node)) = cx.companion::<Handle>() else {
            let result = Some(Err("the node has no companion for this job".to_owned()));
            *cx.output() = Returned { result, observation: None };
            return Outcome::Complete;
        };
        match workflow_node.tell(|| cx.waker()) {
            Told::Waits => Outcome::Wait,
            Told::Returned(result) => {
                let observation = workflow_node.engine().and_then(|(engine, _)| {
                    let Observation { summary, calls, trace } = engine.observation();
                    let calls = calls.filter(|_| self.observe.graph);
                    let trace = trace.filter(|_| self.observe.trace);
                    encode(&Observation { summary, calls, trace }).ok()
                });
                *cx.output() = Returned { result: Some(result), observation };
                Outcome::Complete
            }
            Told::Begin => {
                if let Some(leading) = workflow_node.lead(self.generation + 1, cx.waker()) {
                    self.generation = leading.run.generation;
                    if self.is_checked {
                        leading.engine.check();
                    }
                    leading.engine.observe(self.observe, workflow_node.is_public());
                    begin::<P>(workflow_node, leading, cx.shared_arc());
                }
                Outcome::Wait
            }
        }
    }

    fn split(&mut self, _: &Given<P::Arguments>) -> Option<Self> {
        None
    }
}

/// Runs the program on its own thread, since it blocks.
fn begin<P: Program>(
    workflow_node: &Arc<WorkflowNode>,
    leading: Arc<Leading>,
    given: Arc<Given<P::Arguments>>,
) {
    let (its_node, run) = (Arc::clone(workflow_node), leading.run);
    let work = move || {
        let ended = catch_unwind(AssertUnwindSafe(|| program::<P>(&its_node, &leading, &given.arguments)));
        let result = match ended {
            Ok(result) => result,
            Err(panic) if panic.is::<Stopped>() => {
                let engine = &leading.engine;
                let differs = engine
                    .inspect(|graph| graph.divergence())
                    .map(|divergence| differs(divergence, &its_node.tasks));
                let decides =
                    || engine.decision_divergence().map(|how| format!("{OTHER_CALLS}: {how}. {SAME_CALLS}"));
                let fatal = || engine.inspect(|graph| graph.fatal().map(ToString::to_string));
                match differs.or_else(decides).or_else(fatal).or_else(|| leading.trouble()) {
                    Some(reason) => Err(reason),
                    // The program continues on another node.
                    None => return,
                }
            }
            Err(panic) => Err(panicked(&*panic)),
        };
        its_node.returned(run, result);
    };
    if let Err(error) = workflow_node.platform.start_program(Box::new(work)) {
        workflow_node.returned(run, Err(format!("no thread could be started: {error}")));
    }
}

fn program<P: Program>(
    workflow_node: &WorkflowNode,
    leading: &Leading,
    arguments: &P::Arguments,
) -> Result<ProgramOutput, String> {
    leading.wait_until_taken();
    leading.wait_until_told();
    let flow = Flow::new(Arc::clone(&leading.engine), Some(Arc::clone(&workflow_node.tasks)));
    let returned = {
        let _entered = flow.enter();
        P::run(arguments).map_err(|error| error.to_string())?
    };
    leading.engine.settle().map_err(|failure| failure.to_string())?;
    ProgramOutput::new(&returned)
}

/// Formats the call in which a restarted program differs from its earlier run.
fn differs(Divergence { call, was, is }: Divergence, tasks: &Tasks) -> String {
    let name = |mark: Mark| match mark.task {
        Some(number) => match tasks.numbered(number) {
            Some(task) => format!("a call of `{}`", task.name),
            None => "a call".to_owned(),
        },
        None => "data created by the program".to_owned(),
    };
    let (was, is) = (name(was), name(is));
    let how = if was == is { ", but it or an earlier call has other arguments" } else { "" };
    format!("{OTHER_CALLS}: number {call} was {was}, and is {is} now{how}. {SAME_CALLS}")
}

const OTHER_CALLS: &str =
    "the program restarted after its node was lost or left, and makes other calls than before";

const SAME_CALLS: &str = "It has to make the same calls each time; clocks, random numbers, and the order of a `HashMap` \
                          are usual reasons why it does not";

fn panicked(panic: &(dyn Any + Send)) -> String {
    format!("the program has failed: {}", Failed::panicked(panic).reason)
}

impl<P> fmt::Debug for Main<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Main").field("generation", &self.generation).finish_non_exhaustive()
    }
}

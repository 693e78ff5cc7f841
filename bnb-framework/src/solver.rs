//! Solving a problem: the request and its result.

use std::time::Duration;

use taskwork::{Client, ClientError, Job, JobError, Report, State, Stopper, report::Figures};

use crate::{
    cost::{Cost, Goal},
    incumbent::{Best, Incumbent},
    instance::Instance,
    limits::Halt,
    options::{Collect, Options, Replicable, Split, Strategy, Tolerance},
    problem::Problem,
    search::SearchTask,
    submitted::SubmittedSearch,
    worker::near,
};

/// A problem and the options of its search. The default is to search for the optimum, depth first, on one node
/// with a worker for each processor.
#[derive(Debug)]
pub struct Solver<P: Problem> {
    problem: P,
    options: Options<P::Cost>,
    nodes: usize,
    workers: Option<usize>,
    start: Option<Best<P::Cost, P::Solution>>,
    state: Option<State>,
    stopper: Stopper,
    observer: Option<Observer<P>>,
}

pub(crate) struct Observer<P: Problem> {
    pub(crate) every: Duration,
    pub(crate) tell: Tell<P>,
}

type Tell<P> = Box<dyn FnMut(&Progress<P>) + Send>;

/// The progress of a search.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Progress<P: Problem> {
    /// States visited so far.
    pub states: u64,
    /// The cost of the best solution so far.
    pub best: Option<P::Cost>,
    /// A bound on the cost of every solution, as a number: the better of the best cost so far and the reported bound
    /// of the open states. On a cluster it may be some seconds old. `None` if it is unknown, or costs are not
    /// numbers.
    pub bound: Option<f64>,
    /// The distance between the best solution and that bound, as a share of the solution's cost.
    pub gap: Option<f64>,
    /// The share of the tree that is done, from 0 to 1. This is an estimate that assumes that the children of
    /// a state have subtrees of equal size. `None` if it is unknown.
    pub share: Option<f64>,
    /// The figures of the runtime so far.
    pub figures: Figures,
    /// The time since the start.
    pub elapsed: Duration,
}

/// The reason why a search has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The whole tree was searched, except for what a tolerance allowed to omit.
    Proven,
    /// A solution is as good as the target.
    Target,
    /// The allowed number of states was visited.
    StateLimit,
    /// The time was up.
    TimeLimit,
    /// The search was stopped from outside.
    Stopped,
    /// Parts of the tree were [set aside](taskwork::Report::set_aside): after several consecutive node losses or
    /// panics.
    Incomplete,
    /// The search was suspended, and continues from its [state](Solver::state).
    Suspended,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proven => "proven",
            Self::Target => "target",
            Self::StateLimit => "state limit",
            Self::TimeLimit => "time limit",
            Self::Stopped => "stopped",
            Self::Incomplete => "incomplete",
            Self::Suspended => "suspended",
        })
    }
}

/// The result of a search.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solved<P: Problem> {
    /// The best solution; `None` if no solution was found that meets the target and improves on the cutoff.
    pub best: Option<Best<P::Cost, P::Solution>>,
    /// Whether the search covered the whole tree: no solution is better than the best one by more than the tolerance.
    pub proven: bool,
    /// The reason why the search has stopped.
    pub end: End,
    /// A bound on the cost of every solution. `None` if the search ended as stopped, suspended, incomplete or at its
    /// target, if a limit ended a search without pruning, or if a search without target and cutoff has no solution
    /// and omitted no part.
    pub bound: Option<P::Cost>,
    /// The solutions that were [collected](Solver::collect), the best first.
    pub collected: Vec<Best<P::Cost, P::Solution>>,
    /// Whether `collected` contains all requested solutions: the search is proven, and [`Collect::at_most`] cut off
    /// none within the requested distance.
    pub collected_all: bool,
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound. If the search was stopped, only those
    /// of the tasks completed by then are counted.
    pub pruned: u64,
    /// The figures of the runtime.
    pub figures: Figures,
    /// The duration of the search.
    pub elapsed: Duration,
}

impl<P: Problem> Solver<P> {
    /// Creates a solver for a problem.
    pub fn new(problem: P) -> Self {
        Self {
            problem,
            options: Options::default(),
            nodes: 1,
            workers: None,
            start: None,
            state: None,
            stopper: Stopper::default(),
            observer: None,
        }
    }

    /// Sets the number of nodes within this process. If there are several, they speak the whole protocol with
    /// each other.
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the number of workers of each node.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets whether states are pruned by their bounds. Without pruning everything is visited, in the order of
    /// the children.
    #[must_use]
    pub fn pruning(mut self, pruning: bool) -> Self {
        self.options.pruning = pruning;
        self
    }

    /// Sets the order in which states are visited.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = strategy;
        self
    }

    /// Sets the part that is split off when workers are hungry.
    #[must_use]
    pub fn split(mut self, split: Split) -> Self {
        self.options.split = split;
        self
    }

    /// Makes the search visit the same states and find the same solution for any number of workers and nodes. The
    /// parts of a batch (see [`Replicable`]) then do not use each other's solutions, so the search may visit more
    /// states. The point at which a limit or a target stops the search still depends on timing. The order is depth
    /// first, regardless of the [strategy](Self::strategy).
    #[must_use]
    pub fn replicable(mut self, replicable: Replicable) -> Self {
        self.options.replicable = Some(replicable);
        self
    }

    /// Decides instead of optimising: is there a solution at least as good as this? The first one found stops
    /// the search everywhere; otherwise the search proves that there is none.
    #[must_use]
    pub fn target(mut self, cost: P::Cost) -> Self {
        self.options.target = Some(cost);
        self
    }

    /// Searches only for solutions better than this. Useful if the cost of a solution is known, but not the
    /// solution.
    #[must_use]
    pub fn cutoff(mut self, cost: P::Cost) -> Self {
        self.options.cutoff = Some(cost);
        self
    }

    /// Sets how far from the optimum a solution may be to count as good enough.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Tolerance) -> Self {
        self.options.tolerance = tolerance;
        self
    }

    /// Sets the maximum search time. Each node counts its own search time, starting from the largest count that it
    /// has received; the largest count applies. No time passes while a job is suspended, since no node searches.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit_ms = Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sets the approximate maximum number of states that all nodes together visit. The search may exceed this number
    /// slightly, since no single node counts all states.
    #[must_use]
    pub fn state_limit(mut self, states: u64) -> Self {
        self.options.states_max = Some(states);
        self
    }

    /// Collects solutions in addition to the best one. The result does not depend on the number of nodes.
    #[must_use]
    pub fn collect(mut self, collect: Collect) -> Self {
        self.options.collect = Some(collect);
        self
    }

    /// Sets the initial share of the workers' time, from 0 to 1, for the problem's heuristics
    /// ([`construct`](crate::Hooks::construct), [`improve`](crate::Hooks::improve)); the default is 0.1. The share falls after each round without
    /// an improvement; an improvement restores it. A search that is [replicable](Self::replicable), that
    /// [collects](Self::collect) solutions or that does not [prune](Self::pruning) uses none.
    #[must_use]
    pub fn heuristics(mut self, share: f64) -> Self {
        self.options.heuristics = share;
        self
    }

    /// Sets a solution to start with: parts that are not better are pruned from the first state on.
    #[must_use]
    pub fn start(mut self, cost: P::Cost, solution: P::Solution) -> Self {
        self.start = Some(Best::new(cost, solution));
        self
    }

    /// Keeps the search's state in a directory, from which it continues. The state has its own [time
    /// limit](State::time_limit), which suspends the search; the limit of the [search](Self::time_limit) ends it for
    /// good.
    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Returns a handle that stops the search from another thread. A search with a [state](Self::state) is suspended
    /// instead.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Calls `tell` regularly: on a thread of the runtime for [`run`](Self::run), and inside
    /// [`SubmittedSearch::solved`] for [`submit`](Self::submit). It must not block.
    #[must_use]
    pub fn on_progress(mut self, every: Duration, tell: impl FnMut(&Progress<P>) + Send + 'static) -> Self {
        self.observer = Some(Observer { every, tell: Box::new(tell) });
        self
    }

    /// Searches until the whole tree is done, a limit is reached, or the search is [stopped](Self::stopper).
    ///
    /// # Errors
    /// As for [`job`](Self::job) and [`Job::run`]: the options contradict each other, the job cannot be set up, or the
    /// problem's code panics.
    pub fn run(self) -> Result<Solved<P>, JobError> {
        let Self { nodes, workers, .. } = self;
        let state = self.state.clone();
        let (search, RunSettings { options, stopper, observer }) = self.checked()?.into_parts();
        let mut job = search.nodes(nodes).stopped_by(stopper);
        if let Some(state) = state {
            job = job.state(state);
        }
        if let Some(workers) = workers {
            job = job.workers(workers);
        }
        if let Some(Observer { every, mut tell }) = observer {
            job = job.on_progress(every, move |progress| tell(&Progress::from_progress(progress)));
        }
        Ok(Solved::from_report(&job.run()?, &options))
    }

    /// Submits the search to the nodes of a cluster, which run [`SearchTask<P>`](SearchTask) under its [default
    /// name](taskwork::node::NodeBuilder::task). All search options apply; the [stopper](Self::stopper) cancels the
    /// search, and [progress](Self::on_progress) is reported, while [`SubmittedSearch::solved`] waits for its end.
    ///
    /// # Errors
    /// As for [`job`](Self::job) and [`Client::submit`]; also if a number of nodes or workers, or a directory for the
    /// state, was chosen, since the cluster has its own.
    pub async fn submit(self, client: &Client) -> Result<SubmittedSearch<P>, ClientError> {
        if self.nodes != 1 || self.workers.is_some() || self.state.is_some() {
            let reason = "a number of nodes or workers, and a directory for the state, are for a search \
                          within this process: a cluster has its own";
            return Err(ClientError::Invalid { reason: reason.to_owned() });
        }
        let (search, settings) = self.checked()?.into_parts();
        Ok(SubmittedSearch::new(client.submit(search).await?, settings))
    }

    /// Returns the problem.
    pub fn problem(&self) -> &P {
        &self.problem
    }

    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command line calls it"))]
    pub(crate) fn started_from(self) -> Option<Best<P::Cost, P::Solution>> {
        self.start
    }

    /// Replaces the problem by its form in which every solution is at a leaf. Returns `None` if the problem has no
    /// such form.
    pub(crate) fn with_every_solution(self) -> Option<Self> {
        let problem = (P::HOOKS.with_every_solution)(self.problem)?;
        Some(Self { problem, ..self })
    }

    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command line calls it"))]
    pub(crate) fn without_time_limit(mut self) -> Self {
        self.options.time_limit_ms = None;
        self
    }

    /// Returns the options chosen for the search.
    pub fn options(&self) -> &Options<P::Cost> {
        &self.options
    }

    /// Returns the search as a job of the runtime, for this process or a cluster. [`Solved::from_report`]
    /// interprets its report. The numbers of nodes and workers, the stopper and the progress callback do not
    /// belong to the job: the caller that runs it provides them.
    ///
    /// # Errors
    /// [`JobError::Setting`] if the heuristics' share is not from 0 to 1, a replicable search collects solutions, a
    /// search collects solutions of a problem that does not visit [every one](crate::Hooks::with_every_solution), or
    /// pruning is off and an option needs it.
    pub fn job(self) -> Result<Job<SearchTask<P>>, JobError> {
        Ok(self.checked()?.into_parts().0)
    }

    /// Checks the options, and puts the problem into the form that they need.
    pub(crate) fn checked(self) -> Result<Self, JobError> {
        if let Some(reason) = self.options.contradiction() {
            return Err(JobError::Setting { reason });
        }
        if self.options.collect.is_none() {
            return Ok(self);
        }
        let reason = "solutions are collected, but this problem does not visit every one: set \
                      Hooks::with_every_solution, or collect none";
        self.with_every_solution().ok_or_else(|| JobError::Setting { reason: reason.to_owned() })
    }

    /// Takes the job out of a [checked](Self::checked) solver.
    pub(crate) fn into_parts(self) -> (Job<SearchTask<P>>, RunSettings<P>) {
        let Self { problem, mut options, start, stopper, observer, .. } = self;
        let settings = RunSettings { options: options.clone(), stopper, observer };
        options.start = start.as_ref().map(|start| start.cost);
        let instance = Instance::new(problem, options);
        let root = SearchTask::root(&instance);
        let mut job = Job::new(root, instance);
        if let Some(start) = &start {
            job = job.start_value::<Incumbent<P>>(start);
        }
        (job, settings)
    }
}

/// The settings for running a search that are not part of its job.
pub(crate) struct RunSettings<P: Problem> {
    pub(crate) options: Options<P::Cost>,
    pub(crate) stopper: Stopper,
    pub(crate) observer: Option<Observer<P>>,
}

impl<P: Problem> Progress<P> {
    /// Interprets the progress of a search's job.
    pub fn from_progress(progress: &taskwork::Progress) -> Self {
        let best = progress.var::<Incumbent<P>>().map(|best| best.cost);
        let number = best.and_then(Cost::as_number);
        let sign = if P::GOAL == Goal::Minimise { 1.0 } else { -1.0 };
        // The best solution bounds the open part, since worse solutions are not searched for.
        let open = progress.figures.outlook.known();
        let bound = open.map(|open| sign * number.map_or(open, |best| open.min(sign * best)));
        let gap = number.zip(bound).map(|(best, bound)| relative_gap(best, bound));
        Self {
            states: progress.figures.worked,
            best,
            bound,
            gap,
            share: progress.figures.share(),
            figures: progress.figures,
            elapsed: progress.elapsed,
        }
    }
}

impl<P: Problem> Solved<P> {
    /// Interprets the report of a search's job.
    pub fn from_report(report: &Report<SearchTask<P>>, options: &Options<P::Cost>) -> Self {
        let best = report.var::<Incumbent<P>>().map(|best| (*best).clone());
        let tally = &report.output;
        // The start solution may miss the target or the cutoff.
        let best = best.filter(|best| options.is_of_interest(P::GOAL, &best.cost));
        let is_met = options.target.is_some() && best.is_some();
        let end = match tally.halt {
            _ if is_met => End::Target,
            _ if report.suspended => End::Suspended,
            _ if !report.set_aside.is_empty() => End::Incomplete,
            _ if !report.finished => End::Stopped,
            None => End::Proven,
            // Unreachable: a search that stops at its target has a solution that meets it, so `is_met` is true.
            Some(Halt::Target) => End::Stopped,
            Some(Halt::States) => End::StateLimit,
            Some(Halt::Time) => End::TimeLimit,
        };
        let least = match &best {
            Some(best) => [Some(best.cost), None],
            // Each part that may contain a better cost was searched, or its bound is in `left`.
            None => [options.target, options.cutoff],
        };
        let known = least.into_iter().chain([tally.left]).flatten();
        let bound = match end {
            End::Stopped | End::Incomplete | End::Suspended | End::Target => None,
            // No bounds were computed.
            End::StateLimit | End::TimeLimit if !options.pruning => None,
            End::Proven | End::StateLimit | End::TimeLimit => known.reduce(|a, b| P::GOAL.best(a, b)),
        };
        let mut collected = tally.collected.solutions();
        let mut collected_all = true;
        if let Some(Collect { at_most, within }) = options.collect {
            if let (Some(tolerance), Some(best)) = (within, &best) {
                let worst = near::<P>(best.cost, tolerance);
                collected.retain(|one| !P::GOAL.better(&worst, &one.cost));
            }
            collected_all = end == End::Proven && collected.len() <= at_most;
            collected.truncate(at_most);
        }
        Self {
            best,
            proven: end == End::Proven,
            end,
            bound,
            collected,
            collected_all,
            states: if report.finished { tally.states } else { report.figures.worked },
            pruned: tally.pruned,
            figures: report.figures,
            elapsed: report.elapsed,
        }
    }

    /// Returns the distance between the best solution and the bound, as a share of the solution's cost.
    /// Returns `None` if either is unknown, or costs are not numbers.
    pub fn gap(&self) -> Option<f64> {
        let best = self.best.as_ref()?.cost;
        Some(relative_gap(best.as_number()?, self.bound?.as_number()?))
    }

    /// Returns whether the search has answered the question: everything was searched, or the target was met.
    pub fn is_complete(&self) -> bool {
        matches!(self.end, End::Proven | End::Target)
    }
}

/// The distance between a solution's cost and a bound, as a share of the cost; infinite if that is 0 and the
/// bound is not.
fn relative_gap(best: f64, bound: f64) -> f64 {
    let apart = (best - bound).abs();
    if apart == 0.0 { 0.0 } else { apart / best.abs() }
}

impl<P: Problem> std::fmt::Debug for Observer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("every", &self.every).finish_non_exhaustive()
    }
}

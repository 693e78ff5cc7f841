//! Solving a problem: what is asked for, and what comes of it.

use std::time::Duration;

use taskwork::{Client, ClientError, Figures, Job, JobError, Report, Stopper};

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

/// A problem, and how it is to be solved. By default on one node with a worker for each processor: the
/// optimum, depth first.
#[derive(Debug)]
pub struct Solver<P: Problem> {
    problem: P,
    options: Options<P::Cost>,
    nodes: usize,
    workers: Option<usize>,
    start: Option<Best<P::Cost, P::Solution>>,
    stopper: Stopper,
    observer: Option<Observer<P>>,
}

pub(crate) struct Observer<P: Problem> {
    pub(crate) every: Duration,
    pub(crate) tell: Tell<P>,
}

type Tell<P> = Box<dyn FnMut(&Progress<P>) + Send>;

/// How a search gets on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Progress<P: Problem> {
    /// States visited so far.
    pub states: u64,
    /// The cost of the best solution so far.
    pub best: Option<P::Cost>,
    /// What no solution is better than, as a number: what the states that are open promise, as far as the
    /// nodes have said. It may be some seconds old on a cluster. `None` if it is not known yet, or costs are
    /// no numbers.
    pub bound: Option<f64>,
    /// How far the best solution is from that bound, as a share of its cost.
    pub gap: Option<f64>,
    /// Which share of the tree is done, from 0 to 1: an estimate, that takes the children of a state for
    /// equally large. `None` as long as there is none.
    pub share: Option<f64>,
    /// What the runtime has done so far.
    pub figures: Figures,
    /// The time since the start.
    pub elapsed: Duration,
}

/// Why a search has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The whole tree was searched, but for what a tolerance allowed to leave.
    Proven,
    /// A solution is as good as the target.
    Target,
    /// As many states were visited as were allowed.
    StateLimit,
    /// The time was up.
    TimeLimit,
    /// It was stopped from outside.
    Stopped,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proven => "proven",
            Self::Target => "target",
            Self::StateLimit => "state limit",
            Self::TimeLimit => "time limit",
            Self::Stopped => "stopped",
        })
    }
}

/// The end of a search.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solved<P: Problem> {
    /// The best solution; `None` if there is none, or none of interest.
    pub best: Option<Best<P::Cost, P::Solution>>,
    /// Whether the whole tree was searched, so that there is nothing better, but for what a tolerance allows.
    pub proven: bool,
    /// Why it has ended.
    pub end: End,
    /// What no solution is better than. `None` if nothing is known of it: the search was stopped, or has
    /// ended at its target; or there is no solution.
    pub bound: Option<P::Cost>,
    /// The solutions that were [collected](Solver::collect), the best first.
    pub collected: Vec<Best<P::Cost, P::Solution>>,
    /// Whether these are all that were asked for: there were not more than could be kept.
    pub collected_all: bool,
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound. If the search was stopped, only those
    /// of the tasks completed by then.
    pub pruned: u64,
    /// What the runtime has done.
    pub figures: Figures,
    /// The time it took.
    pub elapsed: Duration,
}

impl<P: Problem> Solver<P> {
    /// A solver for a problem.
    pub fn new(problem: P) -> Self {
        let (stopper, observer) = (Stopper::default(), None);
        Self { problem, options: Options::default(), nodes: 1, workers: None, start: None, stopper, observer }
    }

    /// The number of nodes within this process. More than one speak the whole protocol with each other.
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// The number of workers of each node.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Whether states are pruned by their bounds. Without pruning everything is visited, in the order of the
    /// children.
    #[must_use]
    pub fn pruning(mut self, pruning: bool) -> Self {
        self.options.pruning = pruning;
        self
    }

    /// In which order states are visited.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = strategy;
        self
    }

    /// What is split off when somebody is hungry.
    #[must_use]
    pub fn split(mut self, split: Split) -> Self {
        self.options.split = split;
        self
    }

    /// Lets the search visit the same states and find the same solution however many workers and nodes there
    /// are. Parts of the tree then do not learn from each other, so more is visited. A limit, or a target,
    /// still ends it where it does.
    #[must_use]
    pub fn replicable(mut self, replicable: Replicable) -> Self {
        self.options.replicable = Some(replicable);
        self
    }

    /// Decides instead of optimising: is there a solution that is as good as this? The first that is found
    /// ends the search everywhere; without one, it is proven that there is none.
    #[must_use]
    pub fn target(mut self, cost: P::Cost) -> Self {
        self.options.target = Some(cost);
        self
    }

    /// Looks only for solutions that are better than this: where the cost of one is known, but not the
    /// solution.
    #[must_use]
    pub fn cutoff(mut self, cost: P::Cost) -> Self {
        self.options.cutoff = Some(cost);
        self
    }

    /// How far from the optimum is good enough.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Tolerance) -> Self {
        self.options.tolerance = tolerance;
        self
    }

    /// How long the search takes at most, from its first state: as long as the node that has searched
    /// longest. While a job is put aside nobody searches, and no time passes.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit_ms = Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// About how many states are visited at most, by all nodes together. It is passed by a few: nobody counts
    /// for all.
    #[must_use]
    pub fn state_limit(mut self, states: u64) -> Self {
        self.options.states_max = Some(states);
        self
    }

    /// Collects the best solutions besides the best one. The same are collected however many nodes there are.
    #[must_use]
    pub fn collect(mut self, collect: Collect) -> Self {
        self.options.collect = Some(collect);
        self
    }

    /// A solution to begin with: what is not better is pruned from the first state on.
    #[must_use]
    pub fn start(mut self, cost: P::Cost, solution: P::Solution) -> Self {
        self.start = Some(Best::new(cost, solution));
        self
    }

    /// What stops the search when it is asked to, from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Calls `tell` regularly while the search runs, on a thread of the runtime: it must not block for long.
    #[must_use]
    pub fn on_progress(mut self, every: Duration, tell: impl FnMut(&Progress<P>) + Send + 'static) -> Self {
        self.observer = Some(Observer { every, tell: Box::new(tell) });
        self
    }

    /// Searches the whole tree, or until a limit is reached, or it is [stopped](Self::stopper).
    ///
    /// # Errors
    /// As [`Job::run`]: if the job cannot be set up, or the problem's code panics.
    ///
    /// # Panics
    /// As [`job`](Self::job).
    pub fn run(self) -> Result<Solved<P>, JobError> {
        let Self { nodes, workers, .. } = self;
        let (search, Means { options, stopper, observer }) = self.into_parts();
        let mut job = search.nodes(nodes).stopped_by(stopper);
        if let Some(workers) = workers {
            job = job.workers(workers);
        }
        if let Some(Observer { every, mut tell }) = observer {
            job = job.on_progress(every, move |progress| tell(&Progress::from_progress(progress)));
        }
        Ok(Solved::from_report(&job.run()?, &options))
    }

    /// Submits the search to the nodes of a cluster, which run [`SearchTask<P>`](SearchTask) under its
    /// [default name](taskwork::NodeBuilder::task). What was chosen of it holds there, too: the
    /// [stopper](Self::stopper) cancels it, and [progress](Self::on_progress) is told, while
    /// [`SubmittedSearch::solved`] waits for its end.
    ///
    /// # Errors
    /// As [`Client::submit`]; and if a number of nodes or workers was chosen, since the cluster has its own.
    ///
    /// # Panics
    /// As [`job`](Self::job).
    pub async fn submit(self, client: &Client) -> Result<SubmittedSearch<P>, ClientError> {
        if self.nodes != 1 || self.workers.is_some() {
            let reason =
                "a number of nodes or workers is for a search within this process: a cluster has its own";
            return Err(ClientError::Invalid { reason: reason.to_owned() });
        }
        let (search, means) = self.into_parts();
        Ok(SubmittedSearch::new(client.submit(search).await?, means))
    }

    /// The problem.
    pub fn problem(&self) -> &P {
        &self.problem
    }

    /// The solution that the search begins with.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "the command line alone asks for it"))]
    pub(crate) fn started_from(self) -> Option<Best<P::Cost, P::Solution>> {
        self.start
    }

    /// How the problem is to be searched, as it was chosen.
    pub fn options(&self) -> &Options<P::Cost> {
        &self.options
    }

    /// The search as a job of the runtime, to be run here or on a cluster. [`Solved::from_report`] says what its
    /// report means. The number of nodes and of workers, the stopper and who is told of progress do not
    /// belong to the job: whoever runs it sees to them.
    ///
    /// # Panics
    /// If what was chosen contradicts itself: a replicable search is to collect solutions, since what is
    /// collected by one part would be known in another; solutions are to be collected of a problem that does
    /// not visit [every one](Problem::EVERY_SOLUTION); or everything is to be visited, and something to be
    /// left out all the same.
    pub fn job(self) -> Job<SearchTask<P>> {
        self.into_parts().0
    }

    fn into_parts(self) -> (Job<SearchTask<P>>, Means<P>) {
        let Self { problem, mut options, start, stopper, observer, .. } = self;
        assert!(
            options.replicable.is_none() || options.collect.is_none(),
            "a search that collects solutions cannot be replicable; the solutions are the same in any case"
        );
        assert!(
            options.pruning || Options { pruning: true, ..options.clone() }.is_plain(),
            "without pruning everything is visited: a target, a cutoff, a tolerance, a collection, or a replicable search need it"
        );
        assert!(
            P::EVERY_SOLUTION || options.collect.is_none(),
            "solutions are collected where every one of them is a leaf"
        );
        let means = Means { options: options.clone(), stopper, observer };
        options.start = start.as_ref().map(|start| start.cost);
        let instance = Instance::new(problem, options);
        let root = SearchTask::root(&instance);
        let mut job = Job::new(root, instance);
        if let Some(start) = &start {
            job = job.start_value::<Incumbent<P>>(start);
        }
        (job, means)
    }
}

/// What whoever runs a search needs beside its job.
pub(crate) struct Means<P: Problem> {
    pub(crate) options: Options<P::Cost>,
    pub(crate) stopper: Stopper,
    pub(crate) observer: Option<Observer<P>>,
}

impl<P: Problem> Progress<P> {
    /// What the progress of a search's job means.
    pub fn from_progress(progress: &taskwork::Progress) -> Self {
        let best = progress.var::<Incumbent<P>>().map(|best| best.cost);
        let number = best.and_then(Cost::as_number);
        let sign = if P::GOAL == Goal::Minimise { 1.0 } else { -1.0 };
        // The best solution is a bound on what is open, since nothing worse is sought.
        let open = progress.figures.outlook.known();
        let bound = open.map(|open| sign * number.map_or(open, |best| open.min(sign * best)));
        let gap =
            number.zip(bound).map(|(best, bound)| (best - bound).abs() / best.abs().max(f64::MIN_POSITIVE));
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
    /// What the report of a search's job means.
    pub fn from_report(report: &Report<SearchTask<P>>, options: &Options<P::Cost>) -> Self {
        let best = report.var::<Incumbent<P>>().map(|best| (*best).clone());
        let tally = &report.output;
        let target = options.target.zip(best.as_ref().map(|best| best.cost));
        let is_met = target.is_some_and(|(target, best)| !P::GOAL.better(&target, &best));
        let end = match tally.halt {
            _ if is_met => End::Target,
            _ if !report.finished => End::Stopped,
            None | Some(Halt::Target) => End::Proven,
            Some(Halt::States) => End::StateLimit,
            Some(Halt::Time) => End::TimeLimit,
        };
        // A solution that the search began with need not be of interest.
        let best = best.filter(|best| options.is_of_interest(P::GOAL, &best.cost));
        let least = match &best {
            Some(best) => [Some(best.cost), None],
            // What would be better was searched, or is left.
            None => [options.target, options.cutoff],
        };
        let known = least.into_iter().chain([tally.left]).flatten();
        let bound = match end {
            End::Stopped | End::Target => None,
            // Nothing was bounded.
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

    /// How far the best solution is from the bound, as a share of its cost. `None` if one of them is not
    /// known, or costs are no numbers.
    pub fn gap(&self) -> Option<f64> {
        let best = self.best.as_ref()?.cost;
        let (best, bound) = (best.as_number()?, self.bound?.as_number()?);
        let apart = (best - bound).abs();
        Some(if apart == 0.0 { 0.0 } else { apart / best.abs() })
    }

    /// Whether the search has answered what it was asked: all was searched, or the target was met.
    pub fn is_complete(&self) -> bool {
        matches!(self.end, End::Proven | End::Target)
    }
}

impl<P: Problem> std::fmt::Debug for Observer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("every", &self.every).finish_non_exhaustive()
    }
}

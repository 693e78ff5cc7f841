//! Solving a problem within this process.

use std::time::Duration;

use taskwork::{Figures, Job, JobError, Report, Stopper};

use crate::{
    incumbent::{Best, Incumbent},
    problem::Problem,
    search::{Instance, SearchTask},
};

/// A problem, and how it is to be solved. By default on one node with a worker for each processor, with pruning.
#[derive(Debug)]
pub struct Solver<P: Problem> {
    problem: P,
    pruning: bool,
    nodes: usize,
    workers: Option<usize>,
    start: Option<Best<P::Cost, P::Solution>>,
    stopper: Stopper,
    observer: Option<Observer<P>>,
}

struct Observer<P: Problem> {
    every: Duration,
    tell: Tell<P>,
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
    /// What the runtime has done so far.
    pub figures: Figures,
    /// The time since the start.
    pub elapsed: Duration,
}

/// The end of a search.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solved<P: Problem> {
    /// The best solution; `None` if there is none.
    pub best: Option<Best<P::Cost, P::Solution>>,
    /// Whether the whole tree was searched, so that there is nothing better.
    pub proven: bool,
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound. If the search was stopped, only those of the
    /// tasks completed by then.
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
        Self { problem, pruning: true, nodes: 1, workers: None, start: None, stopper, observer }
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

    /// Whether states are pruned by their bounds. Without pruning everything is visited.
    #[must_use]
    pub fn pruning(mut self, pruning: bool) -> Self {
        self.pruning = pruning;
        self
    }

    /// A solution to begin with: what is not better is pruned from the first state on.
    #[must_use]
    pub fn start(mut self, cost: P::Cost, solution: P::Solution) -> Self {
        self.start = Some(Best { cost, solution });
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

    /// Searches the whole tree, or until it is [stopped](Self::stopper).
    ///
    /// # Errors
    /// As [`Job::run`]: if the job cannot be set up, or the problem's code panics.
    pub fn run(self) -> Result<Solved<P>, JobError> {
        Ok(Solved::of(&self.job().run()?))
    }

    /// The search as a job of the runtime, to be run here or on a cluster. [`Solved::of`] says what its report means.
    pub fn job(self) -> Job<SearchTask<P>> {
        let root = SearchTask::root(&self.problem);
        let instance = Instance { problem: self.problem, pruning: self.pruning };
        let mut job = Job::new(root, instance).nodes(self.nodes).stopped_by(self.stopper);
        if let Some(workers) = self.workers {
            job = job.workers(workers);
        }
        if let Some(start) = &self.start {
            job = job.start_value::<Incumbent<P>>(start);
        }
        if let Some(Observer { every, mut tell }) = self.observer {
            job = job.on_progress(every, move |progress| tell(&Progress::of(progress)));
        }
        job
    }
}

impl<P: Problem> Progress<P> {
    /// What the progress of a search's job means.
    pub fn of(progress: &taskwork::Progress) -> Self {
        Self {
            states: progress.figures.worked,
            best: progress.var::<Incumbent<P>>().map(|best| best.cost),
            figures: progress.figures,
            elapsed: progress.elapsed,
        }
    }
}

impl<P: Problem> Solved<P> {
    /// What the report of a search's job means.
    pub fn of(report: &Report<SearchTask<P>>) -> Self {
        let best = report.var::<Incumbent<P>>();
        Self {
            best: best.map(|best| (*best).clone()),
            proven: report.finished,
            states: if report.finished { report.output.states } else { report.figures.worked },
            pruned: report.output.pruned,
            figures: report.figures,
            elapsed: report.elapsed,
        }
    }
}

impl<P: Problem> std::fmt::Debug for Observer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("every", &self.every).finish_non_exhaustive()
    }
}

//! Visiting every state of a tree and gathering something at each: mostly counting.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, JobError, Outcome, Output, Progress, Report, State, Stopper, Task};

use crate::{
    frontier::{Below, Frontier, Searched, Visitor},
    tree::Tree,
};

/// A tree of which every state is visited.
///
/// ```
/// use std::collections::VecDeque;
///
/// use bnb_framework::{Enumerate, Enumerator, Tree};
/// use serde::{Deserialize, Serialize};
///
/// /// The subsets of a row of numbers, one number after the other taken or left.
/// #[derive(Serialize, Deserialize)]
/// struct Subsets {
///     numbers: Vec<u64>,
///     sum: u64,
/// }
///
/// impl Tree for Subsets {
///     /// How many numbers are decided, and the sum of those taken.
///     type State = (usize, u64);
///     type Children = VecDeque<(usize, u64)>;
///
///     fn root(&self) -> (usize, u64) {
///         (0, 0)
///     }
///
///     fn branch(&self, &mut (decided, sum): &mut (usize, u64)) -> VecDeque<(usize, u64)> {
///         let number = self.numbers.get(decided);
///         number.map(|n| [(decided + 1, sum + n), (decided + 1, sum)].into()).unwrap_or_default()
///     }
/// }
///
/// impl Enumerate for Subsets {
///     /// How many subsets have the sum.
///     type Output = u64;
///
///     fn visit(&self, &(decided, sum): &(usize, u64), subsets: &mut u64) {
///         *subsets += u64::from(decided == self.numbers.len() && sum == self.sum);
///     }
/// }
///
/// let subsets = Subsets { numbers: (1..=10).collect(), sum: 10 };
/// assert_eq!(Enumerator::new(subsets).run()?.output, 10);
/// # Ok::<(), bnb_framework::JobError>(())
/// ```
pub trait Enumerate: Tree {
    /// The type of the result. Merging must give the same result in any order and any grouping.
    type Output: Output;

    /// Adds a state's contribution to the output. Called once for each state of the tree, after it was
    /// branched.
    fn visit(&self, state: &Self::State, output: &mut Self::Output);
}

/// A tree and the settings of its visit. The default is one node with a worker for each processor.
#[derive(Debug)]
pub struct Enumerator<E: Enumerate> {
    job: Job<EnumerationTask<E>>,
}

impl<E: Enumerate> Enumerator<E> {
    /// Creates an enumerator of a tree.
    pub fn new(tree: E) -> Self {
        let root = EnumerationTask { frontier: Frontier::new(&tree), share_left: 1.0 };
        Self { job: Job::new(root, tree) }
    }

    /// Sets the number of nodes within this process. See [`Solver::nodes`](crate::Solver::nodes).
    #[must_use]
    pub fn nodes(self, nodes: usize) -> Self {
        Self { job: self.job.nodes(nodes) }
    }

    /// Sets the number of workers of each node.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { job: self.job.workers(workers) }
    }

    /// Keeps the state of the visit in a directory, from which it continues.
    #[must_use]
    pub fn state(self, state: State) -> Self {
        Self { job: self.job.state(state) }
    }

    /// Returns a handle that stops the visit from another thread; one that keeps its [state](Self::state) is
    /// suspended.
    pub fn stopper(&self) -> Stopper {
        self.job.stopper()
    }

    /// Calls `tell` regularly while the visit runs, on a thread of the runtime. It must not block.
    #[must_use]
    pub fn on_progress(self, every: Duration, tell: impl FnMut(&Progress) + Send + 'static) -> Self {
        Self { job: self.job.on_progress(every, tell) }
    }

    /// Visits the states until all are visited, or the visit is [stopped](Self::stopper). The report contains the
    /// [output](Report::output), and whether the visit has [finished](Report::finished).
    ///
    /// # Errors
    /// As for [`Job::run`]: the job cannot be set up, or the tree's code panics.
    pub fn run(self) -> Result<Report<EnumerationTask<E>>, JobError> {
        self.job.run()
    }

    /// Returns the visit as a job of the runtime, with its settings; also for [a cluster](taskwork::Client::submit),
    /// whose nodes run [`EnumerationTask<E>`](EnumerationTask). A cluster ignores the numbers of nodes and workers, the
    /// state, the stopper and the progress callback.
    pub fn job(self) -> Job<EnumerationTask<E>> {
        self.job
    }
}

/// A part of a tree that remains to be visited.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct EnumerationTask<E: Enumerate> {
    frontier: Frontier<E>,
    /// The share of the whole tree that was open here at the last estimate.
    share_left: f64,
}

/// The interval at which the remaining share of the tree is estimated.
const TAKE_STOCK_EVERY: Duration = Duration::from_millis(200);

/// The runtime is polled at least once in this many states without children.
const ASK_STATES: u64 = 64;

/// The number of states after which progress is reported.
const REPORT_STATES: u64 = 4096;

/// The maximum number of levels from which a split takes states. Many levels do no harm, since no order of
/// visit is better than another.
const SPLIT_LEVELS_MAX: usize = 64;

/// Visits the states of a task and pauses when the runtime asks for something.
struct Worker<'a, 'b, E: Enumerate> {
    cx: &'a mut Context<'b, EnumerationTask<E>>,
    /// The number of states since the last report.
    states: u64,
    took_stock: Instant,
    stock_is_due: bool,
}

impl<E: Enumerate> Worker<'_, '_, E> {
    #[cold]
    fn report(&mut self) {
        self.cx.worked(std::mem::take(&mut self.states));
        let now = Instant::now();
        if now - self.took_stock >= TAKE_STOCK_EVERY {
            (self.took_stock, self.stock_is_due) = (now, true);
        }
    }
}

impl<E: Enumerate> Visitor<E> for Worker<'_, '_, E> {
    #[expect(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn visit(&mut self, _: &E, _: &mut E::State) -> Below {
        self.states += 1;
        Below::Open
    }

    #[expect(clippy::inline_always, reason = "the same")]
    #[inline(always)]
    fn branch(&mut self, tree: &E, state: &mut E::State) -> E::Children {
        let children = tree.branch(state);
        tree.visit(state, self.cx.output());
        children
    }

    /// Polls the runtime after each branched state, and now and then between states without children: these are
    /// many and cheap, but a level may contain nothing else.
    #[inline]
    fn pauses(&mut self, opened: bool) -> bool {
        if !opened && !self.states.is_multiple_of(ASK_STATES) {
            return false;
        }
        if self.states >= REPORT_STATES {
            self.report();
            if self.stock_is_due {
                return true;
            }
        }
        self.cx.has_requests()
    }
}

impl<E: Enumerate> Task for EnumerationTask<E> {
    type Shared = E;
    type Output = E::Output;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let tree = cx.shared();
        let mut worker = Worker { cx, states: 0, took_stock: Instant::now(), stock_is_due: false };
        let outcome = loop {
            if self.frontier.search(tree, &mut worker) == Searched::Over {
                break Outcome::Complete;
            }
            if worker.cx.migrate() {
                break Outcome::Migrate;
            }
            if std::mem::take(&mut worker.stock_is_due) {
                let left = self.frontier.share_left(tree).min(self.share_left);
                worker.cx.progressed(self.share_left - left);
                self.share_left = left;
            }
            worker.cx.potential_split(self);
        };
        worker.cx.worked(worker.states);
        if outcome == Outcome::Complete {
            worker.cx.progressed(self.share_left);
        }
        outcome
    }

    fn split(&mut self, tree: &E) -> Option<Self> {
        let mut frontier = self.frontier.split_levels(tree, SPLIT_LEVELS_MAX)?;
        let share_left = frontier.share_left(tree).min(self.share_left);
        self.share_left -= share_left;
        Some(Self { frontier, share_left })
    }
}

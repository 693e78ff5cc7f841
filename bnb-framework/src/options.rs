//! How a problem is to be searched: everything that is chosen besides the problem itself, and sent along with
//! it.

use serde::{Deserialize, Serialize};

use crate::cost::Goal;

/// In which order open states are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Strategy {
    /// Depth first, in the order of the children. The fastest by far for each state, and memory grows only
    /// with the depth.
    #[default]
    DepthFirst,
    /// Depth first, but of the children of a state those with the best bounds first.
    BestChildFirst {
        /// How many open states a task keeps at most; below any further ones it goes on depth first.
        open_max: usize,
    },
    /// The state with the best bound first, wherever it is: the fewest states are visited, and all the open
    /// ones are kept.
    BestFirst {
        /// As above.
        open_max: usize,
    },
}

impl Strategy {
    /// How many open states a task keeps unless something else is said.
    pub const OPEN_MAX: usize = 100_000;
}

/// What is split off when somebody is hungry. Always from the top of what a task has open, since that is
/// where most is below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Split {
    /// About half of the shallowest level that has any states left: what
    /// [`Children::split`](crate::Children::split) gives.
    #[default]
    Half,
    /// The next state of the shallowest level that has any left.
    Shallowest,
}

/// How far from the optimum a solution may be that is taken for good enough. A branch that can better the
/// best solution by no more than that is not searched. Both at once: what meets either.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Tolerance {
    /// In units of the cost.
    pub absolute: f64,
    /// As a share of the best solution's cost.
    pub relative: f64,
}

impl Tolerance {
    /// Nothing but the optimum.
    pub const NONE: Self = Self { absolute: 0.0, relative: 0.0 };

    /// How much a cost may be worse than the best.
    pub(crate) fn beside(self, best: f64) -> f64 {
        self.absolute.max(self.relative * best.abs())
    }
}

/// Which solutions are collected besides the best.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Collect {
    /// How many at most: so many are kept in memory by each task and each node.
    pub at_most: usize,
    /// Only those that are worse than the best by no more than that; `None` takes any.
    pub within: Option<Tolerance>,
}

impl Collect {
    /// How many are kept, 1 or more: one more than asked for, where it must be known whether there are more.
    pub(crate) fn kept(self) -> usize {
        self.at_most.saturating_add(usize::from(self.within.is_some())).max(1)
    }
}

/// A search that visits the same states and finds the same solution however many workers and nodes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicable {
    /// How many states are visited first, one after another, to find a good solution to prune by.
    pub first_states: u64,
    /// Into how many parts the tree is then cut at least. Each is searched by one worker that knows nothing
    /// of what is found elsewhere.
    pub parts: usize,
}

impl Default for Replicable {
    fn default() -> Self {
        Self { first_states: 100_000, parts: 1024 }
    }
}

/// How a problem is to be searched.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: serde::de::DeserializeOwned"))]
pub struct Options<C> {
    /// Whether states are pruned by their bounds; without, everything is visited.
    pub pruning: bool,
    /// In which order.
    pub strategy: Strategy,
    /// What is split off.
    pub split: Split,
    /// Whether the order must not matter.
    pub replicable: Option<Replicable>,
    /// A solution that is as good as this is enough, and nothing worse is of interest.
    pub target: Option<C>,
    /// Nothing that is not better than this is of interest.
    pub cutoff: Option<C>,
    /// The cost of the solution that the search begins with.
    pub start: Option<C>,
    /// How far from the optimum is good enough.
    pub tolerance: Tolerance,
    /// How long the search takes at most, in milliseconds in which the node that searches longest does so.
    pub time_limit_ms: Option<u64>,
    /// About how many states are visited at most, by all nodes together.
    pub states_max: Option<u64>,
    /// Which solutions are collected.
    pub collect: Option<Collect>,
}

impl<C> Default for Options<C> {
    fn default() -> Self {
        Self {
            pruning: true,
            strategy: Strategy::default(),
            split: Split::default(),
            replicable: None,
            target: None,
            cutoff: None,
            start: None,
            tolerance: Tolerance::NONE,
            time_limit_ms: None,
            states_max: None,
            collect: None,
        }
    }
}

impl<C: Ord> Options<C> {
    /// Whether a solution of this cost would be an answer: it is as good as the target, and better than the
    /// cutoff.
    pub(crate) fn is_of_interest(&self, goal: Goal, cost: &C) -> bool {
        self.target.as_ref().is_none_or(|target| !goal.better(target, cost))
            && self.cutoff.as_ref().is_none_or(|cutoff| goal.better(cost, cutoff))
    }
}

impl<C> Options<C> {
    /// Whether it is the plain search for the optimum, for which there is a loop that asks for nothing else.
    pub(crate) fn is_plain(&self) -> bool {
        let Self { pruning, target, cutoff, tolerance, collect, replicable, .. } = self;
        *pruning
            && target.is_none()
            && cutoff.is_none()
            && collect.is_none()
            && replicable.is_none()
            && *tolerance == Tolerance::NONE
    }
}

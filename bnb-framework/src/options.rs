//! The options of a search, which are sent along with the problem.

use serde::{Deserialize, Serialize};

use crate::cost::Goal;

/// The order in which open states are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Strategy {
    /// Depth first, in the order of the children. By far the fastest for each state, and memory grows only
    /// with the depth.
    #[default]
    DepthFirst,
    /// Depth first, but the children with the best bounds first.
    BestChildFirst {
        /// The maximum number of open states that a task keeps; below any further ones it searches depth
        /// first.
        open_max: usize,
    },
    /// The state with the best bound first, wherever it is. Visits the fewest states, but keeps all the open
    /// ones.
    BestFirst {
        /// As above.
        open_max: usize,
    },
}

impl Strategy {
    /// The default maximum number of open states that a task keeps.
    pub const OPEN_MAX: usize = 100_000;
}

/// The part that is split off when workers are hungry, and the order in which split tasks start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Split {
    /// The next states in the order of the sequential search, and the first of all tasks starts first. Workers of
    /// the same node get small pieces of a few milliseconds; other nodes get larger ones. So few states are visited
    /// that the sequential search would not visit (after B. Archibald and others, Replicable parallel branch
    /// and bound search, 2018). Without [pruning](Options::pruning), when all are visited anyway, it is the same as
    /// [`Half`](Self::Half).
    #[default]
    InOrder,
    /// About half of the shallowest level that has any states left, as determined by
    /// [`Children::split`](crate::Children::split): as much work as possible, but the last part in the order of the
    /// sequential search.
    Half,
    /// The next state of the shallowest level that has any left; the first of all tasks starts first.
    Next,
    /// The next state of the shallowest level and half of that level, in turn.
    Alternating,
    /// The next state of the shallowest level that has any left. The task with the fewest splits on its path starts
    /// first: it deviates least from the order of children (after W. D. Harvey and
    /// M. L. Ginsberg, Limited discrepancy search, 1995).
    Discrepancy,
}

/// How far from the optimum a solution may be to count as good enough. A branch that can improve on the best
/// solution by no more than that is not searched. If both are given, meeting either is enough.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Tolerance {
    /// In units of the cost.
    pub absolute: f64,
    /// As a share of the best solution's cost.
    pub relative: f64,
}

impl Tolerance {
    /// Only the optimum is good enough.
    pub const NONE: Self = Self { absolute: 0.0, relative: 0.0 };

    /// Returns how much worse than the best a cost may be.
    pub(crate) fn beside(self, best: f64) -> f64 {
        self.absolute.max(self.relative * best.abs())
    }
}

/// The solutions to collect in addition to the best.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Collect {
    /// The maximum number of solutions. Each task and each node keeps that many in memory.
    pub at_most: usize,
    /// The maximum distance from the best; `None` means any.
    pub within: Option<Tolerance>,
}

impl Collect {
    /// Returns the number of solutions kept, 1 or more: one more than requested if the search must find out
    /// whether there are more.
    pub(crate) fn kept(self) -> usize {
        self.at_most.saturating_add(usize::from(self.within.is_some())).max(1)
    }
}

/// A search that visits the same states and finds the same solution however many workers and nodes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicable {
    /// The number of states that are visited first, one after another, to find a good solution to prune by.
    pub first_states: u64,
    /// The minimum number of parts into which the tree is then cut. Each is searched by one worker, without knowledge
    /// of solutions found elsewhere at the same time.
    pub parts: usize,
    /// The number of parts that are searched at the same time, which limits the number of active workers. The next
    /// parts start when the whole batch is done, and use its solutions. At most 4096.
    pub batch: usize,
}

impl Default for Replicable {
    fn default() -> Self {
        Self { first_states: 100_000, parts: 1024, batch: 64 }
    }
}

/// The options of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: serde::de::DeserializeOwned"))]
pub struct Options<C> {
    /// Whether states are pruned by their bounds; otherwise everything is visited.
    pub pruning: bool,
    /// The order of visit.
    pub strategy: Strategy,
    /// The part that is split off.
    pub split: Split,
    /// Whether, and how, the search is made replicable.
    pub replicable: Option<Replicable>,
    /// A solution as good as this is enough, and nothing worse is of interest.
    pub target: Option<C>,
    /// Only solutions better than this are of interest.
    pub cutoff: Option<C>,
    /// The cost of the solution that the search starts with.
    pub start: Option<C>,
    /// The distance from the optimum that is good enough.
    pub tolerance: Tolerance,
    /// The maximum time to search, in ms, as counted by the node that has searched longest.
    pub time_limit_ms: Option<u64>,
    /// The approximate maximum number of states that all nodes together visit.
    pub states_max: Option<u64>,
    /// The solutions that are collected.
    pub collect: Option<Collect>,
    /// The share of the time for heuristics, at first and while they find better solutions, of workers that search.
    /// With 0 workers without a task do not run them either.
    pub heuristics: f64,
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
            heuristics: Self::HEURISTICS,
        }
    }
}

impl<C> Options<C> {
    /// The default share of the time for heuristics.
    pub const HEURISTICS: f64 = 0.1;

    /// Returns the initial share of the time for heuristics: 0 if they are useless, or if their solutions must not
    /// affect the search.
    pub(crate) fn share_of_heuristics(&self) -> f64 {
        let Self { pruning, heuristics, collect, replicable, .. } = self;
        let any = *pruning && collect.is_none() && replicable.is_none();
        if any { *heuristics } else { 0.0 }
    }

    /// Returns the part that is split off. If all states are visited, their order does not matter, and fewer splits
    /// suffice.
    pub(crate) fn split_off(&self) -> Split {
        match self.split {
            Split::InOrder if !self.pruning => Split::Half,
            split => split,
        }
    }
}

impl<C: Ord> Options<C> {
    /// Returns whether a solution of this cost is an answer: at least as good as the target, and better than
    /// the cutoff.
    pub(crate) fn is_of_interest(&self, goal: Goal, cost: &C) -> bool {
        self.target.as_ref().is_none_or(|target| !goal.better(target, cost))
            && self.cutoff.as_ref().is_none_or(|cutoff| goal.better(cost, cutoff))
    }
}

impl<C> Options<C> {
    /// Returns why the search cannot have these options; `None` if it can.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let share = self.heuristics;
        if !(0.0..=1.0).contains(&share) {
            return Some(format!("the share of the time for heuristics is {share}; it must be from 0 to 1"));
        }
        let reason = if self.replicable.is_some() && self.collect.is_some() {
            "a replicable search cannot collect solutions: choose one of the two; the collected solutions do not \
             depend on the number of nodes in any case"
        } else if !self.pruning && self.needs_pruning() {
            "pruning is off, but a target, a cutoff, a tolerance, a collection and a replicable search need it: turn it \
             on, or remove these options"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// Returns whether this is the plain search for the optimum, which has its own loop that checks
    /// nothing else if it is depth first.
    pub(crate) fn is_plain(&self) -> bool {
        self.pruning && !self.needs_pruning()
    }

    fn needs_pruning(&self) -> bool {
        let Self { target, cutoff, tolerance, collect, replicable, .. } = self;
        target.is_some()
            || cutoff.is_some()
            || collect.is_some()
            || replicable.is_some()
            || *tolerance != Tolerance::NONE
    }
}

//! What a user writes: the problem as a tree of states.

use std::{collections::VecDeque, fmt::Debug};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Whether small or large costs are sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// The solution of least cost.
    Minimise,
    /// The solution of greatest cost (or value).
    Maximise,
}

impl Goal {
    /// Whether `a` is strictly better than `b`.
    pub fn better<C: Ord>(self, a: &C, b: &C) -> bool {
        match self {
            Self::Minimise => a < b,
            Self::Maximise => a > b,
        }
    }
}

/// A problem to be solved by branch and bound: a tree of states, with solutions at its leaves (paper, 4.1).
///
/// The value that implements it holds the instance (the graph, the items); it is sent to every node once. It must be the
/// same everywhere: `branch`, `bound` and `leaf` may depend on nothing but it and their arguments.
pub trait Problem: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// A state: a partial solution, a node of the tree.
    type State: Serialize + DeserializeOwned + Clone + Send + 'static;
    /// The children of a state that were not visited yet, in the order of their visit.
    /// `VecDeque<Self::State>` does unless generating them one by one is worth it.
    type Children: Children<Self>;
    /// What is minimised or maximised.
    type Cost: Copy + Ord + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// A complete solution.
    type Solution: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Which costs are sought.
    const GOAL: Goal = Goal::Minimise;

    /// The state that the search starts from.
    fn root(&self) -> Self::State;

    /// The children of a state that is no leaf: disjoint, and together everything that lies below it.
    fn branch(&self, state: &Self::State) -> Self::Children;

    /// If the state is a leaf, the cost of its solution.
    fn leaf(&self, state: &Self::State) -> Option<Self::Cost>;

    /// A cost that no solution below the state improves on: a lower bound when minimising, an upper one when
    /// maximising. `None` says that there is no solution below it at all.
    ///
    /// It is asked once a state, just before the state would be branched, and not at all for leaves or when pruning is
    /// off. It may keep in the state what its children's bounds can start from. `best` is the cost of the best solution
    /// known: a bound that is no better than `best` prunes, so the work of sharpening it further can be saved.
    fn bound(&self, state: &mut Self::State, best: Option<Self::Cost>) -> Option<Self::Cost>;

    /// The solution at a leaf.
    fn solution(&self, leaf: &Self::State) -> Self::Solution;
}

/// The children of a state that were not visited yet: one generator a level of the search.
pub trait Children<P: Problem>: Serialize + DeserializeOwned + Send + 'static {
    /// The next child in the order of visit.
    fn next(&mut self, problem: &P, parent: &P::State) -> Option<P::State>;

    /// Splits off some of the children that are left, those visited last, for another task. `None` only if none
    /// is left.
    fn split(&mut self, problem: &P, parent: &P::State) -> Option<Self>;

    /// Whether exactly one child is left. A task does not give away the last state it has: that would only move the
    /// work. To say no too often costs such moves, and nothing else.
    fn is_single(&self, _problem: &P, _parent: &P::State) -> bool {
        false
    }
}

impl<P: Problem> Children<P> for VecDeque<P::State> {
    fn next(&mut self, _: &P, _: &P::State) -> Option<P::State> {
        self.pop_front()
    }

    /// The later half, the middle one included.
    fn split(&mut self, _: &P, _: &P::State) -> Option<Self> {
        if self.is_empty() { None } else { Some(self.split_off(self.len() / 2)) }
    }

    fn is_single(&self, _: &P, _: &P::State) -> bool {
        self.len() == 1
    }
}

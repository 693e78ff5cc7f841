//! What a user writes to have something optimised: what solutions cost, and a bound on it.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cost::{Cost, Goal},
    tree::Tree,
};

/// A problem to be solved by branch and bound: a tree with solutions at its leaves, of which the best is
/// sought (paper, 4.1).
///
/// It must be the same everywhere: `bound` and `leaf` may depend on nothing but the instance and their
/// arguments.
pub trait Problem: Tree {
    /// What is minimised or maximised.
    type Cost: Cost;
    /// A complete solution.
    type Solution: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Which costs are sought.
    const GOAL: Goal = Goal::Minimise;
    /// Whether the bound of a state is never better than those of the siblings visited before it. Then one
    /// that is pruned takes all its later siblings with it: they are not even generated.
    const WORST_LAST: bool = false;

    /// Whether every solution is at some leaf. A problem whose states may stop short, at the best solution
    /// below them, says no; then it is not for [collecting](crate::Solver::collect) others than the best.
    const EVERY_SOLUTION: bool = true;

    /// If the state is a leaf, the cost of its solution. Leaves are not branched.
    fn leaf(&self, state: &Self::State) -> Option<Self::Cost>;

    /// A cost that no solution below the state improves on: a lower bound when minimising, an upper one when
    /// maximising. `None` says that there is no solution below it at all.
    ///
    /// It is asked once a state, just before the state would be branched, and not at all for leaves or when
    /// pruning is off; and now and then again, of a copy of a state that was visited, to say what there may
    /// still be found. It may keep in the state what its children's bounds can start from. `best` is the cost
    /// of the best solution known: a bound that is no better than `best` prunes, so the work of sharpening it
    /// further can be saved.
    fn bound(&self, state: &mut Self::State, best: Option<Self::Cost>) -> Option<Self::Cost>;

    /// The solution at a leaf.
    fn solution(&self, leaf: &Self::State) -> Self::Solution;

    /// What a solution costs that comes from elsewhere: a user gives it to a search, or it is looked at again
    /// at the end. `None` if it is none, or if the program cannot tell, as by default: such solutions are
    /// refused.
    fn cost_of(&self, _solution: &Self::Solution) -> Option<Self::Cost> {
        None
    }

    /// A solution as a user gives it to a running search (`taskwork inject`). By default as it is serialised.
    fn read_solution(&self, given: serde_json::Value) -> Option<Self::Solution> {
        serde_json::from_value(given).ok()
    }
}

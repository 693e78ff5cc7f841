//! The user's part of an optimisation problem: the cost of solutions, and a bound on it.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cost::{Cost, Goal},
    hooks::Hooks,
    tree::Tree,
};

/// A problem for branch and bound: a tree with solutions at its leaves. The goal is the best solution
/// (paper, 4.1).
///
/// It must behave the same everywhere: `bound` and `leaf` may depend only on the instance and their
/// arguments.
pub trait Problem: Tree {
    /// The type of the minimised or maximised value.
    type Cost: Cost;
    /// A complete solution.
    type Solution: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Whether small or large costs are sought.
    const GOAL: Goal = Goal::Minimise;
    /// Whether the bound of a state is never better than those of the siblings visited before it. If so,
    /// pruning a state also prunes all its later siblings; they are not even generated.
    const WORST_LAST: bool = false;
    /// The optional functions, such as heuristics; by default none.
    const HOOKS: Hooks<Self> = Hooks::new();

    /// Returns the cost of the solution if the state is a leaf. Leaves are not branched.
    fn leaf(&self, state: &Self::State) -> Option<Self::Cost>;

    /// Returns a cost that no solution below the state improves on: a lower bound when minimising, an upper
    /// bound when maximising. Returns `None` if there is no solution below the state at all.
    ///
    /// It is called just before the state would be branched, but not for leaves or when pruning is off. It may store
    /// data in the state from which the children's bounds start. `best` is the cost of the best solution known: a bound
    /// that is no better than `best` prunes, so there is no need to sharpen it further.
    fn bound(&self, state: &mut Self::State, best: Option<Self::Cost>) -> Option<Self::Cost>;

    /// Returns the solution at a leaf.
    fn solution(&self, leaf: &Self::State) -> Self::Solution;

    /// Returns the cost of a solution from elsewhere: one that a user gives to a search, or one that is
    /// verified at the end. Returns `None` if it is not a solution, or if the program cannot verify solutions, which is
    /// the default: such solutions are refused.
    fn cost_of(&self, _solution: &Self::Solution) -> Option<Self::Cost> {
        None
    }
}

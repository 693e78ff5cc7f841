//! The user's part of an optimisation problem: the cost of solutions, and a bound on it.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cost::{Cost, Goal},
    picture::Picture,
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

    /// Whether every solution is at some leaf. Set this to `false` if states may stop at the best solution
    /// below them, or if some are omitted because others are as good; then solutions other than the best can be
    /// [collected](crate::Solver::collect) only if the problem has [another form](Self::with_every_solution).
    const EVERY_SOLUTION: bool = true;

    /// Returns the problem in a form in which every solution is at some leaf, to be searched for more than the best.
    /// Returns `None` if there is none; by default the problem itself if it is [so](Self::EVERY_SOLUTION) anyway.
    fn with_every_solution(self) -> Option<Self> {
        Self::EVERY_SOLUTION.then_some(self)
    }

    /// Returns the cost of the solution if the state is a leaf. Leaves are not branched.
    fn leaf(&self, state: &Self::State) -> Option<Self::Cost>;

    /// Returns a cost that no solution below the state improves on: a lower bound when minimising, an upper
    /// bound when maximising. Returns `None` if there is no solution below the state at all.
    ///
    /// It is called just before the state would be branched, but not for leaves or when pruning is off. It may store
    /// data in the state from which the children's bounds start. `best` is the cost of the best solution known: a bound
    /// that is no better than `best` prunes, so there is no need to sharpen it further.
    fn bound(&self, state: &mut Self::State, best: Option<Self::Cost>) -> Option<Self::Cost>;

    /// Returns a bound like [`bound`](Self::bound), but with little work, such as from the data that the parent
    /// stored in the state. The default is `bound` itself.
    ///
    /// It is called occasionally for all open states of a task, to report the bound of the open part, and when a limit
    /// stops the search. There may be thousands of states, and all calls together must not take longer than about 0.1
    /// s.
    fn quick_bound(&self, state: &mut Self::State, best: Option<Self::Cost>) -> Option<Self::Cost> {
        self.bound(state, best)
    }

    /// Returns the solution at a leaf.
    fn solution(&self, leaf: &Self::State) -> Self::Solution;

    /// Returns the cost of a solution from elsewhere: one that a user gives to a search, or one that is
    /// verified at the end. Returns `None` if it is not a solution, or if the program cannot verify solutions, which is
    /// the default: such solutions are refused.
    fn cost_of(&self, _solution: &Self::Solution) -> Option<Self::Cost> {
        None
    }

    /// Returns a solution that is built without the tree, by a heuristic; a different one for each seed, if
    /// possible. Returns `None` if there is no such heuristic, which is the default, or if it found nothing.
    ///
    /// The result may depend only on the instance and the seed, unless `stops` has returned `true`. `stops` must be
    /// called about every millisecond, and once it returns `true` the function must return soon. The result counts
    /// only as far as [`cost_of`](Self::cost_of) confirms it.
    fn construct(&self, _seed: u64, _stops: &dyn Fn() -> bool) -> Option<Self::Solution> {
        None
    }

    /// Returns a solution that is better than a given one, by a round of local search from there; `None` if
    /// the round has found none, or if there is no local search, which is the default.
    ///
    /// The requirements of [`construct`](Self::construct) apply here, too. A round should take 10 to 100 ms:
    /// it is repeated with other seeds while there is time.
    fn improve(
        &self,
        _solution: &Self::Solution,
        _seed: u64,
        _stops: &dyn Fn() -> bool,
    ) -> Option<Self::Solution> {
        None
    }

    /// Draws a solution. The default is no picture.
    ///
    /// [`Picture`] keeps it small, readable on light and dark backgrounds, and gives it a title and a description.
    fn picture(&self, _solution: &Self::Solution) -> Option<Picture> {
        None
    }

    /// Reads a solution that a user gives to a running search (`taskwork inject`). By default in its
    /// serialised form.
    fn read_solution(&self, given: serde_json::Value) -> Option<Self::Solution> {
        serde_json::from_value(given).ok()
    }
}

//! The best solution known, shared by all tasks of a job.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use taskwork::{Score, Variable};

use crate::{
    cost::{Cost as _, Goal},
    problem::Problem,
};

/// The variable that holds the best known solution of a problem and its cost (paper, 4.2, "Bound
/// Synchronization").
#[derive(Debug)]
pub struct Incumbent<P>(PhantomData<P>);

/// A solution and its cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best<C, S> {
    /// Its cost, or its value.
    pub cost: C,
    /// The solution itself. It travels with its cost, so it outlives the node that found it.
    pub solution: S,
    /// Its position in the tree, if that decides between solutions of the same cost: the number of the
    /// child at each level, down to a part that one worker searches alone. Empty if it does not matter.
    pub position: Vec<u32>,
    /// If the search is [replicable](crate::Solver::replicable): the limit used for pruning after each fence before it
    /// was found.
    pub fences: Vec<Option<C>>,
}

impl<C, S> Best<C, S> {
    /// Creates a solution without a position.
    pub fn new(cost: C, solution: S) -> Self {
        Self { cost, solution, position: Vec::new(), fences: Vec::new() }
    }
}

impl<C: Copy, S> Best<C, S> {
    /// Returns the cost of the best solution that was found before a fence, counted from 0.
    ///
    /// This solution may have been found after that fence, if a part of the search is repeated after the loss of a
    /// node: the variable remains, but solutions found after the fence must not count before it in the repetition
    /// either.
    pub(crate) fn cost_at_fence(&self, fence: usize) -> Option<C> {
        self.fences.get(fence).copied().unwrap_or(Some(self.cost))
    }
}

impl<P: Problem> Variable for Incumbent<P> {
    type Value = Best<P::Cost, P::Solution>;
    const NAME: &'static str = "incumbent";

    fn improves(new: &Self::Value, old: &Self::Value) -> bool {
        P::GOAL.better(&new.cost, &old.cost) || new.cost == old.cost && new.position < old.position
    }

    fn score(best: &Self::Value) -> Option<Score> {
        let number = best.cost.as_number()?;
        Some(if P::GOAL == Goal::Minimise { Score::Cost(number) } else { Score::Profit(number) })
    }
}

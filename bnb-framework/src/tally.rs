//! The output of the tasks of a search, merged over all of them.

use serde::{Deserialize, Serialize};
use taskwork::Output;

use crate::{collected::Collected, limits::Halt, problem::Problem};

/// The output of the tasks of a search. Each state counts once, even if its task has moved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Tally<P: Problem> {
    /// States visited.
    pub states: u64,
    /// States below which nothing was visited because of their bound.
    pub pruned: u64,
    /// The best bound of the parts that were omitted because of a tolerance or a limit, although they might have better
    /// solutions. `None` if no part was omitted.
    pub left: Option<P::Cost>,
    /// Why the search has ended early.
    pub halt: Option<Halt>,
    pub(crate) collected: Collected<P>,
}

impl<P: Problem> Default for Tally<P> {
    fn default() -> Self {
        Self { states: 0, pruned: 0, left: None, halt: None, collected: Collected::default() }
    }
}

impl<P: Problem> Output for Tally<P> {
    fn merge(&mut self, other: Self) {
        self.states += other.states;
        self.pruned += other.pruned;
        self.left = [self.left, other.left].into_iter().flatten().reduce(|a, b| P::GOAL.best(a, b));
        self.halt = self.halt.max(other.halt);
        self.collected.merge(other.collected);
    }
}

impl<P: Problem> Tally<P> {
    /// Records the bound of something that is omitted.
    pub(crate) fn leave(&mut self, bound: P::Cost) {
        self.left = Some(self.left.map_or(bound, |left| P::GOAL.best(left, bound)));
    }
}

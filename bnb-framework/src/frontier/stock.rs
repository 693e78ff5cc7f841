//! What is still open: its share of the whole tree, a bound on it, and all of its states.

use super::Frontier;
use crate::{
    problem::Problem,
    tree::{COUNT_MAX, Children, Tree},
};

/// What was not visited when a search was given up.
#[derive(Debug)]
pub(crate) enum Unvisited<S> {
    /// A state.
    State(S),
    /// A visited state with so many children that they were not enumerated.
    Below(S),
}

impl<T: Tree> Frontier<T> {
    /// Returns the deepest state that has everything open below it. Returns `None` if that was returned
    /// before: its bound would bring nothing new.
    fn state_above_all(&mut self, tree: &T) -> Option<T::State> {
        let mut level = self.spent;
        while level + 1 < self.children.len() {
            let state = self.state_at(tree, level)?;
            if self.children[level].count(tree, &state) > 0 {
                break;
            }
            level += 1;
        }
        if self.bounded.replace(level) == Some(level) {
            return None;
        }
        self.state_at(tree, level)
    }

    /// Returns the estimated share of the whole tree below each child of a level: the share of the level,
    /// divided by the number of children that it has at the first call.
    pub(super) fn share_of_child(&mut self, tree: &T, level: usize) -> f64 {
        while self.shares.len() <= level {
            let at = self.shares.len();
            let whole = if at == 0 { self.share } else { self.shares[at - 1] };
            let count = self.state_at(tree, at).map_or(0, |state| self.children[at].count(tree, &state));
            // The child that the levels below belong to has left its level, but is not done.
            let under_way = u64::from(at + 1 < self.children.len());
            self.shares.push(whole / (count + under_way).max(1) as f64);
        }
        self.shares[level]
    }

    /// Returns a bound on everything that is open, if it is cheap and there is something new to report.
    pub(crate) fn bound(&mut self, problem: &T) -> Option<T::Cost>
    where
        T: Problem,
    {
        if !T::Children::IN_PLACE {
            return problem.bound(&mut self.state_above_all(problem)?, None);
        }
        // The states above no longer need to know their bounds, but each child has one.
        let mut best = None;
        self.open_states(problem, &mut |open| {
            let (Unvisited::State(mut state) | Unvisited::Below(mut state)) = open;
            let bound = problem.leaf(&state).or_else(|| problem.bound(&mut state, None));
            best = best.into_iter().chain(bound).reduce(|a, b| T::GOAL.best(a, b));
        });
        best
    }

    /// Estimates the share of the whole tree that is open here; each child of a state has the same weight
    /// (after P. Kilby, J. Slaney, S. Thiébaux and T. Walsh, Estimating search tree size, 2006).
    pub(crate) fn share_left(&mut self, tree: &T) -> f64 {
        /// The share of what was counted below which deeper levels are ignored.
        const NEGLIGIBLE: f64 = 1e-3;
        if self.root.is_some() {
            return self.share;
        }
        let mut left = 0.0;
        for level in 0..self.children.len() {
            let child = self.share_of_child(tree, level);
            let count =
                self.state_at(tree, level).map_or(0, |state| self.children[level].count(tree, &state));
            left += child * count as f64;
            if child < NEGLIGIBLE * left {
                return left + if level + 1 < self.children.len() { child } else { 0.0 };
            }
        }
        left
    }

    /// Passes on every open state; the states of a very large level are passed on together.
    pub(crate) fn open_states(&self, tree: &T, tell: &mut dyn FnMut(Unvisited<T::State>)) {
        if let Some(root) = &self.root {
            tell(Unvisited::State(root.clone()));
        }
        for (level, children) in self.children.iter().enumerate() {
            let Some(parent) = self.state_at(tree, level) else { continue };
            if children.count(tree, &parent) < COUNT_MAX {
                let mut children = children.clone();
                while let Some(child) = children.next(tree, &parent) {
                    tell(Unvisited::State(child));
                }
            } else {
                // A state that was ascended to may no longer know its bound.
                tell(Unvisited::Below(if T::Children::IN_PLACE { tree.root() } else { parent }));
            }
        }
    }
}

//! The open part: its share of the whole tree, a bound on it, and all of its states.

use super::Frontier;
use crate::{
    problem::Problem,
    tree::{COUNT_MAX, Children, Step as _, StepOf, Tree, is_in_place},
};

/// An unvisited part of an abandoned search.
#[derive(Debug)]
pub(crate) enum Unvisited<S> {
    State(S),
    /// A visited state with too many children to enumerate.
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

    /// Returns the end of the rest of a level in the order of the sequential search.
    pub(super) fn end_of(&mut self, tree: &T, level: usize) -> f64 {
        while self.ends.len() <= level {
            let end = match self.ends.len().checked_sub(1) {
                None => self.roots_begin(),
                Some(above) => {
                    self.state_at(tree, above).map_or(1.0, |state| self.begins_at(tree, above, &state))
                }
            };
            self.ends.push(end);
        }
        self.ends[level]
    }

    pub(super) fn roots_begin(&self) -> f64 {
        self.place.end - self.share * self.roots.len() as f64 - self.gap
    }

    /// Determines the end of the level below before the start of this one moves.
    pub(super) fn know_next_end(&mut self, tree: &T, level: usize) {
        if level + 1 < self.children.len() {
            self.end_of(tree, level + 1);
        }
    }

    /// Returns the start of the rest of a level in the order of the sequential search, given its parent state.
    pub(super) fn begins_at(&mut self, tree: &T, level: usize, state: &T::State) -> f64 {
        let (share, end) = (self.share_of_child(tree, level), self.end_of(tree, level));
        end - share * self.children[level].count(tree, state) as f64
    }

    /// Returns where the next state to be visited is in the order of the sequential search, from 0 to 1.
    pub(crate) fn next_place(&mut self, tree: &T) -> f64 {
        let Some(deepest) = self.children.len().checked_sub(1) else { return self.roots_begin() };
        self.state_at(tree, deepest).map_or(1.0, |state| self.begins_at(tree, deepest, &state))
    }

    /// Returns the depth of the roots if none of them was visited.
    pub(crate) fn unbegun_depth(&self) -> Option<usize> {
        self.children.is_empty().then_some(self.place.depth)
    }

    /// Returns a bound on everything that is open, if it is cheap and there is something new to report.
    pub(crate) fn bound(&mut self, problem: &T) -> Option<T::Cost>
    where
        T: Problem,
    {
        if !is_in_place::<T>() {
            let mut best = None;
            if !self.children.is_empty() {
                best = Some((T::HOOKS.quick_bound)(problem, &mut self.state_above_all(problem)?, None)?);
            }
            for mut root in self.roots.iter().cloned() {
                let bound = problem.leaf(&root).or_else(|| (T::HOOKS.quick_bound)(problem, &mut root, None));
                best = best.into_iter().chain(bound).reduce(|a, b| T::GOAL.best(a, b));
            }
            return best;
        }
        // In place the states above no longer need to know their bounds, but each child has one.
        let mut best = None;
        self.open_states(problem, &mut |open| {
            let (Unvisited::State(state) | Unvisited::Below(state)) = open;
            let bound = problem.leaf(state).or_else(|| (T::HOOKS.quick_bound)(problem, state, None));
            best = best.into_iter().chain(bound).reduce(|a, b| T::GOAL.best(a, b));
        });
        best
    }

    /// Estimates the share of the whole tree that is open here; each child of a state has the same weight
    /// (after P. Kilby, J. Slaney, S. Thiébaux and T. Walsh, Estimating search tree size, 2006).
    pub(crate) fn share_left(&mut self, tree: &T) -> f64 {
        /// The share of the counted part below which deeper levels are ignored.
        const NEGLIGIBLE: f64 = 1e-3;
        let mut left = self.share * self.roots.len() as f64;
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

    /// Passes on every open state, one at a time; the states of a very large level are passed on together. In place it
    /// is one state that is changed: there may be very many, each of megabytes.
    pub(crate) fn open_states(&self, tree: &T, tell: &mut dyn FnMut(Unvisited<&mut T::State>)) {
        self.roots.iter().for_each(|root| tell(Unvisited::State(&mut root.clone())));
        let Some(mut parent) = self.states.last().cloned() else { return };
        for (level, children) in self.children.iter().enumerate().rev() {
            if !is_in_place::<T>() {
                parent.clone_from(&self.states[level]);
            }
            let is_very_large = children.count(tree, &parent) >= COUNT_MAX;
            let mut left = children.clone();
            match (is_very_large, is_in_place::<T>()) {
                (true, false) => tell(Unvisited::Below(&mut parent)),
                // A state that was ascended to may no longer know its bound.
                (true, true) => tell(Unvisited::Below(&mut tree.root())),
                (false, false) => {
                    while let Some(mut child) = left.next(tree, &parent) {
                        tell(Unvisited::State(&mut child));
                    }
                }
                (false, true) => {
                    while StepOf::<T>::descend(&mut left, tree, &mut parent) {
                        tell(Unvisited::State(&mut parent));
                        StepOf::<T>::ascend(&left, tree, &mut parent);
                    }
                }
            }
            if is_in_place::<T>() && level > 0 {
                StepOf::<T>::ascend(&self.children[level - 1], tree, &mut parent);
            }
        }
    }
}

//! The open states of one task: a stack of levels, the children of each generated one by one.
//!
//! ```text
//!   level 0   root        children left: ── ▢ ▢ ▢      ◀─ a split takes from here: the shallowest level with any left
//!   level 1   ├─ state    children left: ── ▢
//!   level 2   │  └─ state children left: ── ▢ ▢        ◀─ the next state to visit comes from here
//! ```
//!
//! So the memory of a task grows with the depth of the tree, not with its breadth, and what is given away is what probably has
//! the most work below it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::problem::{Children, Problem};

/// A branched state and those of its children that were not visited yet.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Level<P: Problem> {
    state: P::State,
    children: P::Children,
}

/// The open states of a task.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Frontier<P: Problem> {
    /// The root of the tree, until it is visited.
    root: Option<P::State>,
    levels: Vec<Level<P>>,
}

impl<P: Problem> Frontier<P> {
    /// The frontier of a search that has not begun: the root alone.
    pub fn new(problem: &P) -> Self {
        Self { root: Some(problem.root()), levels: Vec::new() }
    }

    /// The next state to be visited, depth first; `None` when there is none left.
    #[inline]
    pub fn next(&mut self, problem: &P) -> Option<P::State> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(child) = level.children.next(problem, &level.state) {
                return Some(child);
            }
            self.levels.pop();
        }
        self.root.take()
    }

    /// Opens the children of a state that was just visited.
    #[inline]
    pub fn open(&mut self, state: P::State, children: P::Children) {
        self.levels.push(Level { state, children });
    }

    /// Splits off children of the shallowest level that has any left. What is split off and what remains are disjoint and
    /// together what was there.
    pub fn split(&mut self, problem: &P) -> Option<Self> {
        let deepest = self.levels.len().checked_sub(1)?;
        for (depth, level) in self.levels.iter_mut().enumerate() {
            if depth == deepest && level.children.is_single(problem, &level.state) {
                return None;
            }
            if let Some(children) = level.children.split(problem, &level.state) {
                let away = Level { state: level.state.clone(), children };
                return Some(Self { root: None, levels: vec![away] });
            }
        }
        None
    }
}

impl<P: Problem> fmt::Debug for Frontier<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontier")
            .field("begun", &self.root.is_none())
            .field("levels", &self.levels.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Paths;

    /// Visits what is open, splitting at the given moments, and gives the states in the order of their visit.
    fn visit(
        problem: &Paths,
        mut frontier: Frontier<Paths>,
        splits: &mut impl Iterator<Item = bool>,
    ) -> Vec<Vec<u8>> {
        let (mut visited, mut parts) = (Vec::new(), Vec::new());
        while let Some(state) = frontier.next(problem) {
            visited.push(state.clone());
            let children = problem.branch(&state);
            frontier.open(state, children);
            if splits.next().unwrap_or(false) {
                parts.extend(frontier.split(problem));
            }
        }
        for part in parts {
            visited.extend(visit(problem, part, splits));
        }
        visited
    }

    #[test]
    fn without_splits_the_visit_is_depth_first_in_the_order_of_the_children() {
        let problem = Paths { depth: 3, breadth: 3 };
        let visited = visit(&problem, Frontier::new(&problem), &mut std::iter::empty());
        let mut sorted = visited.clone();
        sorted.sort();
        assert_eq!(visited, sorted, "a path sorts before what continues it, and before its later siblings");
        assert_eq!(visited.len(), 1 + 3 + 9 + 27);
    }

    #[test]
    fn the_last_state_of_all_is_not_given_away() {
        let chain = Paths { depth: 50, breadth: 1 };
        let mut frontier = Frontier::new(&chain);
        assert!(frontier.split(&chain).is_none());
        while let Some(state) = frontier.next(&chain) {
            let children = chain.branch(&state);
            frontier.open(state, children);
            assert!(frontier.split(&chain).is_none());
        }
    }

    #[test]
    fn the_shallowest_level_is_split_first() {
        let problem = Paths { depth: 4, breadth: 2 };
        let mut frontier = Frontier::new(&problem);
        for _ in 0..3 {
            let state = frontier.next(&problem).unwrap();
            let children = problem.branch(&state);
            frontier.open(state, children);
        }
        let mut away = frontier.split(&problem).unwrap();
        assert_eq!(away.next(&problem), Some(vec![1]));
        assert_eq!(away.next(&problem), None);
    }

    proptest! {
        #[test]
        fn splits_are_disjoint_and_complete(
            depth in 0_u8..5,
            breadth in 1_u8..4,
            splits: Vec<bool>,
            always: bool,
        ) {
            let problem = Paths { depth, breadth };
            let whole = visit(&problem, Frontier::new(&problem), &mut std::iter::empty());
            let mut splits = splits.into_iter().chain(std::iter::repeat(always));
            let mut parts = visit(&problem, Frontier::new(&problem), &mut splits);
            parts.sort();
            prop_assert_eq!(parts, whole);
        }
    }
}

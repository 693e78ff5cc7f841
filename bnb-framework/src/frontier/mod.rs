//! The open states of one task: a stack of levels, the children of each generated one by one.
//!
//! ```text
//!   level 0   root        children left: ── ▢ ▢ ▢      ◀─ the largest parts come from here: the shallowest level
//!   level 1   ├─ state    children left: ── ▢
//!   level 2   │  └─ state children left: ── ▢ ▢        ◀─ the next state to visit comes from here
//! ```
//!
//! The memory of a task thus grows with the depth of the tree, not with its breadth, and a split may take states with
//! much or with little work below them. If children are [in place](crate::InPlace) there is only
//! one state, that of the deepest level; the state of a level above is computed by ascending from a copy of
//! it.
//!
//! While nothing interrupts the search, its levels are the frames of a recursion, which is the fastest form.
//! When the search pauses, the recursion returns, and its frames become levels of the stack, which can be
//! split, sent and continued.

use std::{collections::VecDeque, fmt};

use serde::{Deserialize, Serialize};

pub(crate) use self::{split::Siblings, stock::Unvisited};
use crate::tree::{Step as _, StepOf, Tree, is_in_place};

mod recursion;
mod split;
mod stock;
#[cfg(test)]
mod tests;

/// The open states of a task.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Frontier<T: Tree> {
    /// The unvisited states with which the search starts, in the order of visit: the root of the tree, or
    /// siblings.
    roots: VecDeque<T::State>,
    /// The states that were branched, one for each level; in place only the deepest.
    states: Vec<T::State>,
    /// The unvisited part of their children.
    children: Vec<T::Children>,
    /// The number of shallowest levels that are known to have no child left.
    spent: usize,
    /// The estimated share of the whole tree below each root, or below the state of the first level.
    share: f64,
    /// The share of the tree that was split off between the first root and the others.
    gap: f64,
    /// The level of the state that was last returned to be bounded.
    bounded: Option<usize>,
    /// The estimated share of each child of a level, for the shallowest levels, as far as requested.
    shares: Vec<f64>,
    /// The ends of these levels in the order of the sequential search, and perhaps that of the next one.
    ends: Vec<f64>,
    /// The place of the roots; without roots, the end of the first level.
    place: Place,
}

/// The action below a visited state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// Branch it.
    Open,
    /// Nothing is left to do.
    Nothing,
    /// Nothing is left to do, nor at its later siblings.
    NothingNorAfter,
    /// Nothing is left to do, and the search pauses here: the levels of the frontier are then the path to the
    /// state.
    NothingAndPause,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The number of branchings above.
    pub(crate) depth: usize,
    /// Its end in the order of the sequential search, from 0 for the start to 1 for the end.
    pub(crate) end: f64,
}

impl Place {
    /// The place of a part for which it does not matter.
    pub(crate) const UNKNOWN: Self = Self { depth: 0, end: 1.0 };
}

/// Visits the states of a search.
pub trait Visitor<T: Tree> {
    /// Visits a state, and returns the action below it.
    fn visit(&mut self, tree: &T, state: &mut T::State) -> Below;

    /// Visits a state with which the search of a task starts: the root of the tree, or a state with a parent that was
    /// branched elsewhere. The default is to visit it like any other.
    fn visit_root(&mut self, tree: &T, state: &mut T::State) -> Below {
        self.visit(tree, state)
    }

    /// Branches a state that is [open](Below::Open).
    #[inline]
    fn branch(&mut self, tree: &T, state: &mut T::State) -> T::Children {
        tree.branch(state)
    }

    /// Returns whether the search pauses. Called after each state; `opened` is true if its children are
    /// open.
    fn pauses(&mut self, opened: bool) -> bool;
}

/// Why a search has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Searched {
    /// The visitor requested a pause.
    Paused,
    /// No state is left.
    Over,
}

impl<T: Tree> Frontier<T> {
    /// Creates the frontier of a new search: the root alone.
    pub fn new(tree: &T) -> Self {
        Self::at(tree.root(), 1.0, Place::UNKNOWN)
    }

    /// Creates a search that starts at a state, from its estimated share of the whole tree and its place.
    pub(crate) fn at(root: T::State, share: f64, place: Place) -> Self {
        Self { roots: [root].into(), share, place, ..Self::nothing() }
    }

    /// Creates a search below a branched state, from its estimated share of the whole tree and its place.
    pub(crate) fn below(state: T::State, children: T::Children, share: f64, place: Place) -> Self {
        Self { states: vec![state], children: vec![children], share, place, ..Self::nothing() }
    }

    /// Removes the root of a search that has not started, with its share of the whole tree.
    pub(crate) fn take_root(&mut self) -> Option<(T::State, f64)> {
        debug_assert!(self.roots.len() <= 1, "no more would be left behind");
        self.roots.pop_front().map(|root| (root, self.share))
    }

    fn nothing() -> Self {
        Self {
            roots: VecDeque::new(),
            states: Vec::new(),
            children: Vec::new(),
            spent: 0,
            share: 0.0,
            gap: 0.0,
            bounded: None,
            shares: Vec::new(),
            ends: Vec::new(),
            place: Place::UNKNOWN,
        }
    }

    /// Clears the data of a completed level, and of the levels below it.
    fn forget(&mut self, level: usize) {
        self.spent = self.spent.min(level);
        self.shares.truncate(level);
        self.ends.truncate(level);
        self.bounded = self.bounded.filter(|&bounded| bounded < level);
    }

    /// Returns the number of levels.
    pub fn levels(&self) -> usize {
        self.children.len()
    }

    /// Returns the parent state of a level. Returns `None` if there is no such level.
    pub fn state_at(&self, tree: &T, level: usize) -> Option<T::State> {
        if level >= self.children.len() {
            return None;
        }
        if !is_in_place::<T>() {
            return self.states.get(level).cloned();
        }
        let mut state = self.states.last()?.clone();
        for above in self.children[level..].iter().rev().skip(1) {
            StepOf::<T>::ascend(above, tree, &mut state);
        }
        Some(state)
    }
}

impl<T: Tree> fmt::Debug for Frontier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontier")
            .field("roots", &self.roots.len())
            .field("levels", &self.children.len())
            .finish_non_exhaustive()
    }
}

//! The open states of one task: a stack of levels, the children of each generated one by one.
//!
//! ```text
//!   level 0   root        children left: ── ▢ ▢ ▢      ◀─ a split takes from here: the shallowest level with any left
//!   level 1   ├─ state    children left: ── ▢
//!   level 2   │  └─ state children left: ── ▢ ▢        ◀─ the next state to visit comes from here
//! ```
//!
//! So the memory of a task grows with the depth of the tree, not with its breadth, and what is given away is
//! what probably has the most work below it. Where children are [in place](Children::IN_PLACE) there is one
//! state only, that of the deepest level; the state of a level above is had by ascending from a copy of it.
//!
//! While nobody wants anything the levels that are being searched are the frames of a recursion, since
//! nothing is faster. When the search pauses, the recursion returns, and its frames become levels of the
//! stack, where they can be split, sent and gone on with.

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use self::stock::Unvisited;
use crate::tree::{Children, Tree};

mod recursion;
mod split;
mod stock;
#[cfg(test)]
mod tests;

/// The open states of a task.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Frontier<T: Tree> {
    /// The root of the tree, until it is visited.
    root: Option<T::State>,
    /// The states that were branched, one a level; in place only the deepest.
    states: Vec<T::State>,
    /// What is left of their children.
    children: Vec<T::Children>,
    /// So many of the shallowest levels are known to have no child left.
    spent: usize,
    /// Which share of the whole tree the root, or the state of the first level, is taken for.
    share: f64,
    /// The level of which the state was last given to be bounded.
    bounded: Option<usize>,
    /// Which share each child of a level is taken for, as far as that was asked: of the shallowest levels.
    shares: Vec<f64>,
}

/// What is to be done below a state that was visited.
#[derive(Debug)]
pub enum Below<C> {
    /// Its children are open.
    Open(C),
    /// Nothing.
    Nothing,
    /// Nothing, nor at its later siblings.
    NothingNorAfter,
}

/// Who visits the states.
pub trait Visitor<T: Tree> {
    /// Visits a state, and says what is to be done below it.
    fn visit(&mut self, tree: &T, state: &mut T::State) -> Below<T::Children>;

    /// Whether the search is to pause, asked after each state: `opened` says whether its children are open.
    fn pauses(&mut self, opened: bool) -> bool;
}

/// Why a search has come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Searched {
    /// The visitor wanted a pause.
    Paused,
    /// No state is left.
    Over,
}

impl<T: Tree> Frontier<T> {
    /// The frontier of a search that has not begun: the root alone.
    pub fn new(tree: &T) -> Self {
        Self::at(tree.root(), 1.0)
    }

    /// A search that is to begin at a state, which is taken for that share of the whole tree.
    pub(crate) fn at(root: T::State, share: f64) -> Self {
        Self { root: Some(root), share, ..Self::nothing() }
    }

    /// A search below a state that was branched, which is taken for that share of the whole tree.
    pub(crate) fn below(state: T::State, children: T::Children, share: f64) -> Self {
        Self { states: vec![state], children: vec![children], share, ..Self::nothing() }
    }

    /// Takes back the root of a search that has not begun.
    pub(crate) fn take_root(&mut self) -> Option<T::State> {
        self.root.take()
    }

    fn nothing() -> Self {
        let (states, children, shares) = (Vec::new(), Vec::new(), Vec::new());
        Self { root: None, states, children, spent: 0, share: 0.0, bounded: None, shares }
    }

    /// Forgets what was known of a level, and of those below it: it is done.
    fn forget(&mut self, level: usize) {
        self.spent = self.spent.min(level);
        self.shares.truncate(level);
        self.bounded = self.bounded.filter(|&bounded| bounded < level);
    }

    /// How many levels there are.
    pub fn levels(&self) -> usize {
        self.children.len()
    }

    /// The state whose children are those of a level. `None` if there is no such level.
    pub fn state_at(&self, tree: &T, level: usize) -> Option<T::State> {
        if level >= self.children.len() {
            return None;
        }
        if !T::Children::IN_PLACE {
            return self.states.get(level).cloned();
        }
        let mut state = self.states.last()?.clone();
        for above in self.children[level..].iter().rev().skip(1) {
            above.ascend(tree, &mut state);
        }
        Some(state)
    }
}

impl<T: Tree> fmt::Debug for Frontier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontier")
            .field("begun", &self.root.is_none())
            .field("levels", &self.children.len())
            .finish_non_exhaustive()
    }
}

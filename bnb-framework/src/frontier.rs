//! The open states of one task: a stack of levels, the children of each generated one by one.
//!
//! ```text
//!   level 0   root        children left: ── ▢ ▢ ▢      ◀─ a split takes from here: the shallowest level with any left
//!   level 1   ├─ state    children left: ── ▢
//!   level 2   │  └─ state children left: ── ▢ ▢        ◀─ the next state to visit comes from here
//! ```
//!
//! So the memory of a task grows with the depth of the tree, not with its breadth, and what is given away is what probably has
//! the most work below it. Where children are [in place](Children::IN_PLACE) there is one state only, that of the deepest
//! level; the state of a level above is had by ascending from a copy of it.
//!
//! While nobody wants anything the levels that are being searched are the frames of a recursion, since nothing is faster. When the
//! search pauses, the recursion returns, and its frames become levels of the stack, where they can be split, sent and gone on with.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    problem::Problem,
    tree::{COUNT_MAX, Children, Tree},
};

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

/// What was not visited when a search was given up.
#[derive(Debug)]
pub(crate) enum Unvisited<S> {
    /// A state.
    State(S),
    /// So many children of a visited state that they were not looked at one by one.
    Below(S),
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

/// How many levels the recursion goes down before its frames are put on the stack: little enough for any thread, whatever
/// the size of a state.
const RECURSION_MAX: u32 = if cfg!(test) { 3 } else { 64 };

/// How a recursion has come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    /// Everything below is done.
    Done,
    /// It was too deep.
    TooDeep,
    /// The visitor wanted a pause.
    Paused,
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

    /// Visits the open states, depth first, until none is left or the visitor wants a pause.
    pub fn search(&mut self, tree: &T, visitor: &mut impl Visitor<T>) -> Searched {
        if let Some(mut root) = self.root.take() {
            if let Below::Open(children) = visitor.visit(tree, &mut root) {
                self.states.push(root);
                self.children.push(children);
            }
            if visitor.pauses(true) {
                return Searched::Paused;
            }
        }
        loop {
            let level = self.children.len().saturating_sub(1);
            let back = if T::Children::IN_PLACE {
                self.search_in_place(tree, visitor)
            } else {
                self.search_copying(tree, visitor)
            };
            match back {
                None => return Searched::Over,
                Some(Back::Done) => {}
                Some(back) => {
                    // The frames have come back the deepest first.
                    self.children[level..].reverse();
                    if !T::Children::IN_PLACE {
                        self.states[level..].reverse();
                    }
                    if back == Back::Paused {
                        return Searched::Paused;
                    }
                }
            }
        }
    }

    /// Searches below the deepest level. `None` if there is no level.
    fn search_copying(&mut self, tree: &T, visitor: &mut impl Visitor<T>) -> Option<Back> {
        let (parent, mut left) = (self.states.pop()?, self.children.pop()?);
        let level = self.children.len();
        let back = Recursion { frontier: self, tree, visitor }.below(&parent, &mut left, 0);
        if back == Back::Done {
            self.forget(level);
        } else {
            self.states.push(parent);
            self.children.push(left);
        }
        Some(back)
    }

    /// As [`search_copying`](Self::search_copying), in place.
    fn search_in_place(&mut self, tree: &T, visitor: &mut impl Visitor<T>) -> Option<Back> {
        let (mut here, mut left) = (self.states.pop()?, self.children.pop()?);
        let level = self.children.len();
        let back = Recursion { frontier: self, tree, visitor }.below_in_place(&mut here, &mut left, 0);
        if back == Back::Done {
            self.forget(level);
            if let Some(above) = self.children.last() {
                above.ascend(tree, &mut here);
                self.states.push(here);
            }
        } else {
            self.states.push(here);
            self.children.push(left);
        }
        Some(back)
    }

    /// Forgets what was known of a level, and of those below it: it is done.
    fn forget(&mut self, level: usize) {
        self.spent = self.spent.min(level);
        self.shares.truncate(level);
        self.bounded = self.bounded.filter(|&bounded| bounded < level);
    }

    /// Splits off children of the shallowest level that has any left. What is split off and what remains are disjoint and
    /// together what was there.
    pub fn split(&mut self, tree: &T) -> Option<Self> {
        self.split_levels(tree, 1)
    }

    /// As [`split`](Self::split), from several levels: from no more than so many, and no more than half of those that may have
    /// any left. For trees where a state is as likely to have much below it at any depth, and mostly has little. In place
    /// it is only ever one level.
    pub fn split_levels(&mut self, tree: &T, levels_max: usize) -> Option<Self> {
        let half = (self.children.len().saturating_sub(self.spent)).div_ceil(2);
        let levels_max = if T::Children::IN_PLACE { 1 } else { levels_max.min(half) };
        let mut away = Self::nothing();
        let mut level = self.spent;
        while level < self.children.len() && away.children.len() < levels_max {
            let state = self.state_at(tree, level)?;
            if away.children.is_empty() && self.is_last(tree, level, &state) {
                break;
            }
            let share = self.share_of_child(tree, level);
            match self.children[level].split(tree, &state) {
                Some(children) => {
                    away.states.push(state);
                    away.children.push(children);
                    away.shares.push(share);
                }
                None if level == self.spent => self.spent += 1,
                None => {}
            }
            level += 1;
        }
        (!away.children.is_empty()).then_some(away)
    }

    /// Splits off children of a level, counted from the shallowest. `None` if it has none left, or only the last state of all.
    pub fn split_at(&mut self, tree: &T, level: usize) -> Option<Self> {
        let state = self.state_at(tree, level)?;
        if self.is_last(tree, level, &state) {
            return None;
        }
        let share = self.share_of_child(tree, level);
        let children = self.children[level].split(tree, &state)?;
        let mut away = Self::below(state, children, 0.0);
        away.shares.push(share);
        Some(away)
    }

    /// Splits off the next state of the shallowest level that has any left.
    pub fn split_state(&mut self, tree: &T) -> Option<Self> {
        loop {
            let level = self.spent;
            let parent = self.state_at(tree, level)?;
            if self.is_last(tree, level, &parent) {
                return None;
            }
            let share = self.share_of_child(tree, level);
            match self.children[level].next(tree, &parent) {
                Some(state) => return Some(Self::at(state, share)),
                None => self.spent += 1,
            }
        }
    }

    /// Whether a level has one state left, and none is below it: to give it away would only move the work.
    fn is_last(&self, tree: &T, level: usize, state: &T::State) -> bool {
        level + 1 == self.children.len() && self.children[level].is_single(tree, state)
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

    /// The deepest state that everything which is open lies below, if that was not asked before: then nothing new is to be learnt from
    /// its bound.
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

    /// The share of the whole tree that a child of a level is taken for: the share of the level, divided among the children that it
    /// has when that is first asked.
    fn share_of_child(&mut self, tree: &T, level: usize) -> f64 {
        while self.shares.len() <= level {
            let at = self.shares.len();
            let whole = if at == 0 { self.share } else { self.shares[at - 1] };
            let count = self.state_at(tree, at).map_or(0, |state| self.children[at].count(tree, &state));
            // The one that the levels below belong to has left its level, but is not done.
            let under_way = u64::from(at + 1 < self.children.len());
            self.shares.push(whole / (count + under_way).max(1) as f64);
        }
        self.shares[level]
    }

    /// A bound on everything that is open, if it is easily had and there is something new to say.
    pub(crate) fn bound(&mut self, problem: &T) -> Option<T::Cost>
    where
        T: Problem,
    {
        if !T::Children::IN_PLACE {
            return problem.bound(&mut self.state_above_all(problem)?, None);
        }
        // The states above need not know their bounds any more, but each child has one.
        let mut best = None;
        self.open_states(problem, &mut |open| {
            let (Unvisited::State(mut state) | Unvisited::Below(mut state)) = open;
            let bound = problem.leaf(&state).or_else(|| problem.bound(&mut state, None));
            best = best.into_iter().chain(bound).reduce(|a, b| T::GOAL.best(a, b));
        });
        best
    }

    /// Which share of the whole tree is open here: an estimate, that gives each child of a state the same weight (after P. Kilby,
    /// J. Slaney, S. Thiébaux and T. Walsh, Estimating search tree size, 2006).
    pub(crate) fn share_left(&mut self, tree: &T) -> f64 {
        /// What weighs less, of what was counted, is not looked at.
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

    /// Tells every state that is open; those of a level that has very many together.
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
                // A state that was ascended to need not know its bound any more.
                tell(Unvisited::Below(if T::Children::IN_PLACE { tree.root() } else { parent }));
            }
        }
    }
}

/// A search under way: its frames are levels. Those that come back undone are put on the frontier, the deepest first.
struct Recursion<'a, T: Tree, V> {
    frontier: &'a mut Frontier<T>,
    tree: &'a T,
    visitor: &'a mut V,
}

impl<T: Tree, V: Visitor<T>> Recursion<'_, T, V> {
    fn below(&mut self, parent: &T::State, left: &mut T::Children, depth: u32) -> Back {
        while let Some(mut child) = left.next(self.tree, parent) {
            match self.visitor.visit(self.tree, &mut child) {
                Below::Open(mut children) if !children.is_empty() => {
                    let back = if self.visitor.pauses(true) {
                        Back::Paused
                    } else if depth == RECURSION_MAX {
                        Back::TooDeep
                    } else {
                        self.below(&child, &mut children, depth + 1)
                    };
                    if back != Back::Done {
                        self.keep(child, children);
                        return back;
                    }
                    continue;
                }
                Below::Open(_) | Below::Nothing => {}
                Below::NothingNorAfter => break,
            }
            if self.visitor.pauses(false) {
                return Back::Paused;
            }
        }
        Back::Done
    }

    #[cold]
    fn keep(&mut self, state: T::State, children: T::Children) {
        self.frontier.states.push(state);
        self.frontier.children.push(children);
    }

    fn below_in_place(&mut self, here: &mut T::State, left: &mut T::Children, depth: u32) -> Back {
        while left.descend(self.tree, here) {
            match self.visitor.visit(self.tree, here) {
                Below::Open(mut children) if !children.is_empty() => {
                    let back = if self.visitor.pauses(true) {
                        Back::Paused
                    } else if depth == RECURSION_MAX {
                        Back::TooDeep
                    } else {
                        self.below_in_place(here, &mut children, depth + 1)
                    };
                    if back != Back::Done {
                        // Not back to the parent: the state is that of the deepest level.
                        self.frontier.children.push(children);
                        return back;
                    }
                    left.ascend(self.tree, here);
                    continue;
                }
                Below::Open(_) | Below::Nothing => left.ascend(self.tree, here),
                Below::NothingNorAfter => {
                    left.ascend(self.tree, here);
                    break;
                }
            }
            if self.visitor.pauses(false) {
                return Back::Paused;
            }
        }
        Back::Done
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Paths, Steps};

    /// Notes the states in the order of their visit, and pauses when it is told to.
    struct Notes<'a> {
        visited: Vec<Vec<u8>>,
        pauses: &'a mut dyn Iterator<Item = bool>,
        /// Whether states that end so have no later siblings.
        last: Option<u8>,
    }

    impl<T: Tree<State = Vec<u8>>> Visitor<T> for Notes<'_> {
        fn visit(&mut self, tree: &T, state: &mut Vec<u8>) -> Below<T::Children> {
            self.visited.push(state.clone());
            let last = self.last.is_some() && state.last().copied() == self.last;
            if last { Below::NothingNorAfter } else { Below::Open(tree.branch(state)) }
        }

        fn pauses(&mut self, _: bool) -> bool {
            self.pauses.next().unwrap_or(false)
        }
    }

    /// Visits what is open, splitting at the given moments, and gives the states in the order of their visit.
    fn visit<T: Tree<State = Vec<u8>>>(
        tree: &T,
        frontier: Frontier<T>,
        splits: &mut dyn Iterator<Item = bool>,
    ) -> Vec<Vec<u8>> {
        visit_splitting(tree, frontier, splits, 1)
    }

    /// As [`visit`], splitting so many levels at once, or, if that is 0, one state.
    fn visit_splitting<T: Tree<State = Vec<u8>>>(
        tree: &T,
        mut frontier: Frontier<T>,
        splits: &mut dyn Iterator<Item = bool>,
        levels: usize,
    ) -> Vec<Vec<u8>> {
        let (mut parts, mut notes) = (Vec::new(), Notes { visited: Vec::new(), pauses: splits, last: None });
        while frontier.search(tree, &mut notes) == Searched::Paused {
            // None at once: one state.
            parts.extend(if levels == 0 {
                frontier.split_state(tree)
            } else {
                frontier.split_levels(tree, levels)
            });
        }
        let mut visited = notes.visited;
        for part in parts {
            visited.extend(visit_splitting(tree, part, splits, levels));
        }
        visited
    }

    fn whole<T: Tree<State = Vec<u8>>>(tree: &T) -> Vec<Vec<u8>> {
        visit(tree, Frontier::new(tree), &mut std::iter::empty())
    }

    #[test]
    fn without_splits_the_visit_is_depth_first_in_the_order_of_the_children() {
        let visited = whole(&Paths { depth: 3, breadth: 3 });
        let mut sorted = visited.clone();
        sorted.sort();
        assert_eq!(visited, sorted, "a path sorts before what continues it, and before its later siblings");
        assert_eq!(visited.len(), 1 + 3 + 9 + 27);
        assert_eq!(whole(&Steps(Paths { depth: 3, breadth: 3 })), visited, "in place too");
    }

    fn gives_nothing_away<T: Tree<State = Vec<u8>>>(chain: &T) {
        let mut frontier = Frontier::new(chain);
        assert!(frontier.split(chain).is_none());
        let mut notes = Notes { visited: Vec::new(), pauses: &mut std::iter::repeat(true), last: None };
        while frontier.search(chain, &mut notes) == Searched::Paused {
            assert!(frontier.split(chain).is_none());
        }
        assert_eq!(notes.visited.len(), 201);
    }

    #[test]
    fn the_last_state_of_all_is_not_given_away() {
        let chain = Paths { depth: 200, breadth: 1 };
        gives_nothing_away(&chain);
        gives_nothing_away(&Steps(chain));
    }

    #[test]
    fn a_tree_deeper_than_the_recursion_is_visited_whole() {
        let chain = Paths { depth: 250, breadth: 1 };
        const { assert!(250 > 3 * RECURSION_MAX) };
        assert_eq!((whole(&chain).len(), whole(&Steps(chain)).len()), (251, 251));
    }

    #[test]
    fn the_shallowest_level_is_split_first() {
        let tree = Paths { depth: 4, breadth: 2 };
        let mut frontier = Frontier::new(&tree);
        let mut pauses = (0..).map(|state| state == 2);
        let mut notes = Notes { visited: Vec::new(), pauses: &mut pauses, last: None };
        assert_eq!(frontier.search(&tree, &mut notes), Searched::Paused);
        let away = frontier.split(&tree).unwrap();
        assert_eq!(visit(&tree, away, &mut std::iter::empty())[0], vec![1]);
        let next = frontier.split(&tree).unwrap();
        assert_eq!(visit(&tree, next, &mut std::iter::empty())[0], vec![0, 1]);
    }

    #[test]
    fn nothing_after_a_state_means_its_siblings_alone() {
        fn cut<T: Tree<State = Vec<u8>>>(tree: &T, paused: bool) -> Vec<Vec<u8>> {
            let mut pauses = std::iter::repeat(paused);
            let mut notes = Notes { visited: Vec::new(), pauses: &mut pauses, last: Some(1) };
            let mut frontier = Frontier::new(tree);
            while frontier.search(tree, &mut notes) == Searched::Paused {}
            notes.visited
        }
        let tree = Paths { depth: 2, breadth: 3 };
        let left: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![0, 1], vec![1]];
        for paused in [false, true] {
            assert_eq!(cut(&tree, paused), left);
            assert_eq!(cut(&Steps(tree.clone()), paused), left);
        }
    }

    proptest! {
        #[test]
        fn splits_are_disjoint_and_complete(
            depth in 0_u8..5,
            breadth in 1_u8..4,
            splits: Vec<bool>,
            always: bool,
            levels in 0_usize..5,
        ) {
            let tree = Paths { depth, breadth };
            let whole = whole(&tree);
            let splits = || splits.iter().copied().chain(std::iter::repeat(always));
            let mut parts = visit_splitting(&tree, Frontier::new(&tree), &mut splits(), levels);
            parts.sort();
            prop_assert_eq!(&parts, &whole);
            let steps = Steps(tree);
            let mut parts = visit_splitting(&steps, Frontier::new(&steps), &mut splits(), levels);
            parts.sort();
            prop_assert_eq!(parts, whole);
        }
    }
}

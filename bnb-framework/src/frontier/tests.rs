//! Every state is visited once, however the frontier is split and paused.

use std::cell::Cell;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{recursion::RECURSION_MAX, *};
use crate::{
    testing::{Paths, Steps},
    tree::{Children, InPlace, Moves},
};

/// Records the states in the order of their visit, and pauses on demand.
struct Notes<'a> {
    visited: Vec<Vec<u8>>,
    pauses: &'a mut dyn Iterator<Item = bool>,
    /// States that end with this step have no later siblings.
    last: Option<u8>,
}

impl<T: Tree<State = Vec<u8>>> Visitor<T> for Notes<'_> {
    fn visit(&mut self, _: &T, state: &mut Vec<u8>) -> Below {
        self.visited.push(state.clone());
        let last = self.last.is_some() && state.last().copied() == self.last;
        if last { Below::NothingNorAfter } else { Below::Open }
    }

    fn pauses(&mut self, _: bool) -> bool {
        self.pauses.next().unwrap_or(false)
    }
}

#[derive(Debug, Clone, Copy)]
enum Part {
    /// Half of a number of levels.
    Levels(usize),
    State,
    /// So many of the next states.
    Next(u64),
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![(1..5_usize).prop_map(Part::Levels), Just(Part::State), (1..5_u64).prop_map(Part::Next)]
}

fn split<T: Tree>(frontier: &mut Frontier<T>, tree: &T, part: Part) -> Option<Frontier<T>> {
    match part {
        Part::Levels(levels) => frontier.split_levels(tree, levels),
        Part::State => frontier.split_state(tree),
        Part::Next(count) => frontier.split_next(tree, usize::MAX, |_| Some(count)),
    }
}

/// Visits the open part with splits at the given times, and returns the states in the order of their visit.
fn visit<T: Tree<State = Vec<u8>>>(
    tree: &T,
    frontier: Frontier<T>,
    splits: &mut dyn Iterator<Item = bool>,
) -> Vec<Vec<u8>> {
    visit_splitting(tree, frontier, splits, Part::Levels(1))
        .into_iter()
        .flat_map(|(_, states)| states)
        .collect()
}

/// Visits like [`visit`], and returns the states of each part with the place of its start.
fn visit_splitting<T: Tree<State = Vec<u8>>>(
    tree: &T,
    mut frontier: Frontier<T>,
    splits: &mut dyn Iterator<Item = bool>,
    part: Part,
) -> Vec<(f64, Vec<Vec<u8>>)> {
    let (mut parts, mut notes) = (Vec::new(), Notes { visited: Vec::new(), pauses: splits, last: None });
    let begin = frontier.next_place(tree);
    while frontier.search(tree, &mut notes) == Searched::Paused {
        parts.extend(split(&mut frontier, tree, part));
    }
    let mut visited = vec![(begin, notes.visited)];
    for away in parts {
        visited.extend(visit_splitting(tree, away, splits, part));
    }
    visited
}

fn whole<T: Tree<State = Vec<u8>>>(tree: &T) -> Vec<Vec<u8>> {
    visit(tree, Frontier::new(tree), &mut std::iter::empty())
}

/// Returns the open states after a number of polls, in any order.
fn open_after<T: Tree<State = Vec<u8>>>(tree: &T, polls: usize) -> Vec<Vec<u8>> {
    let mut frontier = Frontier::new(tree);
    let mut pauses = std::iter::repeat_n(false, polls).chain([true]);
    let _ = frontier.search(tree, &mut Notes { visited: Vec::new(), pauses: &mut pauses, last: None });
    let mut open = Vec::new();
    frontier.open_states(tree, &mut |state| match state {
        Unvisited::State(state) => open.push(state.clone()),
        Unvisited::Below(_) => panic!("no level is that large"),
    });
    open.sort();
    open
}

#[test]
fn open_states_are_the_same_in_place() {
    let tree = Paths { depth: 4, breadth: 3 };
    let in_place = Steps(tree.clone());
    assert_eq!(open_after(&tree, 0), [[0], [1], [2]], "the root was visited");
    for polls in 0..120 {
        assert_eq!(open_after(&tree, polls), open_after(&in_place, polls), "after {polls} polls");
    }
}

thread_local! {
    static CLONES: Cell<usize> = const { Cell::new(0) };
}

/// A path that counts how often any was cloned.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counted(Vec<u8>);

impl Clone for Counted {
    fn clone(&self) -> Self {
        CLONES.set(CLONES.get() + 1);
        Self(self.0.clone())
    }
}

/// A tree of many large states.
#[derive(Serialize, Deserialize)]
struct Large;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LargeChildren(u8);

impl Tree for Large {
    type State = Counted;
    type Children = LargeChildren;

    fn root(&self) -> Counted {
        Counted::default()
    }

    fn branch(&self, _: &mut Counted) -> LargeChildren {
        LargeChildren(100)
    }
}

impl Children<Large> for LargeChildren {
    type Step = Moves;

    fn next(&mut self, tree: &Large, parent: &Counted) -> Option<Counted> {
        let mut child = parent.clone();
        self.descend(tree, &mut child).then_some(child)
    }

    fn split(&mut self, _: &Large, _: &Counted) -> Option<Self> {
        None
    }

    fn count(&self, _: &Large, _: &Counted) -> u64 {
        self.0.into()
    }
}

impl InPlace<Large> for LargeChildren {
    fn descend(&mut self, _: &Large, state: &mut Counted) -> bool {
        let Some(left) = self.0.checked_sub(1) else { return false };
        self.0 = left;
        state.0.push(left);
        true
    }

    fn ascend(&self, _: &Large, state: &mut Counted) {
        state.0.pop();
    }
}

struct Visits(usize);

impl Visitor<Large> for Visits {
    fn visit(&mut self, _: &Large, _: &mut Counted) -> Below {
        Below::Open
    }

    fn pauses(&mut self, _: bool) -> bool {
        self.0 -= 1;
        self.0 == 0
    }
}

/// A state may take a megabyte, and there may be hundreds of thousands that are open.
#[test]
fn open_states_in_place_are_passed_on_without_copies() {
    let mut frontier = Frontier::new(&Large);
    assert_eq!(frontier.search(&Large, &mut Visits(20)), Searched::Paused);
    CLONES.set(0);
    let mut open = 0;
    frontier.open_states(&Large, &mut |_| open += 1);
    assert_eq!((open, CLONES.get()), (20 * 100 - 19, 1));
}

#[test]
fn visit_without_splits_is_depth_first_in_child_order() {
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
fn last_state_is_not_given_away() {
    let chain = Paths { depth: 200, breadth: 1 };
    gives_nothing_away(&chain);
    gives_nothing_away(&Steps(chain));
}

#[test]
fn tree_deeper_than_recursion_is_visited_completely() {
    let chain = Paths { depth: 250, breadth: 1 };
    const { assert!(250 > 3 * RECURSION_MAX) };
    assert_eq!((whole(&chain).len(), whole(&Steps(chain)).len()), (251, 251));
}

#[test]
fn shallowest_level_is_split_first() {
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
fn pruned_state_leaves_its_siblings_open() {
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

/// Returns all states, sorted, and checks that parts ordered by their first states are also ordered by place.
fn sorted(mut parts: Vec<(f64, Vec<Vec<u8>>)>) -> Vec<Vec<u8>> {
    parts.retain(|(_, states)| !states.is_empty());
    parts.sort_by(|(_, a), (_, b)| a[0].cmp(&b[0]));
    let places: Vec<f64> = parts.iter().map(|(place, _)| *place).collect();
    assert!(places.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9), "{parts:?}");
    let mut states: Vec<Vec<u8>> = parts.into_iter().flat_map(|(_, states)| states).collect();
    states.sort();
    states
}

proptest! {
    #[test]
    fn splits_are_disjoint_and_complete_and_have_their_place_in_the_order(
        depth in 0_u8..5,
        breadth in 1_u8..5,
        splits: Vec<bool>,
        always: bool,
        part in part(),
    ) {
        let tree = Paths { depth, breadth };
        let whole = whole(&tree);
        let splits = || splits.iter().copied().chain(std::iter::repeat(always));
        prop_assert_eq!(&sorted(visit_splitting(&tree, Frontier::new(&tree), &mut splits(), part)), &whole);
        let steps = Steps(tree);
        prop_assert_eq!(sorted(visit_splitting(&steps, Frontier::new(&steps), &mut splits(), part)), whole);
    }
}

#[test]
fn deepest_level_of_sufficient_size_is_split() {
    let tree = Paths { depth: 3, breadth: 3 };
    let mut frontier = Frontier::new(&tree);
    let mut pauses = (0..).map(|state| state == 2);
    let mut notes = Notes { visited: Vec::new(), pauses: &mut pauses, last: None };
    assert_eq!(frontier.search(&tree, &mut notes), Searched::Paused);
    let none = frontier.split_next(&tree, 0, |_| Some(1));
    assert!(none.is_none(), "the root was visited");
    let large = |siblings: &Siblings| (siblings.share > 0.2).then_some(9);
    let away = frontier.split_next(&tree, usize::MAX, large).unwrap();
    assert_eq!(visit(&tree, away, &mut std::iter::empty())[0], [1], "one of two states that are left");
    let next = frontier.split_next(&tree, usize::MAX, |_| Some(2)).unwrap();
    assert_eq!(visit(&tree, next, &mut std::iter::empty())[0], [0, 0, 0]);
}

#[test]
#[allow(clippy::float_cmp, reason = "eighths are exact")]
fn roots_keep_places_when_others_are_given_away() {
    let tree = Paths { depth: 2, breadth: 8 };
    let mut frontier = Frontier::new(&tree);
    let mut pauses = std::iter::once(true);
    let mut notes = Notes { visited: Vec::new(), pauses: &mut pauses, last: None };
    assert_eq!(frontier.search(&tree, &mut notes), Searched::Paused);
    let mut roots = frontier.split_next(&tree, usize::MAX, |_| Some(4)).unwrap();
    let (whole, at) = (1.0 / 8.0, roots.next_place(&tree));
    for place in 1..3 {
        let mut away = roots.split_next(&tree, usize::MAX, |_| Some(1)).unwrap();
        assert_eq!(away.next_place(&tree), at + whole * f64::from(place));
        assert_eq!(roots.next_place(&tree), at, "the first root is still the next");
    }
    // Its children are where it was.
    let mut pauses = std::iter::once(true);
    let mut notes = Notes { visited: Vec::new(), pauses: &mut pauses, last: None };
    assert_eq!(roots.search(&tree, &mut notes), Searched::Paused);
    assert_eq!(roots.next_place(&tree), at);
    let mut last = roots.split_next(&tree, 0, |_| Some(1));
    assert!(last.is_none(), "the roots are at depth 1");
    last = roots.split(&tree);
    assert_eq!(last.unwrap().next_place(&tree), at + whole * 3.0);
}

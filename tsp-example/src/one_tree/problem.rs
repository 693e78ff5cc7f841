//! Branch and bound by one-trees: bounds by subgradient ascent, branches on a city with too many edges.

use std::{cell::RefCell, collections::VecDeque};

use bnb_framework::{Hooks, Problem, Tree};
use serde::{Deserialize, Serialize};

use super::{
    decide::Decision,
    doubled,
    edges::Edges,
    links::Links,
    phase::Phase,
    work::{Bounder, Room},
};
use crate::{
    heuristic::Heuristic,
    instance::{City, Instance, read_numbered},
    start,
};

/// The travelling salesman as a tree of decisions about edges, for at least four cities.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Instance", into = "Instance")]
pub struct OneTreeProblem {
    instance: Instance,
    /// If distances depend on the direction: the same without directions.
    doubled: Option<Instance>,
    heuristic: Heuristic,
}

/// The decisions made about the edges.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneTreeState {
    pub(super) edges: Edges,
    pub(super) multipliers: Vec<i64>,
    /// No tour below the state is shorter.
    pub(super) low: u64,
    pub(super) phase: Phase,
    /// The number of steps made in the phase.
    pub(super) taken: u32,
    /// A tour that is already represented by a sibling leaf and must be skipped; empty if there is none.
    passed: Vec<City>,
    pub(super) next: Next,
}

/// The next step at a state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Next {
    /// Not bounded yet.
    Unknown,
    /// The ascent goes on in an only child.
    GoOn,
    /// The best one-tree has too many edges at this city; one or two of them are free.
    Decide { city: City, free: Vec<City> },
    /// The best one-tree is a tour, and nothing below the state is shorter.
    Tour(Vec<City>),
    /// The tour itself: a leaf.
    Leaf(Vec<City>),
}

thread_local! {
    /// Memory that the bounds of all states use.
    static ROOM: RefCell<Room> = RefCell::default();
}

impl From<Instance> for OneTreeProblem {
    fn from(instance: Instance) -> Self {
        let heuristic = Heuristic::new(&instance);
        let doubled = instance.is_directed().then(|| doubled::instance(&instance));
        Self { instance, doubled, heuristic }
    }
}

impl From<OneTreeProblem> for Instance {
    fn from(problem: OneTreeProblem) -> Self {
        problem.instance
    }
}

impl OneTreeProblem {
    /// Creates the problem for an instance of at least four cities.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn new(instance: Instance) -> Self {
        assert!(instance.len() >= 4, "{} cities have only one tour", instance.len());
        instance.into()
    }

    /// Returns a good tour and its length, by local search until `stops` returns `true`.
    pub fn start(&self, stops: &dyn Fn() -> bool) -> (u64, Vec<City>) {
        start::improved(&self.instance, &self.heuristic, None, stops)
    }

    /// Returns the instance whose one-trees are built.
    fn undirected(&self) -> &Instance {
        self.doubled.as_ref().unwrap_or(&self.instance)
    }

    /// Returns a length that no tour is shorter than, from the root alone. `best` is the length of a tour, if
    /// one is known. `stops` is asked now and then; once it returns `true`, the bound is left as it is.
    pub fn root_bound(&self, best: Option<u64>, mut stops: impl FnMut() -> bool) -> u64 {
        let mut state = self.root();
        loop {
            let Some(low) = self.bound(&mut state, best) else { return best.unwrap_or(state.low) };
            if !matches!(state.next, Next::GoOn) || stops() {
                return low;
            }
            state.next = Next::Unknown;
        }
    }

    /// Creates a child of a state with more decisions.
    fn child(state: &OneTreeState, edges: Edges) -> OneTreeState {
        OneTreeState {
            edges,
            multipliers: state.multipliers.clone(),
            low: state.low,
            phase: Phase::below(state.multipliers.len()),
            taken: 0,
            passed: state.passed.clone(),
            next: Next::Unknown,
        }
    }

    /// Returns a leaf with a tour, and states with all other tours: those without one of its edges, and those
    /// with that edge.
    fn pass(state: &OneTreeState, tour: &[City]) -> VecDeque<OneTreeState> {
        let links = Links::of(tour);
        let passed = (!state.passed.is_empty()).then(|| Links::of(&state.passed));
        let passed = passed.filter(|passed| passed.satisfy(&state.edges));
        let is_new = passed.as_ref().is_none_or(|passed| links.edges().any(|(i, j)| !passed.has(i, j)));
        let mut children = VecDeque::new();
        if is_new {
            children.push_back(OneTreeState { next: Next::Leaf(tour.to_vec()), ..state.clone() });
        }
        // An edge in which the two tours differ leaves only one of them to skip on either side.
        let tells_apart = |i, j| !is_new || passed.as_ref().is_none_or(|passed| !passed.has(i, j));
        let mut free = links.edges().filter(|&(i, j)| !state.edges.is_forced(i, j) && tells_apart(i, j));
        if let Some((i, j)) = free.next() {
            let other = if is_new && passed.is_some() { state.passed.clone() } else { Vec::new() };
            let (mut without, mut with) = (state.edges.clone(), state.edges.clone());
            if without.forbid(i, j).is_ok() {
                children.push_back(OneTreeState { passed: other, ..Self::child(state, without) });
            }
            if with.force(i, j).is_ok() {
                children.push_back(OneTreeState { passed: tour.to_vec(), ..Self::child(state, with) });
            }
        }
        children
    }
}

impl Tree for OneTreeProblem {
    type State = OneTreeState;
    type Children = VecDeque<OneTreeState>;

    fn root(&self) -> OneTreeState {
        let cities = self.undirected().len();
        let edges = if self.doubled.is_some() { doubled::edges(cities) } else { Edges::all(cities) };
        OneTreeState {
            edges,
            multipliers: vec![0; cities],
            low: 0,
            phase: Phase::first(cities, self.doubled.is_some()),
            taken: 0,
            passed: Vec::new(),
            next: Next::Unknown,
        }
    }

    fn branch(&self, state: &mut OneTreeState) -> VecDeque<OneTreeState> {
        // Without pruning the state was not bounded, but the decision follows from the bound.
        if matches!(state.next, Next::Unknown) && self.bound(state, None).is_none() {
            return VecDeque::new();
        }
        match &state.next {
            Next::Unknown | Next::Leaf(_) => VecDeque::new(),
            Next::GoOn => [OneTreeState { next: Next::Unknown, ..state.clone() }].into(),
            Next::Tour(tour) => Self::pass(state, tour),
            Next::Decide { city, free } => {
                let decision = Decision { city: *city, free: free.clone() };
                let branches = decision.branches(&state.edges).into_iter();
                branches.map(|edges| Self::child(state, edges)).collect()
            }
        }
    }
}

impl Problem for OneTreeProblem {
    type Cost = u64;
    type Solution = Vec<City>;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .construct(|problem, seed, stops| Some(problem.heuristic.construct(&problem.instance, seed, stops)))
        .improve(|problem, tour, seed, stops| problem.heuristic.improve(&problem.instance, tour, seed, stops))
        .read_solution(|_, given| read_numbered(given));

    fn leaf(&self, state: &OneTreeState) -> Option<u64> {
        match &state.next {
            Next::Leaf(tour) => Some(self.undirected().tour_length(tour)),
            _ => None,
        }
    }

    fn bound(&self, state: &mut OneTreeState, best: Option<u64>) -> Option<u64> {
        // The bound of a state that was visited is known, and that of its parent may be enough.
        if !matches!(state.next, Next::Unknown) || best.is_some_and(|best| state.low >= best) {
            return Some(state.low);
        }
        let bounder = Bounder { instance: self.undirected(), near: self.heuristic.near(), best };
        ROOM.with_borrow_mut(|room| bounder.bound(state, room))
    }

    fn cost_of(&self, tour: &Vec<City>) -> Option<u64> {
        self.instance.checked_length(tour)
    }

    fn solution(&self, leaf: &OneTreeState) -> Vec<City> {
        match &leaf.next {
            Next::Leaf(tour) if self.doubled.is_some() => doubled::directed(tour),
            Next::Leaf(tour) => tour.clone(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;

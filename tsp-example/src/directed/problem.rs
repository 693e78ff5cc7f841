//! Branch and bound by assignments.

use std::collections::VecDeque;

use bnb_framework::{
    Problem, Tree,
    assignment::{Assignment, FORBIDDEN},
};
use serde::{Deserialize, Serialize};

use super::{
    arborescence,
    patch::{patch, subtours},
};
use crate::{
    heuristic::Heuristic,
    instance::{City, Instance, read_numbered},
    start,
};

/// The travelling salesman, also with directed instances, as a tree of decisions about arcs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Instance", into = "Instance")]
pub struct DirectedProblem {
    instance: Instance,
    heuristic: Heuristic,
}

/// The decisions made about the arcs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectedState {
    /// Arcs that no tour may use, as a row of bits for each city.
    forbidden: Vec<u64>,
    /// The number of words in such a row.
    words: usize,
    /// Arcs that every tour must use.
    forced: Vec<(u16, u16)>,
    /// The successor of each city, as far as it is settled, and the potentials that the next assignment
    /// starts from.
    assignment: Assignment,
    /// A lower bound on all tours; until the state is bounded, that of its parent.
    low: i64,
    /// A tour that was at a leaf beside this state, and is to be passed over; or none.
    passed: Vec<City>,
    next: Next,
}

/// What follows a state.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Next {
    /// Not bounded yet.
    Unknown,
    /// Every tour lacks one of these arcs.
    Break(Vec<(u16, u16)>),
    /// The assignment is a tour, and nothing below the state is shorter.
    Tour(Vec<City>),
    /// The tour itself: a leaf.
    Leaf(Vec<City>),
}

/// The costs of the arcs that a state allows.
struct Costs {
    cities: usize,
    costs: Vec<i64>,
}

impl Costs {
    fn get(&self, from: City, to: City) -> i64 {
        self.costs[from * self.cities + to]
    }

    fn forbid(&mut self, from: City, to: City) {
        self.costs[from * self.cities + to] = FORBIDDEN;
    }

    /// Exchanges the directions.
    fn turned(&self) -> Self {
        let pairs = (0..self.cities).flat_map(|from| (0..self.cities).map(move |to| (to, from)));
        Self { cities: self.cities, costs: pairs.map(|(from, to)| self.get(from, to)).collect() }
    }
}

impl DirectedState {
    fn forbid(&mut self, from: City, to: City) {
        self.forbidden[from * self.words + to / 64] |= 1 << (to % 64);
    }

    fn is_forbidden(&self, (from, to): (u16, u16)) -> bool {
        self.forbidden[usize::from(from) * self.words + usize::from(to) / 64] & (1 << (to % 64)) != 0
    }
}

fn arcs(tour: &[City]) -> impl Iterator<Item = (u16, u16)> + '_ {
    let ends = tour.iter().cycle().skip(1);
    tour.iter().zip(ends).map(|(&from, &to)| (small(from), small(to)))
}

fn small(city: City) -> u16 {
    u16::try_from(city).expect("there are fewer than 65,536 cities")
}

impl From<Instance> for DirectedProblem {
    fn from(instance: Instance) -> Self {
        let heuristic = Heuristic::new(&instance);
        Self { instance, heuristic }
    }
}

impl From<DirectedProblem> for Instance {
    fn from(problem: DirectedProblem) -> Self {
        problem.instance
    }
}

impl DirectedProblem {
    /// Creates the problem for an instance of fewer than 65,536 cities.
    ///
    /// # Panics
    /// Panics if there are more.
    pub fn new(instance: Instance) -> Self {
        assert!(u16::try_from(instance.len()).is_ok(), "{} cities are too many", instance.len());
        instance.into()
    }

    /// Returns a length that no tour is shorter than, from the root alone.
    pub fn root_bound(&self, best: Option<u64>) -> u64 {
        self.bound(&mut self.root(), best).unwrap_or(0)
    }

    /// Returns a good tour and its length, by local search from the tour that the first assignment leads to
    /// and from others, until `stops` returns `true`.
    pub fn start(&self, stops: &dyn Fn() -> bool) -> (u64, Vec<City>) {
        let mut state = self.root();
        let costs = self.costs(&state);
        let solved = state.assignment.solve(|from, to| costs.get(from, to));
        let patched = solved.map(|_| patch(&self.instance, &state.assignment.columns()));
        start::improved(&self.instance, &self.heuristic, patched, stops)
    }

    /// Computes the costs of the arcs that a state allows. A forced arc forbids all others from its first
    /// city, all others to its second, and the way back that would close a subtour.
    fn costs(&self, state: &DirectedState) -> Costs {
        let cities = self.instance.len();
        let mut costs = Vec::with_capacity(cities * cities);
        for from in 0..cities {
            costs.extend(self.instance.row(from).iter().map(|&distance| i64::from(distance)));
            // A city that follows itself is a tour only if it is the only one.
            costs[from * cities + from] = if cities == 1 { 0 } else { FORBIDDEN };
        }
        let mut costs = Costs { cities, costs };
        let words = state.words;
        for (place, &word) in state.forbidden.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                costs.forbid(place / words, place % words * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
        let mut follows = vec![None; cities];
        let mut precedes = vec![None; cities];
        for (from, to) in state.forced.iter().map(|&(from, to)| (City::from(from), City::from(to))) {
            (follows[from], precedes[to]) = (Some(to), Some(from));
            for other in 0..cities {
                if other != to {
                    costs.forbid(from, other);
                }
                if other != from {
                    costs.forbid(other, to);
                }
            }
        }
        for first in (0..cities).filter(|&city| precedes[city].is_none() && follows[city].is_some()) {
            let (mut last, mut length) = (first, 1);
            while let Some(next) = follows[last] {
                (last, length) = (next, length + 1);
            }
            if length < cities {
                costs.forbid(last, first);
            }
        }
        costs
    }

    /// Adds what it costs at least to connect the subtours, in terms of the reduced costs: the first city must
    /// be reachable from each, and with what these costs have left, each from the first. Returns the sum, and
    /// what is left; `None` if that is impossible.
    fn connect(&self, assignment: &Assignment, costs: &Costs) -> Option<(i64, Costs)> {
        let cities = self.instance.len();
        let reduced = |from: City, to: City| match costs.get(from, to) {
            cost if cost >= FORBIDDEN => FORBIDDEN,
            cost => assignment.reduced(from, to, cost),
        };
        let pairs = (0..cities).flat_map(|from| (0..cities).map(move |to| (from, to)));
        let costs = pairs.map(|(from, to)| reduced(from, to)).collect();
        let mut left = Costs { cities, costs };
        let there = arborescence::cheapest(&mut left.costs, cities, 0)?;
        let mut left = left.turned();
        let back = arborescence::cheapest(&mut left.costs, cities, 0)?;
        Some((there + back, left.turned()))
    }

    /// Forbids every arc that no tour shorter than `enough` contains, and forces those that each contains:
    /// without such an arc its cities need other ones. `left` are reduced costs that go with the bound.
    fn settle(state: &mut DirectedState, left: &Costs, bound: i64, enough: i64) {
        let cities = left.cities;
        let mut out = vec![FORBIDDEN; cities];
        let mut into = vec![FORBIDDEN; cities];
        for from in 0..cities {
            for to in 0..cities {
                let cost = left.get(from, to);
                if cost >= FORBIDDEN || state.assignment.column(from) == to {
                    continue;
                }
                if bound + cost >= enough {
                    state.forbid(from, to);
                } else {
                    (out[from], into[to]) = (out[from].min(cost), into[to].min(cost));
                }
            }
        }
        for from in 0..cities {
            let to = state.assignment.column(from);
            let arc = (small(from), small(to));
            if bound + out[from] + into[to] >= enough && !state.forced.contains(&arc) {
                state.forced.push(arc);
            }
        }
    }

    /// Returns a leaf with a tour, and states with all other tours: those without one of its arcs, and those
    /// with that arc.
    fn pass(state: &DirectedState, tour: &[City]) -> VecDeque<DirectedState> {
        let passed: Vec<(u16, u16)> = arcs(&state.passed).collect();
        let is_possible = !passed.is_empty()
            && state.forced.iter().all(|arc| passed.contains(arc))
            && !passed.iter().any(|&arc| state.is_forbidden(arc));
        let is_new = !is_possible || arcs(tour).any(|arc| !passed.contains(&arc));
        let mut children = VecDeque::new();
        if is_new {
            children.push_back(DirectedState { next: Next::Leaf(tour.to_vec()), ..state.clone() });
        }
        // An arc that tells the two tours apart leaves only one to be passed over on either side.
        let tells_apart = |arc: &(u16, u16)| !is_new || !is_possible || !passed.contains(arc);
        let mut free = arcs(tour).filter(|arc| !state.forced.contains(arc) && tells_apart(arc));
        if let Some(arc) = free.next() {
            let other = if is_new && is_possible { state.passed.clone() } else { Vec::new() };
            let mut without = DirectedState { next: Next::Unknown, passed: other, ..state.clone() };
            without.forbid(arc.0.into(), arc.1.into());
            let mut with = DirectedState { next: Next::Unknown, passed: tour.to_vec(), ..state.clone() };
            with.forced.push(arc);
            children.extend([without, with]);
        }
        children
    }

    /// Decides where to branch: on the subtour with the fewest arcs that are not forced.
    fn decide(state: &DirectedState) -> Next {
        let columns = state.assignment.columns();
        let subtours = subtours(&columns);
        let [_, _, ..] = subtours.as_slice() else {
            return Next::Tour(subtours.into_iter().next().unwrap_or_default());
        };
        let free = |subtour: &Vec<City>| -> Vec<(u16, u16)> {
            let arcs = subtour.iter().map(|&city| (small(city), small(columns[city])));
            arcs.filter(|arc| !state.forced.contains(arc)).collect()
        };
        let arcs = subtours.iter().map(free).min_by_key(Vec::len).unwrap_or_default();
        Next::Break(arcs)
    }
}

impl Tree for DirectedProblem {
    type State = DirectedState;
    type Children = VecDeque<DirectedState>;

    fn root(&self) -> DirectedState {
        let cities = self.instance.len();
        let words = cities.div_ceil(64);
        DirectedState {
            forbidden: vec![0; cities * words],
            words,
            forced: Vec::new(),
            assignment: Assignment::new(cities),
            low: 0,
            passed: Vec::new(),
            next: Next::Unknown,
        }
    }

    /// In each child one arc of the subtour is forbidden, and those before it are forced.
    fn branch(&self, state: &mut DirectedState) -> VecDeque<DirectedState> {
        // Without pruning the state was not bounded, but the decision follows from the bound.
        if matches!(state.next, Next::Unknown) && self.bound(state, None).is_none() {
            return VecDeque::new();
        }
        match &state.next {
            Next::Unknown | Next::Leaf(_) => VecDeque::new(),
            Next::Tour(tour) => Self::pass(state, tour),
            Next::Break(arcs) => {
                let child = |place: usize| {
                    let mut child = DirectedState { next: Next::Unknown, ..state.clone() };
                    child.forbid(arcs[place].0.into(), arcs[place].1.into());
                    child.forced.extend_from_slice(&arcs[..place]);
                    child
                };
                (0..arcs.len()).map(child).collect()
            }
        }
    }
}

impl Problem for DirectedProblem {
    type Cost = u64;
    type Solution = Vec<City>;

    fn leaf(&self, state: &DirectedState) -> Option<u64> {
        match &state.next {
            Next::Leaf(tour) => Some(self.instance.tour_length(tour)),
            _ => None,
        }
    }

    fn bound(&self, state: &mut DirectedState, best: Option<u64>) -> Option<u64> {
        let enough = best.and_then(|best| i64::try_from(best).ok()).unwrap_or(FORBIDDEN);
        let low = |state: &DirectedState| Some(u64::try_from(state.low).unwrap_or(0));
        // The bound of a state that was visited is known, and that of its parent may be enough.
        if !matches!(state.next, Next::Unknown) || state.low >= enough {
            return low(state);
        }
        let costs = self.costs(state);
        for from in 0..costs.cities {
            let to = state.assignment.column(from);
            if to < costs.cities && costs.get(from, to) >= FORBIDDEN {
                state.assignment.release(from);
            }
        }
        let least = state.assignment.solve(|from, to| costs.get(from, to))?;
        state.low = state.low.max(least);
        if state.low >= enough {
            return low(state);
        }
        let (more, left) = self.connect(&state.assignment, &costs)?;
        state.low = state.low.max(least + more);
        if state.low < enough && enough < FORBIDDEN {
            Self::settle(state, &left, least + more, enough);
        }
        state.next = Self::decide(state);
        low(state)
    }

    fn solution(&self, leaf: &DirectedState) -> Vec<City> {
        match &leaf.next {
            Next::Leaf(tour) => tour.clone(),
            _ => Vec::new(),
        }
    }

    fn cost_of(&self, tour: &Vec<City>) -> Option<u64> {
        self.instance.checked_length(tour)
    }

    fn construct(&self, seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<City>> {
        Some(self.heuristic.construct(&self.instance, seed, stops))
    }

    fn improve(&self, tour: &Vec<City>, seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<City>> {
        self.heuristic.improve(&self.instance, tour, seed, stops)
    }

    fn read_solution(&self, given: serde_json::Value) -> Option<Vec<City>> {
        read_numbered(given)
    }
}

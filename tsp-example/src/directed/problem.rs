//! Branch and bound by assignments.

use std::collections::VecDeque;

use bnb_framework::{
    Hooks, Problem, Tree,
    assignment::{Assignment, FORBIDDEN},
};
use serde::{Deserialize, Serialize};

use super::{
    arborescence,
    patch::{patch, subtours},
    state::{Costs, DirectedState, Next, small},
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

    /// Adds the minimum cost of connecting the subtours, in terms of the reduced costs: the first city must be
    /// reachable from each, and in the remaining costs each from the first. Returns the sum and the costs that
    /// remain; `None` if the subtours cannot be connected.
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
            Next::Tour(tour) => state.pass(tour),
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
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .construct(|problem, seed, stops| Some(problem.heuristic.construct(&problem.instance, seed, stops)))
        .improve(|problem, tour, seed, stops| problem.heuristic.improve(&problem.instance, tour, seed, stops))
        .read_solution(|_, given| read_numbered(given));

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
            state.settle(&left, least + more, enough);
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
}

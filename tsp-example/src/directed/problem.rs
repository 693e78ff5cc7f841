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
    instance::{City, Instance, read_numbered},
    start,
};

/// The travelling salesman, also with directed instances, as a tree of decisions about arcs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectedProblem {
    instance: Instance,
}

/// The decisions made about the arcs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectedState {
    /// Arcs that no tour may use.
    forbidden: Vec<(u16, u16)>,
    /// Arcs that every tour must use.
    forced: Vec<(u16, u16)>,
    /// The successor of each city, as far as it is settled, and the potentials that the next assignment
    /// starts from.
    assignment: Assignment,
    /// A lower bound on all tours; until the state is bounded, that of its parent.
    low: i64,
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
}

fn small(city: City) -> u16 {
    u16::try_from(city).expect("there are fewer than 65,536 cities")
}

impl DirectedProblem {
    /// Creates the problem for an instance of fewer than 65,536 cities.
    ///
    /// # Panics
    /// Panics if there are more.
    pub fn new(instance: Instance) -> Self {
        assert!(u16::try_from(instance.len()).is_ok(), "{} cities are too many", instance.len());
        Self { instance }
    }

    /// Returns a length that no tour is shorter than, from the root alone.
    pub fn root_bound(&self, best: Option<u64>) -> u64 {
        self.bound(&mut self.root(), best).unwrap_or(0)
    }

    /// Returns a good tour and its length: the better of the tour that [`start`] finds and the one that the
    /// first assignment leads to.
    pub fn start(&self) -> (u64, Vec<City>) {
        let mut state = self.root();
        let costs = self.costs(&state);
        let near = start::tour(&self.instance);
        let Some(_) = state.assignment.solve(|from, to| costs.get(from, to)) else { return near };
        let tour = start::improved(&self.instance, patch(&self.instance, &state.assignment.columns()));
        near.min((self.instance.tour_length(&tour), tour))
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
        for &(from, to) in &state.forbidden {
            costs.forbid(from.into(), to.into());
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

    /// Returns the minimum cost of connecting the subtours, beyond the assignment: in terms of the reduced
    /// costs, each city must be reachable from the first, and the first from each.
    fn connect(&self, assignment: &Assignment, costs: &Costs) -> i64 {
        let cities = self.instance.len();
        let left = |from: City, to: City| match costs.get(from, to) {
            cost if cost >= FORBIDDEN => FORBIDDEN,
            cost => assignment.reduced(from, to, cost),
        };
        let pairs = || (0..cities).flat_map(|from| (0..cities).map(move |to| (from, to)));
        let there: Vec<i64> = pairs().map(|(from, to)| left(from, to)).collect();
        let back: Vec<i64> = pairs().map(|(from, to)| left(to, from)).collect();
        let cheapest = |costs| arborescence::cheapest(costs, cities, 0).unwrap_or(FORBIDDEN);
        cheapest(there).max(cheapest(back))
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
        DirectedState {
            forbidden: Vec::new(),
            forced: Vec::new(),
            assignment: Assignment::new(self.instance.len()),
            low: 0,
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
            Next::Tour(tour) => [DirectedState { next: Next::Leaf(tour.clone()), ..state.clone() }].into(),
            Next::Break(arcs) => {
                let child = |place: usize| {
                    let mut child = DirectedState { next: Next::Unknown, ..state.clone() };
                    child.forbidden.push(arcs[place]);
                    child.forced.extend_from_slice(&arcs[..place]);
                    child.assignment.release(arcs[place].0.into());
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
    const EVERY_SOLUTION: bool = false;

    fn leaf(&self, state: &DirectedState) -> Option<u64> {
        match &state.next {
            Next::Leaf(tour) => Some(self.instance.tour_length(tour)),
            _ => None,
        }
    }

    fn bound(&self, state: &mut DirectedState, best: Option<u64>) -> Option<u64> {
        let enough = best.and_then(|best| i64::try_from(best).ok()).unwrap_or(FORBIDDEN);
        let mut costs = self.costs(state);
        let least = state.assignment.solve(|from, to| costs.get(from, to))?;
        let mut bound = least;
        if bound < enough {
            bound += self.connect(&state.assignment, &costs);
        }
        if bound < enough && enough < FORBIDDEN {
            // Arcs that no sufficiently short tour can use are forbidden from here on.
            for from in 0..costs.cities {
                for to in 0..costs.cities {
                    let cost = costs.get(from, to);
                    let hopeless =
                        cost < FORBIDDEN && least + state.assignment.reduced(from, to, cost) >= enough;
                    if hopeless && state.assignment.column(from) != to {
                        costs.forbid(from, to);
                        state.forbidden.push((small(from), small(to)));
                    }
                }
            }
        }
        state.next = Self::decide(state);
        if matches!(state.next, Next::Tour(_)) {
            bound = least;
        }
        state.low = state.low.max(bound);
        (bound < FORBIDDEN).then(|| u64::try_from(state.low).unwrap_or(0))
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

    fn read_solution(&self, given: serde_json::Value) -> Option<Vec<City>> {
        read_numbered(given)
    }
}

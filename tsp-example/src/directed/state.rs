//! A state of the search by assignments: the decisions made about arcs, and conclusions from them.

use std::collections::VecDeque;

use bnb_framework::assignment::{Assignment, FORBIDDEN};
use serde::{Deserialize, Serialize};

use crate::instance::City;

/// The decisions made about the arcs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectedState {
    /// Arcs that no tour may use, as a row of bits for each city.
    pub(super) forbidden: Vec<u64>,
    /// The number of words in such a row.
    pub(super) words: usize,
    /// Arcs that every tour must use.
    pub(super) forced: Vec<(u16, u16)>,
    /// The successor of each city, as far as it is settled, and the potentials that the next assignment
    /// starts from.
    pub(super) assignment: Assignment,
    /// A lower bound on all tours; until the state is bounded, that of its parent.
    pub(super) low: i64,
    /// A tour that is already represented by a sibling leaf and must be skipped; empty if there is none.
    pub(super) passed: Vec<City>,
    pub(super) next: Next,
}

/// The next step at a state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Next {
    /// Not bounded yet.
    Unknown,
    /// Every tour lacks at least one arc of this set.
    Break(Vec<(u16, u16)>),
    /// The assignment is a tour, and nothing below the state is shorter.
    Tour(Vec<City>),
    /// The tour itself: a leaf.
    Leaf(Vec<City>),
}

/// The costs of the arcs that a state allows.
pub(super) struct Costs {
    pub(super) cities: usize,
    pub(super) costs: Vec<i64>,
}

impl Costs {
    pub(super) fn get(&self, from: City, to: City) -> i64 {
        self.costs[from * self.cities + to]
    }

    pub(super) fn forbid(&mut self, from: City, to: City) {
        self.costs[from * self.cities + to] = FORBIDDEN;
    }

    /// Exchanges the directions.
    pub(super) fn turned(&self) -> Self {
        let pairs = (0..self.cities).flat_map(|from| (0..self.cities).map(move |to| (to, from)));
        Self { cities: self.cities, costs: pairs.map(|(from, to)| self.get(from, to)).collect() }
    }
}

impl DirectedState {
    pub(super) fn forbid(&mut self, from: City, to: City) {
        self.forbidden[from * self.words + to / 64] |= 1 << (to % 64);
    }

    fn is_forbidden(&self, (from, to): (u16, u16)) -> bool {
        self.forbidden[usize::from(from) * self.words + usize::from(to) / 64] & (1 << (to % 64)) != 0
    }

    /// Forbids every arc that no tour shorter than `enough` contains, and forces those that each contains:
    /// without such an arc its cities need other ones. `left` are reduced costs that go with the bound.
    pub(super) fn settle(&mut self, left: &Costs, bound: i64, enough: i64) {
        let cities = left.cities;
        let mut out = vec![FORBIDDEN; cities];
        let mut into = vec![FORBIDDEN; cities];
        for (from, out) in out.iter_mut().enumerate() {
            for (to, into) in into.iter_mut().enumerate() {
                let cost = left.get(from, to);
                if cost >= FORBIDDEN || self.assignment.column(from) == to {
                    continue;
                }
                if bound + cost >= enough {
                    self.forbid(from, to);
                } else {
                    (*out, *into) = (cost.min(*out), cost.min(*into));
                }
            }
        }
        for (from, out) in out.into_iter().enumerate() {
            let to = self.assignment.column(from);
            let arc = (small(from), small(to));
            if bound + out + into[to] >= enough && !self.forced.contains(&arc) {
                self.forced.push(arc);
            }
        }
    }

    /// Returns a leaf with a tour, and states with all other tours: those without one of its arcs, and those
    /// with that arc.
    pub(super) fn pass(&self, tour: &[City]) -> VecDeque<DirectedState> {
        let passed: Vec<(u16, u16)> = arcs(&self.passed).collect();
        let is_possible = !passed.is_empty()
            && self.forced.iter().all(|arc| passed.contains(arc))
            && !passed.iter().any(|&arc| self.is_forbidden(arc));
        let is_new = !is_possible || arcs(tour).any(|arc| !passed.contains(&arc));
        let mut children = VecDeque::new();
        if is_new {
            children.push_back(DirectedState { next: Next::Leaf(tour.to_vec()), ..self.clone() });
        }
        // An arc in which the two tours differ leaves only one of them to skip on either side.
        let tells_apart = |arc: &(u16, u16)| !is_new || !is_possible || !passed.contains(arc);
        let mut free = arcs(tour).filter(|arc| !self.forced.contains(arc) && tells_apart(arc));
        if let Some(arc) = free.next() {
            let other = if is_new && is_possible { self.passed.clone() } else { Vec::new() };
            let mut without = DirectedState { next: Next::Unknown, passed: other, ..self.clone() };
            without.forbid(arc.0.into(), arc.1.into());
            let mut with = DirectedState { next: Next::Unknown, passed: tour.to_vec(), ..self.clone() };
            with.forced.push(arc);
            children.extend([without, with]);
        }
        children
    }
}

fn arcs(tour: &[City]) -> impl Iterator<Item = (u16, u16)> + '_ {
    let ends = tour.iter().cycle().skip(1);
    tour.iter().zip(ends).map(|(&from, &to)| (small(from), small(to)))
}

pub(super) fn small(city: City) -> u16 {
    u16::try_from(city).expect("there are fewer than 65,536 cities")
}

//! Branch and bound by one-trees: bounds by subgradient ascent, branches on a city with too many edges.

use std::{cell::RefCell, collections::VecDeque};

use bnb_framework::{Problem, Tree};
use serde::{Deserialize, Serialize};

use super::{
    SCALE,
    edges::{Edges, Impossible},
    tree::{OneTree, weight},
};
use crate::instance::{City, Instance, read_numbered};

/// The travelling salesman as a tree of decisions about edges, for at least four cities.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneTreeProblem {
    instance: Instance,
}

/// The decisions made about the edges.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneTreeState {
    edges: Edges,
    multipliers: Vec<i64>,
    depth: u32,
    next: Next,
}

/// What follows a state.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Next {
    /// Not bounded yet.
    Unknown,
    /// The best one-tree has too many edges at this city; one or two of them are free.
    Decide { city: City, free: Vec<City> },
    /// The best one-tree is a tour, and nothing below the state is shorter.
    Tour(Vec<City>),
    /// The tour itself: a leaf.
    Leaf(Vec<City>),
}

/// The number of steps of the ascent at the root, for each city.
const ROOT_STEPS_PER_CITY: u32 = 12;
/// The minimum number of steps of the ascent at the root.
const ROOT_STEPS_MIN: u32 = 300;
/// The number of steps of the ascent below the root, which starts from the parent's multipliers.
const STEPS: u32 = 24;

thread_local! {
    /// Memory for one-trees, so that a step of the ascent does not allocate.
    static ROOM: RefCell<(OneTree, OneTree)> = RefCell::default();
}

impl OneTreeProblem {
    /// Creates the problem for an instance of at least four cities.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn new(instance: Instance) -> Self {
        assert!(instance.len() >= 4, "{} cities have only one tour", instance.len());
        Self { instance }
    }

    /// Returns a length that no tour is shorter than, from the root alone. `best` is the length of a tour, if
    /// one is known.
    pub fn root_bound(&self, best: Option<u64>) -> u64 {
        self.bound(&mut self.root(), best).unwrap_or(0)
    }

    /// Raises the bound by moving the multipliers, until it reaches `enough` or the steps are used up. Leaves
    /// the best multipliers in the state and the best one-tree in `best`. Returns `false` if there is no
    /// one-tree at all.
    fn ascend(&self, state: &mut OneTreeState, best: &mut OneTree, trial: &mut OneTree, enough: i64) -> bool {
        let cities = self.instance.len();
        if !best.build(&self.instance, &state.edges, &state.multipliers) {
            return false;
        }
        let (steps, mut length) = if state.depth == 0 {
            (ROOT_STEPS_MIN.max(ROOT_STEPS_PER_CITY * u32::try_from(cities).unwrap_or(u32::MAX)), 2.0)
        } else {
            (STEPS, 1.0)
        };
        let patience = (steps / 10).max(4);
        let mut multipliers = state.multipliers.clone();
        let mut degree = best.degree.clone();
        let mut before: Vec<i64> = degree.clone();
        let (mut bound, mut since) = (best.bound, 0);
        for _ in 0..steps {
            let off: i64 = degree.iter().map(|d| (d - 2) * (d - 2)).sum();
            if off == 0 || best.bound > enough {
                break;
            }
            // The distance to go: to what is enough, or as far as seems reasonable while no tour is known.
            let gap = (enough - bound).max(SCALE).min(bound.abs() / 20 + SCALE);
            let step = length * gap as f64 / off as f64;
            for ((multiplier, d), b) in multipliers.iter_mut().zip(&degree).zip(&before) {
                // Mixing in the previous step's direction damps the zigzag.
                let direction = 0.7 * (d - 2) as f64 + 0.3 * (b - 2) as f64;
                #[allow(clippy::cast_possible_truncation, reason = "any multiplier gives a valid bound")]
                let change = (step * direction) as i64;
                *multiplier = (*multiplier + change).clamp(-MULTIPLIER_MAX, MULTIPLIER_MAX);
            }
            if !trial.build(&self.instance, &state.edges, &multipliers) {
                return false;
            }
            before.clone_from(&degree);
            degree.clone_from(&trial.degree);
            bound = trial.bound;
            if trial.bound > best.bound {
                std::mem::swap(best, trial);
                state.multipliers.clone_from(&multipliers);
                since = 0;
            } else {
                since += 1;
                if since >= patience {
                    (length, since) = (length * 0.6, 0);
                    multipliers.clone_from(&state.multipliers);
                    degree.clone_from(&best.degree);
                    bound = best.bound;
                }
            }
        }
        true
    }

    /// Forbids every edge that no tour shorter than `best` can contain.
    fn eliminate(&self, state: &mut OneTreeState, tree: &OneTree, best: u64) -> Result<bool, Impossible> {
        let room = scaled(best) - SCALE - tree.bound;
        let mut hopeless = Vec::new();
        tree.replacements(&self.instance, &state.edges, &state.multipliers, |i, j, more| {
            if more > room {
                hopeless.push((i, j));
            }
        });
        hopeless.iter().try_for_each(|&(i, j)| state.edges.forbid(i, j))?;
        Ok(!hopeless.is_empty())
    }

    /// Returns what to decide next: the free edges, at most two, of the city with the most excess edges.
    fn decide(&self, state: &OneTreeState, tree: &OneTree) -> Next {
        if tree.is_tour() {
            return Next::Tour(tree.tour());
        }
        let crowded = (0..self.instance.len()).filter(|&city| tree.degree[city] > 2);
        let most =
            |&city: &City| (tree.degree[city], state.edges.forced_count(city), std::cmp::Reverse(city));
        let city = crowded.max_by_key(most).expect("a one-tree that is no tour has a city with three edges");
        let ends = tree.edges.iter().filter_map(|&(i, j)| match city {
            _ if i == city => Some(j),
            _ if j == city => Some(i),
            _ => None,
        });
        let mut free: Vec<City> = ends.filter(|&end| !state.edges.is_forced(city, end)).collect();
        free.sort_by_key(|&end| weight(&self.instance, &state.multipliers, city, end));
        free.truncate(2 - state.edges.forced_count(city).min(1) as usize);
        Next::Decide { city, free }
    }

    /// Creates a child of a state with one more decision. Returns `None` if no tour satisfies it.
    fn child(
        state: &OneTreeState,
        decide: impl FnOnce(&mut Edges) -> Result<(), Impossible>,
    ) -> Option<OneTreeState> {
        let mut child = OneTreeState {
            edges: state.edges.clone(),
            multipliers: state.multipliers.clone(),
            depth: state.depth + 1,
            next: Next::Unknown,
        };
        decide(&mut child.edges).ok().map(|()| child)
    }
}

/// The maximum absolute value of a multiplier: far more than ever needed, and small enough that no sum
/// overflows.
const MULTIPLIER_MAX: i64 = 1 << 42;

fn scaled(cost: u64) -> i64 {
    i64::try_from(cost).unwrap_or(i64::MAX / SCALE).saturating_mul(SCALE)
}

impl Tree for OneTreeProblem {
    type State = OneTreeState;
    type Children = VecDeque<OneTreeState>;

    fn root(&self) -> OneTreeState {
        let cities = self.instance.len();
        OneTreeState {
            edges: Edges::all(cities),
            multipliers: vec![0; cities],
            depth: 0,
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
            Next::Tour(tour) => {
                let next = Next::Leaf(tour.clone());
                [OneTreeState { next, ..state.clone() }].into()
            }
            Next::Decide { city, free } => {
                let v = *city;
                match free.as_slice() {
                    [] => VecDeque::new(),
                    // One edge of the city is forced: the free one is the other, or it is forbidden.
                    &[a] => [Self::child(state, |e| e.force(v, a)), Self::child(state, |e| e.forbid(v, a))]
                        .into_iter()
                        .flatten()
                        .collect(),
                    // Force both; force the first and forbid the second; forbid the first.
                    &[a, b, ..] => [
                        Self::child(state, |e| e.force(v, a).and_then(|()| e.force(v, b))),
                        Self::child(state, |e| e.force(v, a).and_then(|()| e.forbid(v, b))),
                        Self::child(state, |e| e.forbid(v, a)),
                    ]
                    .into_iter()
                    .flatten()
                    .collect(),
                }
            }
        }
    }
}

impl Problem for OneTreeProblem {
    type Cost = u64;
    type Solution = Vec<City>;
    const EVERY_SOLUTION: bool = false;

    fn leaf(&self, state: &OneTreeState) -> Option<u64> {
        match &state.next {
            Next::Leaf(tour) => Some(self.instance.tour_length(tour)),
            _ => None,
        }
    }

    fn bound(&self, state: &mut OneTreeState, best: Option<u64>) -> Option<u64> {
        ROOM.with_borrow_mut(|(tree, trial)| {
            // A scaled bound above this means a bound of at least `best`.
            let enough = best.map_or(i64::MAX / 4, |best| scaled(best) - SCALE);
            loop {
                if !self.ascend(state, tree, trial, enough) {
                    return None;
                }
                let bound = u64::try_from((tree.bound + SCALE - 1).div_euclid(SCALE)).unwrap_or(0);
                let Some(best) = best.filter(|&best| bound < best) else {
                    state.next = self.decide(state, tree);
                    return Some(bound);
                };
                match self.eliminate(state, tree, best) {
                    Err(Impossible) => return None,
                    // Fewer edges may improve the bound; at the root that pays for the whole search.
                    Ok(true) if state.depth == 0 => {}
                    Ok(true) => {
                        if !tree.build(&self.instance, &state.edges, &state.multipliers) {
                            return None;
                        }
                        let bound = u64::try_from((tree.bound + SCALE - 1).div_euclid(SCALE)).unwrap_or(0);
                        state.next = self.decide(state, tree);
                        return Some(bound);
                    }
                    Ok(false) => {
                        state.next = self.decide(state, tree);
                        return Some(bound);
                    }
                }
            }
        })
    }

    fn cost_of(&self, tour: &Vec<City>) -> Option<u64> {
        self.instance.checked_length(tour)
    }

    fn read_solution(&self, given: serde_json::Value) -> Option<Vec<City>> {
        read_numbered(given)
    }

    fn solution(&self, leaf: &OneTreeState) -> Vec<City> {
        match &leaf.next {
            Next::Leaf(tour) => tour.clone(),
            _ => Vec::new(),
        }
    }
}

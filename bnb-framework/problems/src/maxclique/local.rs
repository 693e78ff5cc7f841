//! Heuristics for cliques: random greedy starts, and a tabu search that adds, swaps and drops vertices (Q.
//! Wu, J.-K. Hao and F. Glover, MN/TS, 2012).

use bnb_framework::Problem;

use super::{MaxClique, set::Set};
use crate::random::Random;

/// The approximate number of vertices examined in a round: about 10 ms.
pub(super) const LOOKS_OF_ROUND: usize = 1 << 22;
/// The fixed cost of a step, in examined vertices: it keeps the rounds of small graphs short.
pub(super) const LOOKS_OF_STEP: usize = 1 << 4;
/// The number of vertices examined between two checks whether to stop: much less than 1 ms.
pub(super) const LOOKS_UNASKED: usize = 1 << 16;
/// The number of greedy starts; the best one is returned.
const STARTS: usize = 8;
/// The maximum number of candidates compared when a vertex is added.
const CANDIDATES_MAX: usize = 16;
/// After this many moves without a better clique, the search starts again elsewhere.
const PATIENCE: usize = 4000;
/// The least number of moves for which a vertex that was dropped stays out.
const TENURE: usize = 7;

/// A change of the clique.
#[derive(Debug, Clone, Copy)]
enum Move {
    Add(usize),
    Swap { add: usize, drop: usize },
    Drop(usize),
}

/// A clique that wanders through the graph.
pub(super) struct Walk<'a, const W: usize, const WEIGHTED: bool> {
    pub(super) problem: &'a MaxClique<W, WEIGHTED>,
    pub(super) random: Random,
    pub(super) members: Set<W>,
    pub(super) weight: i64,
    /// The number of members that each vertex is not connected to, itself not counted.
    pub(super) missing: Vec<u16>,
    /// The approximate number of examined vertices.
    looks: usize,
    /// The move from which on each vertex may be added again.
    out_until: Vec<usize>,
    moves: usize,
}

impl<const W: usize, const WEIGHTED: bool> MaxClique<W, WEIGHTED> {
    /// Returns the heaviest of some greedy cliques.
    pub fn construct(&self, seed: u64, stops: &dyn Fn() -> bool) -> Vec<usize> {
        let mut walk = Walk::new(self, seed);
        let mut best = (-1, Set::EMPTY);
        for _ in 0..STARTS {
            walk.restart(stops);
            if walk.weight > best.0 {
                best = (walk.weight, walk.members);
            }
            if walk.looks > LOOKS_OF_ROUND || stops() {
                break;
            }
        }
        self.vertices_of(&best.1)
    }

    /// Returns a heavier clique than a given one, if a round of local search from there finds one.
    pub fn improve(&self, clique: &Vec<usize>, seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<usize>> {
        self.cost_of(clique)?;
        let mut walk = Walk::new(self, seed);
        let mut is_given = vec![false; self.order.len()];
        for &vertex in clique {
            is_given[vertex] = true;
        }
        for place in (0..self.order.len()).filter(|&place| is_given[self.order[place]]) {
            if stops() {
                return None;
            }
            walk.add(place);
        }
        // Penalties ignore weights.
        let best = if WEIGHTED || seed.is_multiple_of(2) {
            walk.run(stops)?
        } else {
            walk.run_with_penalties(seed / 2, stops)?
        };
        Some(self.vertices_of(&best))
    }

    fn vertices_of(&self, places: &Set<W>) -> Vec<usize> {
        let mut vertices: Vec<usize> = places.iter().map(|place| self.order[place]).collect();
        vertices.sort_unstable();
        vertices
    }
}

impl<'a, const W: usize, const WEIGHTED: bool> Walk<'a, W, WEIGHTED> {
    fn new(problem: &'a MaxClique<W, WEIGHTED>, seed: u64) -> Self {
        let vertices = problem.order.len();
        Self {
            problem,
            random: Random::new(seed),
            members: Set::EMPTY,
            weight: 0,
            missing: vec![0; vertices],
            looks: 0,
            out_until: vec![0; vertices],
            moves: 0,
        }
    }

    pub(super) fn vertices(&self) -> usize {
        self.missing.len()
    }

    fn weight_of(&self, place: usize) -> i64 {
        i64::from(self.problem.weights[place])
    }

    pub(super) fn add(&mut self, place: usize) {
        self.members.insert(place);
        self.weight += self.weight_of(place);
        for other in 0..self.vertices() {
            self.missing[other] += u16::from(!self.problem.near[place].contains(other) && other != place);
        }
    }

    pub(super) fn drop(&mut self, place: usize) {
        self.members.remove(place);
        self.weight -= self.weight_of(place);
        for other in 0..self.vertices() {
            self.missing[other] -= u16::from(!self.problem.near[place].contains(other) && other != place);
        }
    }

    pub(super) fn clear(&mut self) {
        self.members = Set::EMPTY;
        self.weight = 0;
        self.missing.fill(0);
    }

    /// Replaces the clique by one built from a random vertex, each time adding the best of some candidates,
    /// by weight and by how many candidates it leaves.
    fn restart(&mut self, stops: &dyn Fn() -> bool) {
        self.clear();
        self.out_until.fill(0);
        if self.vertices() == 0 {
            return;
        }
        let mut next = Some(self.random.below(self.vertices()));
        let mut open: Set<W> = (0..self.vertices()).collect();
        while let Some(place) = next.filter(|_| !stops()) {
            self.add(place);
            open = open.common(&self.problem.near[place]);
            let candidates: Vec<usize> = open.iter().collect();
            self.looks += self.vertices() + candidates.len() + LOOKS_OF_STEP;
            let drawn = candidates.len().min(CANDIDATES_MAX);
            let drawn: Vec<usize> =
                (0..drawn).map(|_| candidates[self.random.below(candidates.len())]).collect();
            next = drawn.into_iter().max_by_key(|&place| {
                let after = i64::try_from(open.common(&self.problem.near[place]).len()).unwrap_or(0);
                self.weight_of(place) * (after + 1)
            });
        }
    }

    /// Moves until the round is over, and returns the heaviest clique, if it is heavier than the first.
    fn run(&mut self, stops: &dyn Fn() -> bool) -> Option<Set<W>> {
        let mut best = (self.weight, None);
        let (mut found_at, mut heaviest_here) = (0, self.weight);
        let mut ask_at = 0;
        for step in 0.. {
            if self.looks >= ask_at {
                if self.looks >= LOOKS_OF_ROUND || stops() {
                    break;
                }
                ask_at = self.looks + LOOKS_UNASKED;
            }
            if step - found_at > PATIENCE {
                self.restart(stops);
                (found_at, heaviest_here) = (step, self.weight);
            }
            self.step();
            if self.weight > heaviest_here {
                (found_at, heaviest_here) = (step, self.weight);
            }
            if self.weight > best.0 {
                best = (self.weight, Some(self.members));
            }
        }
        best.1
    }

    /// Makes the best move that is allowed, whether or not the clique gets heavier.
    fn step(&mut self) {
        self.moves += 1;
        let Some((best, swaps)) = self.best_move() else {
            self.looks += self.vertices() + LOOKS_OF_STEP;
            return;
        };
        self.looks += self.vertices() + swaps * W / 4 + LOOKS_OF_STEP;
        match best {
            Move::Add(place) => self.add(place),
            Move::Drop(place) => {
                self.drop(place);
                self.out_until[place] = self.moves + TENURE;
            }
            Move::Swap { add, drop } => {
                self.drop(drop);
                self.add(add);
                self.out_until[drop] = self.moves + TENURE + self.random.below(swaps);
            }
        }
    }

    /// Returns the move that adds the most weight, a random one of equal ones, and the number of swaps.
    fn best_move(&mut self) -> Option<(Move, usize)> {
        let (mut best, mut gain, mut equal, mut swaps) = (None, i64::MIN, 0, 0);
        for place in 0..self.vertices() {
            let (change, by) = if self.members.contains(place) {
                (Move::Drop(place), -self.weight_of(place))
            } else if self.missing[place] > 1 || self.out_until[place] > self.moves {
                continue;
            } else if self.missing[place] == 0 {
                (Move::Add(place), self.weight_of(place))
            } else {
                let Some(drop) = self.members.without(&self.problem.near[place]).iter().next() else {
                    continue;
                };
                swaps += 1;
                (Move::Swap { add: place, drop }, self.weight_of(place) - self.weight_of(drop))
            };
            if by > gain {
                (best, gain, equal) = (Some(change), by, 1);
            } else if by == gain {
                equal += 1;
                if self.random.below(equal) == 0 {
                    best = Some(change);
                }
            }
        }
        best.map(|best| (best, swaps.max(1)))
    }
}

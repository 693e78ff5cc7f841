//! The quadratic assignment problem: facilities are placed so that the sum of flows times distances is
//! minimal.
//!
//! The bound is a dual ascent that continues from that of the parent state (P. Hahn and T. Grant
//! 1998); if too many facilities are left for that, it is the bound of P. Gilmore (1962) and E.
//! Lawler (1963). The next decision is the facility, or the place, with the least to search by the bounds of its
//! choices; only one of symmetric choices is tried.

mod dual;
mod lap;
mod lawler;
mod read;
mod symmetry;
mod tabu;
/// Runs the program `qap`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    cli::main::<Qap>()
}

#[cfg(test)]
mod tests;
mod tree;

use std::process::ExitCode;

use bnb_framework::{
    Hooks, Problem,
    cli::{self, DisplaySolution, ParseProblem},
    parse::ReadError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::tree::{Next, Placing};
use self::{dual::Dual, read::parse, symmetry::Symmetry};

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qap {
    size: usize,
    /// From facility to facility, row by row.
    flows: Vec<i64>,
    /// From place to place, row by row.
    distances: Vec<i64>,
    /// All costs are multiples of this.
    unit: i64,
    /// The factor of costs for the better bound, to reduce the loss from divisions. 0
    /// if they are too large for it.
    scale: i64,
    facility_symmetry: Symmetry,
    place_symmetry: Symmetry,
}

/// The maximum number of facilities left for the better bound.
const DUAL_MAX: usize = lap::SIZE_MAX;
/// The maximum cost of a solution for the better bound, scaled.
const COST_MAX: i64 = 1 << 27;
const SCALE_MAX: i64 = 512;

impl Qap {
    /// Creates an instance with matrices of `size` rows.
    pub fn new(size: usize, flows: Vec<i64>, distances: Vec<i64>) -> Self {
        let largest = |matrix: &[i64]| matrix.iter().map(|entry| i128::from(*entry).abs()).max().unwrap_or(0);
        let flow: i128 = flows.iter().map(|flow| i128::from(*flow).abs()).sum();
        let cost_max = (flow * largest(&distances)).max(1);
        let scale = i64::try_from(i128::from(COST_MAX) / cost_max).unwrap_or(0).min(SCALE_MAX);
        let unit = unit(size, &flows, &distances);
        let (facility_symmetry, place_symmetry) =
            (Symmetry::of(size, &flows), Symmetry::of(size, &distances));
        Self { size, flows, distances, unit, scale, facility_symmetry, place_symmetry }
    }

    /// Returns the same instance, to be searched without regard to symmetry.
    #[must_use]
    pub fn without_symmetry(mut self) -> Self {
        (self.facility_symmetry, self.place_symmetry) = (Symmetry::default(), Symmetry::default());
        self
    }

    fn flow(&self, from: usize, to: usize) -> i64 {
        self.flows[from * self.size + to]
    }

    fn distance(&self, from: usize, to: usize) -> i64 {
        self.distances[from * self.size + to]
    }

    /// Returns the cost that placing one more facility adds.
    fn added(&self, placing: &Placing, facility: usize, place: usize) -> i64 {
        let own = self.flow(facility, facility) * self.distance(place, place);
        let with = |(other, at): (usize, usize)| {
            self.flow(facility, other) * self.distance(place, at)
                + self.flow(other, facility) * self.distance(at, place)
        };
        own + placing.placed().map(with).sum::<i64>()
    }

    fn cost(&self, places: &[usize]) -> i64 {
        let pairs = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        pairs.map(|(from, to)| self.flow(from, to) * self.distance(places[from], places[to])).sum()
    }

    /// Returns the remaining problem of a state, unless it is too large.
    fn dual(&self, placing: &Placing) -> Option<Dual> {
        let left = self.size - placing.placed;
        if self.scale == 0 || left > DUAL_MAX {
            return None;
        }
        let facilities = placing.unplaced().into_iter().map(tree::small).collect();
        let places = placing.free(self.size).into_iter().map(tree::small).collect();
        let own = |facility: usize, place: usize| self.added(placing, facility, place) * self.scale;
        let pair = |[f, p, g, q]: [usize; 4]| self.flow(f, g) * self.distance(p, q) * self.scale;
        Some(Dual::new(facilities, places, placing.cost * self.scale, own, pair))
    }
}

/// Returns a number that divides the costs of all solutions.
fn unit(size: usize, flows: &[i64], distances: &[i64]) -> i64 {
    fn divisor(a: i64, b: i64) -> i64 {
        if b == 0 { a.abs() } else { divisor(b, a % b) }
    }
    let of = |matrix: &[i64]| matrix.iter().copied().fold(0, divisor);
    let diagonal = |matrix: &[i64]| (0..size).any(|one| matrix[one * size + one] != 0);
    let is_symmetric =
        |matrix: &[i64]| (0..size).all(|a| (0..a).all(|b| matrix[a * size + b] == matrix[b * size + a]));
    // If both are symmetric, every cost occurs twice, except those of a facility with itself.
    let twice = is_symmetric(flows) && is_symmetric(distances) && !(diagonal(flows) && diagonal(distances));
    (of(flows) * of(distances) * if twice { 2 } else { 1 }).max(1)
}

impl Problem for Qap {
    /// Flows times distances.
    type Cost = i64;
    /// The place of each facility, from 0.
    type Solution = Vec<usize>;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .quick_bound(|qap, placing, best| match placing.low {
            i64::MIN => qap.bound(placing, best), // the root
            known => Some(known),
        })
        // Only one of symmetric solutions is visited.
        .with_every_solution(|qap| Some(qap.without_symmetry()))
        .construct(|qap, seed, stops| qap.searched(None, seed, stops))
        .improve(|qap, places, seed, stops| qap.searched(Some(places), seed, stops));

    fn leaf(&self, placing: &Placing) -> Option<i64> {
        (placing.placed == self.size).then_some(placing.cost)
    }

    fn bound(&self, placing: &mut Placing, best: Option<i64>) -> Option<i64> {
        if best.is_some_and(|best| placing.low >= best) {
            return Some(placing.low);
        }
        if placing.dual.is_none() {
            placing.dual = self.dual(placing).map(Box::new);
        }
        let Some(dual) = &mut placing.dual else {
            let bounded = self.gilmore_lawler(placing);
            placing.next = placing.choose(self, &bounded.facilities, &bounded.places, &bounded.lows, best);
            placing.low = placing.low.max(bounded.bound);
            return Some(placing.low);
        };
        // The least scaled cost that is of no interest. A limit may be far from all costs.
        let scaled_max = |best: i64| (best - 1).div_euclid(self.unit) * self.unit * self.scale + 1;
        let limit =
            best.filter(|best| *best <= COST_MAX / self.scale).map(|best| scaled_max(best.max(-COST_MAX)));
        if dual.ascend(limit).is_none() {
            // Without a limit something is always left.
            return best;
        }
        let unscaled = |cost: i64| -(-cost).div_euclid(self.scale * self.unit) * self.unit;
        let bound = unscaled(dual.bound).max(placing.low);
        if best.is_some_and(|best| bound >= best) {
            return best;
        }
        let of = |all: &[u8]| -> Vec<usize> { all.iter().map(|&one| one.into()).collect() };
        let (facilities, places) = (of(&dual.facilities), of(&dual.places));
        let lows = dual.lows();
        placing.next = placing.choose(self, &facilities, &places, &lows, limit).map(|mut next| {
            next.others.iter_mut().for_each(|(low, _)| *low = unscaled(*low).max(bound));
            next
        });
        placing.low = bound;
        Some(bound)
    }

    fn solution(&self, placing: &Placing) -> Vec<usize> {
        let mut placed: Vec<(usize, usize)> = placing.placed().collect();
        placed.sort_by_key(|&(facility, _)| facility);
        placed.into_iter().map(|(_, place)| place).collect()
    }

    fn cost_of(&self, places: &Vec<usize>) -> Option<i64> {
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..self.size).then(|| self.cost(places))
    }
}

impl ParseProblem for Qap {
    const NAME: &'static str = "qap";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Places facilities so that what flows between them goes the shortest way";

    const FILE_BYTES_MAX: u64 = read::FILE_BYTES_MAX;

    fn read(file: &str, text: &str) -> Result<Self, ReadError> {
        parse(file, text)
    }

    fn start(&self) -> Option<(i64, Vec<usize>)> {
        Some(self.start_places())
    }
}

impl DisplaySolution for Qap {
    const COST: &'static str = "cost";
    const SOLUTION: &'static str = "places";

    /// Places are displayed from 1.
    fn show(&self, places: &Vec<usize>) -> (String, Value) {
        let places: Vec<usize> = places.iter().map(|place| place + 1).collect();
        (format!("{places:?}"), json!(places))
    }
}

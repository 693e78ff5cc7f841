//! The bound of P. Gilmore (1962) and E. Lawler (1963), for instances that are too large for a better one:
//! the cost of a facility at a place is at least its cost with those already placed, plus its largest flows
//! over the shortest distances of the place; choosing a place for each facility is an [assignment
//! problem](bnb_framework::assignment).

use bnb_framework::assignment::{Assignment, FORBIDDEN};

use super::{Placing, Qap};

/// A bound, with lower bounds for all choices.
pub(super) struct Bounded {
    pub(super) bound: i64,
    pub(super) facilities: Vec<usize>,
    pub(super) places: Vec<usize>,
    /// A row for each facility, a column for each place.
    pub(super) lows: Vec<i64>,
}

impl Qap {
    pub(super) fn gilmore_lawler(&self, placing: &Placing) -> Bounded {
        let facilities = placing.unplaced();
        let places = placing.free(self.size);
        let n = facilities.len();
        let rows = |of: &dyn Fn(usize, usize) -> i64, all: &[usize]| -> Vec<Vec<i64>> {
            let row = |&one: &usize| {
                let mut row: Vec<i64> =
                    all.iter().filter(|&&other| other != one).map(|&other| of(one, other)).collect();
                row.sort_unstable();
                row
            };
            all.iter().map(row).collect()
        };
        let flows = rows(&|from, to| self.flow(from, to), &facilities);
        let distances = rows(&|from, to| self.distance(from, to), &places);
        let mut costs = Vec::with_capacity(n * n);
        for (facility, flows) in facilities.iter().zip(&flows) {
            for (place, distances) in places.iter().zip(&distances) {
                // The minimum over all pairings: pair large with small.
                let rest: i64 =
                    flows.iter().rev().zip(distances).map(|(flow, distance)| flow * distance).sum();
                costs.push(self.added(placing, *facility, *place) + rest);
            }
        }
        let mut assignment = Assignment::new(n);
        let least = assignment.solve(|row, column| costs[row * n + column]).unwrap_or(FORBIDDEN);
        let bound = placing.cost + least;
        let low = |one: usize| bound + assignment.reduced(one / n, one % n, costs[one]);
        Bounded { bound, lows: (0..n * n).map(low).collect(), facilities, places }
    }
}

//! Good solutions without the tree, by robust tabu search (E. Taillard, Robust taboo search for the
//! quadratic assignment problem, 1991): in each step the best swap of two facilities' places, unless it
//! returns both to recent places. The length of that ban is random.
//!
//! The cost change of each swap is stored for all pairs. After a swap, each pair that was not part of it is
//! updated in a few operations.

use super::Qap;
use crate::random::Random;

/// The work of a round, in steps of about a nanosecond: one for each examined pair, and more for
/// recomputed ones.
const ROUND_STEPS: usize = 20_000_000;

struct Tabu<'a> {
    qap: &'a Qap,
    places: Vec<usize>,
    cost: i64,
    /// The cost change of swapping each pair: a row for each facility, up to the facility itself.
    deltas: Vec<i64>,
    /// The step until which each facility is not to come back to each place.
    until: Vec<usize>,
    random: Random,
}

impl Qap {
    /// Returns a solution to start with.
    pub(super) fn start_places(&self) -> (i64, Vec<usize>) {
        let places = self.searched(None, 0, &|| false).unwrap_or_else(|| (0..self.size).collect());
        (self.cost(&places), places)
    }

    /// Searches from a solution, or from a random one. Returns the best that was found, or `None` if it is
    /// no better than the given one.
    pub(super) fn searched(
        &self,
        from: Option<&Vec<usize>>,
        seed: u64,
        stops: &dyn Fn() -> bool,
    ) -> Option<Vec<usize>> {
        let mut tabu = Tabu::new(self, from, seed);
        let cost = tabu.cost;
        let mut best = (cost, tabu.places.clone());
        tabu.run(&mut best, stops);
        (from.is_none() || best.0 < cost).then_some(best.1)
    }

    /// Walks from a random solution, and returns where it ends, with the cost as kept on the way.
    #[cfg(test)]
    pub(super) fn walked(&self, seed: u64, stops: &dyn Fn() -> bool) -> (i64, Vec<usize>) {
        let mut tabu = Tabu::new(self, None, seed);
        tabu.run(&mut (i64::MIN, Vec::new()), stops);
        (tabu.cost, tabu.places)
    }

    /// Returns the cost change of swapping the places of two facilities.
    pub(super) fn swapped(&self, places: &[usize], first: usize, second: usize) -> i64 {
        let (here, there) = (places[first], places[second]);
        let flow = |from: usize, to: usize| self.flow(from, to);
        let distance = |from: usize, to: usize| self.distance(from, to);
        let own = flow(first, first) - flow(second, second);
        let both = flow(first, second) - flow(second, first);
        let mut delta = own * (distance(there, there) - distance(here, here))
            + both * (distance(there, here) - distance(here, there));
        for (other, &at) in places.iter().enumerate().filter(|&(other, _)| other != first && other != second)
        {
            delta += (flow(other, first) - flow(other, second)) * (distance(at, there) - distance(at, here))
                + (flow(first, other) - flow(second, other)) * (distance(there, at) - distance(here, at));
        }
        delta
    }
}

impl<'a> Tabu<'a> {
    /// Starts from a solution, or from a random one.
    fn new(qap: &'a Qap, from: Option<&Vec<usize>>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let places = from.cloned().unwrap_or_else(|| {
            let mut places: Vec<usize> = (0..qap.size).collect();
            random.shuffle(&mut places);
            places
        });
        let (deltas, until) = (vec![0; qap.size * qap.size], vec![0; qap.size * qap.size]);
        Self { qap, cost: qap.cost(&places), places, deltas, until, random }
    }

    /// Takes steps until the work is done, or it is stopped.
    fn run(&mut self, best: &mut (i64, Vec<usize>), stops: &dyn Fn() -> bool) {
        let n = self.qap.size;
        for a in 0..n {
            for b in 0..a {
                self.deltas[a * n + b] = self.qap.swapped(&self.places, a, b);
            }
            if stops() {
                return;
            }
        }
        for step in 1..=ROUND_STEPS / (4 * n * n).max(1) {
            if stops() {
                return;
            }
            let Some((a, b)) = self.best_swap(step, best.0) else { return };
            self.until[a * n + self.places[a]] = step + self.tenure();
            self.until[b * n + self.places[b]] = step + self.tenure();
            self.swap(a, b);
            if self.cost < best.0 {
                *best = (self.cost, self.places.clone());
            }
        }
    }

    /// Draws for how long a facility is not to come back: mostly for a few steps, at times for many.
    fn tenure(&mut self) -> usize {
        let drawn = self.random.below(256);
        1 + ((8 * self.qap.size * drawn * drawn * drawn) >> 24)
    }

    /// Returns the best swap that is allowed, or that leads to a new best. One that brings both to where
    /// they have not been for long comes before all others.
    fn best_swap(&mut self, step: usize, best: i64) -> Option<(usize, usize)> {
        let n = self.qap.size;
        let (mut chosen, mut least) = (None, (true, i64::MAX));
        for a in 1..n {
            for b in 0..a {
                let delta = self.deltas[a * n + b];
                let (one, other) = (self.until[a * n + self.places[b]], self.until[b * n + self.places[a]]);
                let is_due = one.max(other) + 5 * n * n < step;
                let rank = (!is_due, delta);
                if rank < least && (one.min(other) <= step || self.cost + delta < best) {
                    (chosen, least) = (Some((a, b)), rank);
                }
            }
        }
        if chosen.is_none() && n > 1 {
            let a = 1 + self.random.below(n - 1);
            return Some((a, self.random.below(a)));
        }
        chosen
    }

    /// Swaps the places of two facilities, and updates the cost changes of other swaps.
    fn swap(&mut self, first: usize, second: usize) {
        let (qap, size) = (self.qap, self.qap.size);
        self.cost += self.deltas[first * size + second];
        let (was, is) = (self.places[first], self.places[second]);
        self.places.swap(first, second);
        for one in 1..size {
            for other in 0..one {
                let delta = &mut self.deltas[one * size + other];
                if [one, other].iter().any(|it| *it == first || *it == second) {
                    *delta = qap.swapped(&self.places, one, other);
                    continue;
                }
                // Only the terms with the two have changed: the first was at `was`, and is at `is`.
                let flow = |with: usize| {
                    let out = qap.flow(with, one) - qap.flow(with, other);
                    (out, qap.flow(one, with) - qap.flow(other, with))
                };
                let (here, there) = (self.places[one], self.places[other]);
                let apart = |from: usize| {
                    let out = qap.distance(from, there) - qap.distance(from, here);
                    (out, qap.distance(there, from) - qap.distance(here, from))
                };
                let (of_first, of_second) = (flow(first), flow(second));
                let (now, before) = (apart(is), apart(was));
                *delta += (of_first.0 - of_second.0) * (now.0 - before.0)
                    + (of_first.1 - of_second.1) * (now.1 - before.1);
            }
        }
    }
}

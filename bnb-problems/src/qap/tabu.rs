//! Good solutions without the tree, by robust tabu search (E. Taillard, Robust taboo search for the
//! quadratic assignment problem, 1991): in each step the best swap of two facilities' places, unless it
//! brings both back to where they were not long ago; for how long that is forbidden is drawn.
//!
//! What a swap would change is kept for all pairs. After a swap it takes a few operations to renew it for
//! each pair that was not part of it.

use super::Qap;
use crate::random::Random;

/// The work of a round, in steps of about a nanosecond: one for each pair that is looked at, and more for
/// those that are computed anew.
const ROUND_STEPS: usize = 20_000_000;

struct Tabu<'a> {
    qap: &'a Qap,
    places: Vec<usize>,
    cost: i64,
    /// What swapping each pair would add to the cost: a row for each facility, up to the facility itself.
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

    /// Returns what swapping the places of two facilities adds to the cost.
    pub(super) fn swapped(&self, places: &[usize], a: usize, b: usize) -> i64 {
        let (p, q) = (places[a], places[b]);
        let mut delta = (self.flow(a, a) - self.flow(b, b)) * (self.distance(q, q) - self.distance(p, p))
            + (self.flow(a, b) - self.flow(b, a)) * (self.distance(q, p) - self.distance(p, q));
        for (c, &r) in places.iter().enumerate().filter(|&(c, _)| c != a && c != b) {
            delta += (self.flow(c, a) - self.flow(c, b)) * (self.distance(r, q) - self.distance(r, p))
                + (self.flow(a, c) - self.flow(b, c)) * (self.distance(q, r) - self.distance(p, r));
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

    /// Swaps the places of two facilities, and renews what other swaps would change.
    fn swap(&mut self, a: usize, b: usize) {
        let (qap, n) = (self.qap, self.qap.size);
        self.cost += self.deltas[a * n + b];
        let (p, q) = (self.places[a], self.places[b]);
        self.places.swap(a, b);
        for c in 1..n {
            for d in 0..c {
                let delta = &mut self.deltas[c * n + d];
                if [c, d].iter().any(|one| *one == a || *one == b) {
                    *delta = qap.swapped(&self.places, c, d);
                    continue;
                }
                // Only the terms with the two have changed: facility a was at p, and is at q.
                let (r, s) = (self.places[c], self.places[d]);
                let from = qap.flow(a, c) - qap.flow(a, d) + qap.flow(b, d) - qap.flow(b, c);
                let to = qap.flow(c, a) - qap.flow(d, a) + qap.flow(d, b) - qap.flow(c, b);
                let out = qap.distance(q, s) - qap.distance(q, r) + qap.distance(p, r) - qap.distance(p, s);
                let back = qap.distance(s, q) - qap.distance(r, q) + qap.distance(r, p) - qap.distance(s, p);
                *delta += from * out + to * back;
            }
        }
    }
}

//! The bound of P. Hahn and T. Grant (Lower bounds for the quadratic assignment problem based upon a dual
//! formulation, 1998): a dual ascent on the linearisation of the first level (W. Adams and T. Johnson,
//! 1994), in whole numbers.
//!
//! Each choice of a facility and a place has a cost of its own, and one with each other choice. In any
//! solution the other choices beside a choice make up an assignment. So a choice's own cost can be spread
//! over the rows of its table of pairs, a pair's cost can be moved between the two choices that make it,
//! and the cost of the cheapest assignment in a choice's table can be taken as its own: no solution's cost
//! changes by any of this. The cost of the cheapest assignment of the choices' own costs is then a bound,
//! and what remains is as well a problem, in which no cost is negative: the next round starts from it, and
//! so do the children.
//!
//! If only solutions better than a given one are sought, choices and pairs that cost as much are not
//! allowed any more; that makes the bounds higher, and tables without a choice need not be looked at.

use serde::{Deserialize, Serialize};

use super::lap::{FORBIDDEN, Table};

/// The maximum number of rounds for a state.
const ROUNDS_MAX: usize = 12;
/// The ascent ends if so many rounds like the last would not be enough.
const PATIENCE: i64 = 20;

/// The problem that remains in a state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Dual {
    /// The remaining facilities and places, each in ascending order.
    pub(super) facilities: Vec<u8>,
    pub(super) places: Vec<u8>,
    /// A lower bound on the cost of all solutions that are allowed.
    pub(super) bound: i64,
    /// The cost of each choice: a row for each facility, a column for each place.
    pub(super) own: Vec<i32>,
    /// For each choice, the costs with each other choice.
    pairs: Vec<i32>,
    /// Whether no cost is negative.
    is_reduced: bool,
    /// Whether the next round goes through the choices from the last.
    is_turned: bool,
}

/// The sum of two costs, if it is allowed.
fn sum(a: i32, b: i32) -> i32 {
    if a >= FORBIDDEN || b >= FORBIDDEN { FORBIDDEN } else { (a + b).min(FORBIDDEN) }
}

fn small(cost: i64) -> i32 {
    i32::try_from(cost).map_or(FORBIDDEN, |cost| cost.min(FORBIDDEN))
}

impl Dual {
    /// Creates the problem of some facilities and places, with these costs of a choice and of a pair of
    /// choices (a facility, a place, another facility, another place).
    pub(super) fn new(
        facilities: Vec<u8>,
        places: Vec<u8>,
        bound: i64,
        own: impl Fn(usize, usize) -> i64,
        pair: impl Fn([usize; 4]) -> i64,
    ) -> Self {
        let choices =
            || facilities.iter().flat_map(|f| places.iter().map(move |p| (usize::from(*f), usize::from(*p))));
        let own = choices().map(|(facility, place)| small(own(facility, place))).collect();
        let with = |(f, p): (usize, usize)| choices().map(move |(g, q)| (f, p, g, q));
        let pairs = choices().flat_map(with).map(|(f, p, g, q)| small(pair([f, p, g, q]))).collect();
        Self { facilities, places, bound, own, pairs, is_reduced: false, is_turned: false }
    }

    pub(super) fn size(&self) -> usize {
        self.facilities.len()
    }

    /// Returns the problem that remains after a choice.
    pub(super) fn after(&self, row: usize, column: usize) -> Self {
        let n = self.size();
        let chosen = row * n + column;
        let all: Vec<usize> = (0..n * n).filter(|one| one / n != row && one % n != column).collect();
        let own = |&one: &usize| {
            let with = sum(self.pairs[chosen * n * n + one], self.pairs[one * n * n + chosen]);
            sum(self.own[one], with)
        };
        let mut pairs = Vec::with_capacity(all.len() * all.len());
        for one in &all {
            let table = &self.pairs[one * n * n..][..n * n];
            for (k, line) in table.chunks_exact(n).enumerate() {
                if k != row {
                    pairs.extend_from_slice(&line[..column]);
                    pairs.extend_from_slice(&line[column + 1..]);
                }
            }
        }
        let without = |all: &[u8], gone: usize| [&all[..gone], &all[gone + 1..]].concat();
        Self {
            facilities: without(&self.facilities, row),
            places: without(&self.places, column),
            bound: self.bound + i64::from(self.own[chosen]),
            own: all.iter().map(own).collect(),
            pairs,
            is_reduced: self.is_reduced,
            is_turned: self.is_turned,
        }
    }

    /// Raises the bound until it reaches `best`, or rises too slowly. Returns `None` if nothing better is
    /// left.
    pub(super) fn ascend(&mut self, best: Option<i64>) -> Option<()> {
        let mut table = Table::default();
        for _ in 0..ROUNDS_MAX {
            let before = self.bound;
            self.round(best, &mut table)?;
            let missing = best.map_or(self.bound / 16, |best| best - self.bound);
            if missing <= 0 || (self.bound - before) * PATIENCE < missing {
                break;
            }
        }
        Some(())
    }

    fn round(&mut self, best: Option<i64>, table: &mut Table) -> Option<()> {
        let n = self.size();
        if n > 1 {
            (0..n * n).for_each(|choice| self.spread(choice));
            // Each choice takes what it can get from those that come later; they have their turn.
            for step in 0..n * n {
                let choice = if self.is_turned { n * n - 1 - step } else { step };
                if self.own[choice] < FORBIDDEN {
                    self.own[choice] = self.of_choice(choice, best, table);
                }
            }
            self.is_turned = !self.is_turned;
        }
        table.reset(n);
        table.costs.extend_from_slice(&self.own);
        self.bound += table.solve()?;
        self.own.copy_from_slice(&table.costs);
        self.is_reduced = true;
        if let Some(left) = self.left(best) {
            for cost in self.own.iter_mut().filter(|cost| i64::from(**cost) >= left) {
                *cost = FORBIDDEN;
            }
        }
        Some(())
    }

    /// Returns the cost that may be added to the bound, if a limit is known and costs are not negative.
    fn left(&self, best: Option<i64>) -> Option<i64> {
        best.filter(|_| self.is_reduced).map(|best| best - self.bound)
    }

    /// Spreads the cost of a choice over the rows of its table, where others can take it.
    fn spread(&mut self, choice: usize) {
        let n = self.size();
        let (row, cost) = (choice / n, self.own[choice]);
        if cost >= FORBIDDEN || cost == 0 {
            return;
        }
        self.own[choice] = 0;
        let others = i32::try_from(n - 1).unwrap_or(1);
        let (share, mut rest) = (cost.div_euclid(others), cost.rem_euclid(others));
        let table = &mut self.pairs[choice * n * n..][..n * n];
        for (_, line) in table.chunks_exact_mut(n).enumerate().filter(|(k, _)| *k != row) {
            let extra = share + i32::from(rest > 0);
            rest -= 1;
            for cost in line {
                *cost = sum(*cost, extra);
            }
        }
    }

    /// Solves the table of a choice, and returns its cost.
    fn of_choice(&mut self, choice: usize, best: Option<i64>, table: &mut Table) -> i32 {
        let n = self.size();
        let (row, column) = (choice / n, choice % n);
        let left = self.left(best).unwrap_or(i64::MAX);
        table.reset(n - 1);
        for k in (0..n).filter(|&k| k != row) {
            for l in (0..n).filter(|&l| l != column) {
                let other = k * n + l;
                let here = self.pairs[choice * n * n + other];
                let back = &mut self.pairs[other * n * n + choice];
                let both = sum(here, *back);
                // A little is left to the other, so that neither ends up with all; but nothing negative.
                let left = if both >= FORBIDDEN { 0 } else { both.max(0) / 8 };
                *back = left;
                table.costs.push(if self.own[other] >= FORBIDDEN { FORBIDDEN } else { sum(both, -left) });
            }
        }
        let Some(total) = table.solve() else { return FORBIDDEN };
        let mut reduced = table.costs.iter();
        for k in (0..n).filter(|&k| k != row) {
            for l in (0..n).filter(|&l| l != column) {
                let other = k * n + l;
                let cost = reduced.next().copied().unwrap_or(0);
                let with = i64::from(cost) + total + i64::from(self.own[other]);
                self.pairs[choice * n * n + other] = if with >= left { FORBIDDEN } else { cost };
            }
        }
        small(total)
    }
}

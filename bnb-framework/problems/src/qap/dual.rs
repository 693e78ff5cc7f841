//! The bound of P. Hahn and T. Grant (Lower bounds for the quadratic assignment problem based upon a dual
//! formulation, 1998): a dual ascent on the linearisation of the first level (W. Adams and T. Johnson,
//! 1994), in whole numbers.
//!
//! Each choice of a facility and a place has its own cost, and a cost with each other choice. In any
//! solution, the other choices of the solution form an assignment. So a choice's own cost can be spread
//! over the rows of its table of pairs, and the cost of the cheapest assignment of its pairs can be moved to
//! its own cost: neither changes the cost of any solution. The cost of the cheapest
//! assignment of the choices' own costs is then a bound, and the remainder is a problem without negative
//! costs: the next round starts from it, and so do the children.
//!
//! A choice takes half of the cost of a pair if the other choice comes later in the same round, and all of the
//! rest otherwise. So the first round already gives about the bound of Gilmore and Lawler.
//!
//! If only solutions better than a given one are sought, choices and pairs that cost as much are
//! forbidden; that raises the bounds, and tables without a choice can be skipped.

use std::array;

use serde::{Deserialize, Serialize};

use super::lap::{Block, FORBIDDEN, LANES, NOTHING, Table, WIDTH_MAX, plus, width};

/// The maximum number of rounds for a state.
const ROUNDS_MAX: usize = 12;
/// The ascent ends if this many rounds like the last would not suffice.
const PATIENCE: i64 = 20;

/// The remaining problem of a state. Costs of choices are in rows, one for each facility, of blocks with a column
/// for each place; the padding of the last block is forbidden.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Dual {
    /// The remaining facilities and places, each in ascending order.
    pub(super) facilities: Vec<u8>,
    pub(super) places: Vec<u8>,
    /// A lower bound on the cost of all solutions that are allowed.
    pub(super) bound: i64,
    /// The cost of each choice.
    own: Vec<Block>,
    /// For each choice, the costs of the pairs with each other choice; each pair is stored at both. The
    /// rows and columns of the choice itself are unused.
    pairs: Vec<Block>,
    /// Whether no cost is negative.
    is_reduced: bool,
    /// Whether the next round goes through the choices from the last.
    is_turned: bool,
}

#[derive(Debug, Default)]
struct Room {
    table: Table,
    /// The cost that each choice spreads over each row of its table.
    shares: Vec<Block>,
    /// The cost that a choice leaves to each other one.
    left: Vec<Block>,
}

/// The sum of two costs, if it is allowed.
fn sum(a: i32, b: i32) -> i32 {
    if a >= FORBIDDEN || b >= FORBIDDEN { FORBIDDEN } else { (a + b).min(FORBIDDEN) }
}

fn small(cost: i64) -> i32 {
    i32::try_from(cost).map_or(FORBIDDEN, |cost| cost.min(FORBIDDEN))
}

/// Adds a row of costs to a table.
fn push_row(table: &mut Vec<Block>, row: impl IntoIterator<Item = i32>) {
    let mut row = row.into_iter();
    while let Some(first) = row.next() {
        let mut block = NOTHING;
        block[0] = first;
        block[1..].iter_mut().zip(&mut row).for_each(|(to, cost)| *to = cost);
        table.push(block);
    }
}

/// Adds a row of `n` costs to a table, without the one of a column.
fn push_without(table: &mut Vec<Block>, row: &[Block], n: usize, column: usize) {
    let mut costs = [NOTHING; WIDTH_MAX];
    costs.iter_mut().zip(row).for_each(|(to, costs)| *to = *costs);
    let flat = costs.as_flattened_mut();
    flat.copy_within(column + 1..n, column);
    flat[n - 1] = FORBIDDEN;
    table.extend_from_slice(&costs[..width(n - 1)]);
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
        let (mut choices, mut pairs) = (Vec::new(), Vec::new());
        let of = |all: &[u8]| -> Vec<usize> { all.iter().map(|&one| one.into()).collect() };
        let (rows, columns) = (of(&facilities), of(&places));
        for &f in &rows {
            push_row(&mut choices, columns.iter().map(|&p| small(own(f, p))));
            for &p in &columns {
                for &g in &rows {
                    let both = |&q: &usize| small(pair([f, p, g, q]) + pair([g, q, f, p]));
                    push_row(&mut pairs, columns.iter().map(both));
                }
            }
        }
        Self { facilities, places, bound, own: choices, pairs, is_reduced: false, is_turned: false }
    }

    pub(super) fn size(&self) -> usize {
        self.facilities.len()
    }

    /// Returns a lower bound on the cost of all solutions with each choice: a row for each facility, a column for each
    /// place.
    pub(super) fn lows(&self) -> Vec<i64> {
        let n = self.size();
        let rows = self.own.chunks_exact(width(n)).map(|row| &row.as_flattened()[..n]);
        rows.flatten().map(|&own| self.bound + i64::from(own)).collect()
    }

    /// Returns the problem that remains after a choice.
    pub(super) fn after(&self, row: usize, column: usize) -> Self {
        let (n, width) = (self.size(), width(self.size()));
        let of_choice =
            |row: usize, column: usize| &self.pairs[(row * n + column) * n * width..][..n * width];
        let others = |gone: usize| (0..n).filter(move |&one| one != gone);
        let mut own = Vec::with_capacity((n - 1) * width);
        let mut pairs = Vec::with_capacity((n - 1).pow(3) * width);
        let with_chosen = of_choice(row, column);
        for k in others(row) {
            let at = k * width..(k + 1) * width;
            let mut costs = [NOTHING; WIDTH_MAX];
            let each = self.own[at.clone()].iter().zip(&with_chosen[at]);
            costs
                .iter_mut()
                .zip(each)
                .for_each(|(to, (own, with))| *to = array::from_fn(|lane| sum(own[lane], with[lane])));
            push_without(&mut own, &costs, n, column);
            for l in others(column) {
                let lines = of_choice(k, l).chunks_exact(width).enumerate();
                for (_, line) in lines.filter(|(facility, _)| *facility != row) {
                    push_without(&mut pairs, line, n, column);
                }
            }
        }
        let rest = |all: &[u8], gone: usize| [&all[..gone], &all[gone + 1..]].concat();
        Self {
            facilities: rest(&self.facilities, row),
            places: rest(&self.places, column),
            bound: self.bound + i64::from(self.own.as_flattened()[row * width * LANES + column]),
            own,
            pairs,
            is_reduced: self.is_reduced,
            is_turned: self.is_turned,
        }
    }

    /// Raises the bound until it reaches `best`, or rises too slowly. Returns `None` if nothing better is
    /// left.
    pub(super) fn ascend(&mut self, best: Option<i64>) -> Option<()> {
        // With the number of blocks known, the loops over a row are unrolled.
        match width(self.size()) {
            1 => self.ascend_in::<1>(best),
            2 => self.ascend_in::<2>(best),
            3 => self.ascend_in::<3>(best),
            4 => self.ascend_in::<4>(best),
            _ => self.ascend_in::<WIDTH_MAX>(best),
        }
    }

    fn ascend_in<const W: usize>(&mut self, best: Option<i64>) -> Option<()> {
        let mut room = Room::default();
        for _ in 0..ROUNDS_MAX {
            let before = self.bound;
            self.round::<W>(best, &mut room)?;
            let missing = best.map_or(self.bound / 16, |best| best - self.bound);
            if missing <= 0 || (self.bound - before) * PATIENCE < missing {
                break;
            }
        }
        Some(())
    }

    fn round<const W: usize>(&mut self, best: Option<i64>, room: &mut Room) -> Option<()> {
        let n = self.size();
        if n > 1 {
            self.spread(room);
            for step in 0..n * n {
                let choice = if self.is_turned { n * n - 1 - step } else { step };
                let (row, column) = (choice / n, choice % n);
                let at = row * W * LANES + column;
                let own = self.own.as_flattened()[at];
                if own < FORBIDDEN {
                    self.own.as_flattened_mut()[at] = sum(own, self.of_choice::<W>(row, column, best, room));
                }
            }
            self.is_turned = !self.is_turned;
        }
        room.table.reset(n, W);
        room.table.lines_mut::<W>().copy_from_slice(self.own.as_chunks().0);
        self.bound += room.table.solve()?;
        self.own.as_chunks_mut().0.copy_from_slice(room.table.lines::<W>());
        self.is_reduced = true;
        if let Some(left) = self.left(best) {
            for cost in self.own.as_flattened_mut().iter_mut().filter(|cost| i64::from(**cost) >= left) {
                *cost = FORBIDDEN;
            }
        }
        Some(())
    }

    /// Returns the cost that may be added to the bound, if a limit is known and costs are not negative.
    fn left(&self, best: Option<i64>) -> Option<i64> {
        best.filter(|_| self.is_reduced).map(|best| best - self.bound)
    }

    /// Spreads the own cost of each choice over the rows of its table, if others can take it.
    fn spread(&mut self, room: &mut Room) {
        let rows = i32::try_from(self.size() - 1).unwrap_or(1);
        room.shares.clear();
        room.shares.resize(self.own.len(), Block::default());
        room.left.resize(self.own.len(), Block::default());
        for (own, share) in self.own.as_flattened_mut().iter_mut().zip(room.shares.as_flattened_mut()) {
            if *own < FORBIDDEN {
                (*share, *own) = (own.div_euclid(rows), own.rem_euclid(rows));
            }
        }
    }

    /// Solves the table of a choice, and returns its cost.
    fn of_choice<const W: usize>(
        &mut self,
        row: usize,
        column: usize,
        best: Option<i64>,
        room: &mut Room,
    ) -> i32 {
        let n = self.size();
        let pairs_at = (row * n + column) * n;
        let Room { table, shares, left } = room;
        let (shares, left) = (shares.as_chunks::<W>().0, left.as_chunks_mut::<W>().0);
        let own = self.own.as_chunks::<W>().0;
        let share = shares[row].as_flattened()[column];
        table.reset(n - 1, W);
        for (k, line) in (0..n).filter(|&k| k != row).zip(table.lines_mut::<W>()) {
            let is_later = (k > row) != self.is_turned;
            let pairs = &self.pairs.as_chunks::<W>().0[pairs_at + k];
            for block in 0..W {
                let (pairs, own, shares) = (pairs[block], own[k][block], shares[k][block]);
                let pairs: Block =
                    array::from_fn(|lane| if own[lane] < FORBIDDEN { pairs[lane] } else { FORBIDDEN });
                (line[block], left[k][block]) = if is_later {
                    // Nothing was taken from these pairs in this round, and nothing added.
                    let both = plus(pairs, shares.map(|other| share + other));
                    let half: Block = array::from_fn(|lane| if both[lane] > 0 { both[lane] >> 1 } else { 0 });
                    let half = array::from_fn(|lane| if both[lane] < FORBIDDEN { half[lane] } else { 0 });
                    (array::from_fn(|lane| both[lane] - half[lane]), half)
                } else {
                    (pairs, Block::default())
                };
            }
            // The last column takes the place of the choice's own.
            let costs = line.as_flattened_mut();
            (costs[column], costs[n - 1]) = (costs[n - 1], FORBIDDEN);
        }
        let Some(total) = table.solve() else { return FORBIDDEN };
        let limit = self.left(best).map_or(i32::MAX, |left| i32::try_from(left - total).unwrap_or(i32::MAX));
        for (k, line) in (0..n).filter(|&k| k != row).zip(table.lines_mut::<W>()) {
            let costs = line.as_flattened_mut();
            costs[n - 1] = costs[column];
            for block in 0..W {
                let (all, own) = (plus(line[block], left[k][block]), own[k][block]);
                line[block] =
                    array::from_fn(|lane| if all[lane] + own[lane] < limit { all[lane] } else { FORBIDDEN });
            }
            let pairs = self.pairs.as_chunks_mut::<W>().0;
            pairs[pairs_at + k] = *line;
            let of_others = pairs[k * n * n..].iter_mut().skip(row).step_by(n).take(n);
            of_others.zip(line.as_flattened()).for_each(|(to, cost)| to.as_flattened_mut()[column] = *cost);
        }
        small(total)
    }
}

//! Small assignment problems, solved in very large numbers: in place, in one table, by shortest augmenting
//! paths from the cheapest entries (R. Jonker and A. Volgenant, 1987).
//!
//! The costs of a row are in blocks; the padding of the last one is forbidden. The loops run over blocks, without
//! branches, so that the compiler vectorizes them.

use std::array;

/// The cost of a choice that is not allowed, and of any that is as high.
pub(super) const FORBIDDEN: i32 = 1 << 29;
/// Greater than any cost.
const FAR: i32 = i32::MAX;

/// The number of costs that are computed at once: as many as a vector register of any x86-64 processor holds.
pub(super) const LANES: usize = 4;
/// Costs that are computed at once.
pub(super) type Block = [i32; LANES];
/// A block of forbidden entries.
pub(super) const NOTHING: Block = [FORBIDDEN; LANES];

/// The maximum number of blocks in a row.
pub(super) const WIDTH_MAX: usize = 5;
pub(super) const SIZE_MAX: usize = WIDTH_MAX * LANES;
const NONE: u8 = u8::MAX;

/// Returns the number of blocks in a row of this many costs.
pub(super) fn width(size: usize) -> usize {
    size.div_ceil(LANES).max(1)
}

/// Returns each cost with more added, if it is allowed.
pub(super) fn plus(costs: Block, more: Block) -> Block {
    array::from_fn(|lane| {
        let sum = costs[lane] + more[lane];
        let sum = if sum < FORBIDDEN { sum } else { FORBIDDEN };
        if costs[lane] < FORBIDDEN { sum } else { FORBIDDEN }
    })
}

/// Returns each cost less a part of it, if it is allowed.
fn minus(costs: Block, parts: Block) -> Block {
    plus(costs, parts.map(|part| -part))
}

fn min(a: Block, b: Block) -> Block {
    array::from_fn(|lane| if a[lane] < b[lane] { a[lane] } else { b[lane] })
}

fn least(costs: &[Block]) -> i32 {
    costs.iter().fold([FAR; LANES], |least, &costs| min(costs, least)).into_iter().fold(FAR, i32::min)
}

/// Returns a bit mask of the costs equal to the given one.
fn equal(costs: &[Block], cost: i32) -> u32 {
    let mut found = [0; LANES];
    for (number, &block) in costs.iter().enumerate() {
        let bits: Block = array::from_fn(|lane| 1 << (number * LANES + lane));
        let here: Block = array::from_fn(|lane| if block[lane] == cost { bits[lane] } else { 0 });
        found = array::from_fn(|lane| found[lane] | here[lane]);
    }
    found.into_iter().fold(0, |all, bits| all | bits.cast_unsigned())
}

/// An assignment problem, and room to solve it.
#[derive(Debug, Default)]
pub(super) struct Table {
    size: usize,
    /// The number of blocks in a row.
    width: usize,
    /// Row by row; once solved, the reduced costs, which are not negative.
    costs: Vec<Block>,
    /// The row of each column, and the column of each row.
    row_of: [u8; SIZE_MAX],
    column_of: [u8; SIZE_MAX],
}

/// The reductions of a table since all rows and columns were reduced.
struct Potentials<const W: usize> {
    rows: [i32; SIZE_MAX],
    columns: [Block; W],
}

impl Table {
    /// Starts a problem of this size, with `width` blocks in a row. All costs must then be set.
    ///
    /// # Panics
    /// If there are too many rows for the blocks.
    pub(super) fn reset(&mut self, size: usize, width: usize) {
        assert!(size <= width * LANES && width <= WIDTH_MAX, "{size} rows are too many");
        (self.size, self.width) = (size, width);
        self.costs.resize(size * width, NOTHING);
    }

    /// Returns the costs of each row. `W` is the number of blocks in a row.
    pub(super) fn lines<const W: usize>(&self) -> &[[Block; W]] {
        self.costs.as_chunks().0
    }

    /// Returns the costs of each row for changes; the padding of the last block must stay forbidden.
    pub(super) fn lines_mut<const W: usize>(&mut self) -> &mut [[Block; W]] {
        self.costs.as_chunks_mut().0
    }

    /// Returns the least cost, and leaves the reduced costs in the table. Returns `None` if nothing is
    /// allowed.
    pub(super) fn solve(&mut self) -> Option<i64> {
        // With the number of blocks known, the loops over a row are unrolled.
        match self.width {
            1 => self.solve_in::<1>(),
            2 => self.solve_in::<2>(),
            3 => self.solve_in::<3>(),
            4 => self.solve_in::<4>(),
            _ => self.solve_in::<WIDTH_MAX>(),
        }
    }

    fn solve_in<const W: usize>(&mut self) -> Option<i64> {
        let reduced = self.reduce::<W>()?;
        let mut potentials = Potentials { rows: [0; SIZE_MAX], columns: [[0; LANES]; W] };
        let mut more = 0;
        for row in 0..self.size {
            if self.column_of[row] == NONE {
                more += i64::from(self.augment(row, &mut potentials)?);
                // Otherwise the potentials could become too large.
                if more >= i64::from(FORBIDDEN) {
                    return None;
                }
            }
        }
        if more > 0 {
            for (line, &row) in self.lines_mut::<W>().iter_mut().zip(&potentials.rows) {
                for (costs, columns) in line.iter_mut().zip(&potentials.columns) {
                    *costs = minus(*costs, columns.map(|column| row + column));
                }
            }
        }
        Some(reduced + more)
    }

    /// Subtracts the minimum of each row, then of each column, and assigns entries of cost 0. Returns the sum of the
    /// subtracted costs.
    fn reduce<const W: usize>(&mut self) -> Option<i64> {
        let mut columns = [NOTHING; W];
        let mut taken = 0;
        let lines = self.costs.as_chunks_mut::<W>().0;
        for line in lines.iter_mut() {
            let least = least(line);
            if least >= FORBIDDEN {
                return None;
            }
            taken += i64::from(least);
            for (costs, columns) in line.iter_mut().zip(&mut columns) {
                *costs = minus(*costs, [least; LANES]);
                *columns = min(*costs, *columns);
            }
        }
        let in_use = &columns.as_flattened()[..self.size];
        if in_use.contains(&FORBIDDEN) {
            return None;
        }
        taken += in_use.iter().map(|&least| i64::from(least)).sum::<i64>();
        (self.row_of, self.column_of) = ([NONE; SIZE_MAX], [NONE; SIZE_MAX]);
        let mut assigned = 0;
        for (row, line) in lines.iter_mut().enumerate() {
            for (costs, columns) in line.iter_mut().zip(&columns) {
                *costs = minus(*costs, *columns);
            }
            let free = equal(line, 0) & !assigned;
            if free != 0 {
                let column = free.trailing_zeros();
                assigned |= 1 << column;
                (self.row_of[column as usize], self.column_of[row]) = (small(row), small(column as usize));
            }
        }
        Some(taken)
    }

    /// Assigns one more row, by the shortest path over rows that are assigned, and returns its length.
    fn augment<const W: usize>(&mut self, row: usize, potentials: &mut Potentials<W>) -> Option<i32> {
        let lines = self.lines::<W>();
        let mut distances = [[FAR; LANES]; W];
        let mut before = [[i32::from(NONE); LANES]; W];
        // A mask of all bits for the distances of these columns, which are final.
        let mut done = [[0; LANES]; W];
        let (mut here, mut reached, mut from) = (row, 0, NONE);
        let end = loop {
            let shift = reached - potentials.rows[here];
            let from_here = lines[here].iter().zip(&potentials.columns);
            for (((costs, columns), distances), before) in from_here.zip(&mut distances).zip(&mut before) {
                let (known, of_known) = (*distances, *before);
                let new: Block = array::from_fn(|lane| {
                    let distance = costs[lane] + shift - columns[lane];
                    if costs[lane] < FORBIDDEN { distance } else { FAR }
                });
                *before =
                    array::from_fn(
                        |lane| if new[lane] < known[lane] { i32::from(from) } else { of_known[lane] },
                    );
                *distances = min(new, known);
            }
            let mut open = distances;
            for (open, done) in open.iter_mut().zip(&done) {
                *open = array::from_fn(|lane| open[lane] | done[lane]);
            }
            reached = least(&open);
            if reached >= FORBIDDEN {
                return None;
            }
            let column = equal(&open, reached).trailing_zeros() as usize;
            done.as_flattened_mut()[column] = FAR;
            if self.row_of[column] == NONE {
                break column;
            }
            (here, from) = (self.row_of[column].into(), small(column));
        };
        if reached > 0 {
            potentials.rows[row] += reached;
            let (columns, done) = (potentials.columns.as_flattened_mut(), done.as_flattened());
            for (column, &distance) in distances.as_flattened().iter().enumerate() {
                if done[column] != 0 && column != end {
                    let slack = reached - distance;
                    columns[column] -= slack;
                    potentials.rows[usize::from(self.row_of[column])] += slack;
                }
            }
        }
        let mut column = end;
        loop {
            let previous = before.as_flattened()[column];
            let is_first = previous == i32::from(NONE);
            let previous = usize::try_from(previous).unwrap_or(0);
            let taker = if is_first { row } else { self.row_of[previous].into() };
            (self.row_of[column], self.column_of[taker]) = (small(taker), small(column));
            if is_first {
                return Some(reached);
            }
            column = previous;
        }
    }
}

fn small(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(NONE)
}

//! Small assignment problems, of which very many are solved: in place, in one table, by shortest augmenting
//! paths from what is already cheapest (R. Jonker and A. Volgenant, 1987).

/// The cost of a choice that is not allowed, and of any that is as high.
pub(super) const FORBIDDEN: i32 = 1 << 29;

const NONE: usize = usize::MAX;

/// An assignment problem, and room to solve it.
#[derive(Debug, Default)]
pub(super) struct Table {
    size: usize,
    /// Row by row; once solved, the reduced costs, which are not negative.
    pub(super) costs: Vec<i32>,
    rows: Vec<i64>,
    columns: Vec<i64>,
    column_of: Vec<usize>,
    row_of: Vec<usize>,
    distances: Vec<i64>,
    before: Vec<usize>,
    done: Vec<bool>,
}

impl Table {
    /// Starts a problem of this size; its costs are then to be added row by row.
    pub(super) fn reset(&mut self, size: usize) {
        self.size = size;
        self.costs.clear();
        for potentials in [&mut self.rows, &mut self.columns] {
            potentials.clear();
            potentials.resize(size, 0);
        }
        for partners in [&mut self.column_of, &mut self.row_of] {
            partners.clear();
            partners.resize(size, NONE);
        }
        self.before.resize(size, NONE);
        self.distances.resize(size, 0);
        self.done.resize(size, false);
    }

    /// Returns the least cost, and leaves the reduced costs in the table. Returns `None` if nothing is
    /// allowed.
    pub(super) fn solve(&mut self) -> Option<i64> {
        self.reduce()?;
        for row in 0..self.size {
            if self.column_of[row] == NONE {
                self.augment(row)?;
            }
        }
        let total = self.rows.iter().sum::<i64>() + self.columns.iter().sum::<i64>();
        for (costs, row) in self.costs.chunks_exact_mut(self.size.max(1)).zip(&self.rows) {
            for (cost, column) in costs.iter_mut().zip(&self.columns) {
                if *cost < FORBIDDEN {
                    // What costs more than everything together is not allowed either.
                    *cost = i32::try_from(i64::from(*cost) - row - column)
                        .map_or(FORBIDDEN, |cost| cost.min(FORBIDDEN));
                }
            }
        }
        Some(total)
    }

    /// Takes the least cost of each row, then of each column, and assigns what costs no more.
    fn reduce(&mut self) -> Option<()> {
        let Self { size, costs, rows, columns, column_of, row_of, .. } = self;
        columns.fill(i64::MAX);
        for (costs, least) in costs.chunks_exact((*size).max(1)).zip(rows.iter_mut()) {
            let cost = costs.iter().copied().min().filter(|&cost| cost < FORBIDDEN)?;
            *least = i64::from(cost);
            for (&cost, least_here) in costs.iter().zip(columns.iter_mut()) {
                if cost < FORBIDDEN {
                    *least_here = (*least_here).min(i64::from(cost) - *least);
                }
            }
        }
        if columns.contains(&i64::MAX) {
            return None;
        }
        for (row, costs) in costs.chunks_exact((*size).max(1)).enumerate() {
            let tight = |&column: &usize| {
                row_of[column] == NONE && i64::from(costs[column]) == rows[row] + columns[column]
            };
            if let Some(column) = (0..*size).find(tight) {
                (column_of[row], row_of[column]) = (column, row);
            }
        }
        Some(())
    }

    /// Assigns one more row, by the shortest path over rows that are assigned.
    fn augment(&mut self, row: usize) -> Option<()> {
        let size = self.size;
        self.distances.fill(i64::MAX);
        self.done.fill(false);
        let (mut here, mut reached, mut from) = (row, 0, NONE);
        let end = loop {
            let costs = &self.costs[here * size..][..size];
            let shift = reached - self.rows[here];
            let (mut nearest, mut near) = (NONE, i64::MAX);
            for (column, &cost) in costs.iter().enumerate() {
                if self.done[column] {
                    continue;
                }
                if cost < FORBIDDEN {
                    let distance = shift + i64::from(cost) - self.columns[column];
                    if distance < self.distances[column] {
                        (self.distances[column], self.before[column]) = (distance, from);
                    }
                }
                if self.distances[column] < near {
                    (nearest, near) = (column, self.distances[column]);
                }
            }
            if nearest == NONE {
                return None;
            }
            (self.done[nearest], reached) = (true, near);
            if self.row_of[nearest] == NONE {
                break nearest;
            }
            (here, from) = (self.row_of[nearest], nearest);
        };
        self.rows[row] += reached;
        for column in (0..size).filter(|&column| self.done[column] && column != end) {
            let slack = reached - self.distances[column];
            self.columns[column] -= slack;
            self.rows[self.row_of[column]] += slack;
        }
        let mut column = end;
        loop {
            let previous = self.before[column];
            let taker = if previous == NONE { row } else { self.row_of[previous] };
            (self.row_of[column], self.column_of[taker]) = (taker, column);
            if previous == NONE {
                return Some(());
            }
            column = previous;
        }
    }
}

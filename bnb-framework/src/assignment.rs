//! The assignment problem: each row gets a column of its own, at the least total cost. Many problems use it
//! as their bound.
//!
//! It is solved by shortest augmenting paths with potentials, row after row (R. Jonker and A. Volgenant, A
//! shortest augmenting path algorithm for dense and sparse linear assignment problems, 1987), in n² steps for
//! each row. The potentials are as useful as the assignment: the reduced cost of a choice is a lower bound on
//! how much more any assignment costs that contains it.
//!
//! ```
//! use bnb_framework::assignment::Assignment;
//!
//! let costs = [[4, 1, 3], [2, 0, 5], [3, 2, 2]];
//! let mut assignment = Assignment::new(3);
//! let cost = assignment.solve(|row, column| costs[row][column]);
//! assert_eq!(cost, Some(5));
//! assert_eq!(assignment.columns(), [1, 0, 2]);
//! // Another column for the first row costs at least so much more.
//! assert_eq!(assignment.reduced(0, 0, costs[0][0]), 1);
//! ```

use serde::{Deserialize, Serialize};

/// The cost of a choice that is not allowed; anything as high or higher is forbidden, too. Allowed costs must
/// be far below, so that sums do not overflow.
pub const FORBIDDEN: i64 = i64::MAX / 4;

/// An assignment of rows to columns, with the potentials that prove it to be cheapest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The column of each row; `NONE` if it is unassigned.
    column_of: Vec<u32>,
    /// The row of each column, likewise.
    row_of: Vec<u32>,
    row_potentials: Vec<i64>,
    column_potentials: Vec<i64>,
}

const NONE: u32 = u32::MAX;

impl Assignment {
    /// Creates an assignment with this many rows and columns, none of which are assigned.
    pub fn new(size: usize) -> Self {
        let nobody = vec![NONE; size];
        Self {
            column_of: nobody.clone(),
            row_of: nobody,
            row_potentials: vec![0; size],
            column_potentials: vec![0; size],
        }
    }

    /// Assigns every row that has no column, and returns the total cost. Returns `None` if every assignment
    /// contains a [`FORBIDDEN`] cost.
    ///
    /// Costs may have changed since the last call only by an increase for choices that are not part of the
    /// assignment; if the cost of an assigned row has grown, call [`release`](Self::release) first.
    pub fn solve(&mut self, cost: impl Fn(usize, usize) -> i64) -> Option<i64> {
        for row in 0..self.column_of.len() {
            if self.column_of[row] == NONE {
                self.assign(row, &cost)?;
            }
        }
        let columns = self.column_of.iter().enumerate();
        Some(columns.map(|(row, &column)| cost(row, column as usize)).sum())
    }

    /// Takes away a row's column because its cost has grown, or is now forbidden. The next
    /// [`solve`](Self::solve) takes one step for each released row.
    pub fn release(&mut self, row: usize) {
        let column = std::mem::replace(&mut self.column_of[row], NONE);
        if column != NONE {
            self.row_of[column as usize] = NONE;
        }
    }

    /// Returns the column of each row.
    pub fn columns(&self) -> Vec<usize> {
        self.column_of.iter().map(|&column| column as usize).collect()
    }

    /// Returns the column of a row that has one.
    pub fn column(&self, row: usize) -> usize {
        self.column_of[row] as usize
    }

    /// Returns the reduced cost of a choice: any assignment that contains it costs at least this much more
    /// than the cheapest.
    pub fn reduced(&self, row: usize, column: usize, cost: i64) -> i64 {
        cost - self.row_potentials[row] - self.column_potentials[column]
    }

    /// Finds the cheapest way to give a row a column; rows in its way move to other columns.
    fn assign(&mut self, row: usize, cost: &impl Fn(usize, usize) -> i64) -> Option<()> {
        let size = self.column_of.len();
        let mut distances = vec![FORBIDDEN; size];
        let mut before = vec![NONE; size];
        let mut done = vec![false; size];
        let (mut here, mut reached) = (row, 0);
        let mut from = NONE;
        let end = loop {
            let mut nearest = None;
            for column in 0..size {
                if done[column] {
                    continue;
                }
                let price = cost(here, column);
                if price < FORBIDDEN {
                    let distance = reached + self.reduced(here, column, price);
                    if distance < distances[column] {
                        (distances[column], before[column]) = (distance, from);
                    }
                }
                if nearest.is_none_or(|nearest: usize| distances[column] < distances[nearest]) {
                    nearest = Some(column);
                }
            }
            let column = nearest.filter(|&column| distances[column] < FORBIDDEN)?;
            (done[column], reached) = (true, distances[column]);
            if self.row_of[column] == NONE {
                break column;
            }
            // The path continues through the row that has this column.
            (here, from) = (self.row_of[column] as usize, u32::try_from(column).unwrap_or(NONE));
        };
        self.row_potentials[row] += reached;
        for column in (0..size).filter(|&column| done[column] && column != end) {
            let slack = reached - distances[column];
            self.column_potentials[column] -= slack;
            self.row_potentials[self.row_of[column] as usize] += slack;
        }
        // Every row on the path moves one column on.
        let mut column = end;
        loop {
            let previous = before[column];
            let taker = if previous == NONE { row } else { self.row_of[previous as usize] as usize };
            self.row_of[column] = u32::try_from(taker).unwrap_or(NONE);
            self.column_of[taker] = u32::try_from(column).unwrap_or(NONE);
            if previous == NONE {
                return Some(());
            }
            column = previous as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cheapest(costs: &[Vec<i64>], row: usize, taken: u32) -> Option<i64> {
        if row == costs.len() {
            return Some(0);
        }
        let free =
            (0..costs.len()).filter(|&column| taken & (1 << column) == 0 && costs[row][column] < FORBIDDEN);
        free.filter_map(|column| Some(costs[row][column] + cheapest(costs, row + 1, taken | 1 << column)?))
            .min()
    }

    fn check(costs: &[Vec<i64>], assignment: &mut Assignment) -> Result<(), TestCaseError> {
        let cost = assignment.solve(|row, column| costs[row][column]);
        prop_assert_eq!(cost, cheapest(costs, 0, 0));
        if cost.is_some() {
            for (row, costs) in costs.iter().enumerate() {
                let chosen = assignment.column(row);
                prop_assert_eq!(assignment.reduced(row, chosen, costs[chosen]), 0);
                for (column, &cost) in costs.iter().enumerate() {
                    prop_assert!(assignment.reduced(row, column, cost) >= 0);
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_is_cheaper_and_the_potentials_prove_it(
            costs in (1_usize..6).prop_flat_map(|size| {
                let cost = prop_oneof![4 => -9_i64..30, 1 => Just(FORBIDDEN)];
                prop::collection::vec(prop::collection::vec(cost, size), size)
            }),
            raised: prop::sample::Index,
        ) {
            let mut assignment = Assignment::new(costs.len());
            check(&costs, &mut assignment)?;
            // Forbidding a choice later costs one more step.
            if assignment.columns().iter().all(|&column| column < costs.len()) {
                let row = raised.index(costs.len());
                let mut costs = costs;
                costs[row][assignment.column(row)] = FORBIDDEN;
                assignment.release(row);
                check(&costs, &mut assignment)?;
            }
        }
    }
}

//! The LU factorisation of a sparse matrix of square blocks, without pivoting (Tejedor 2013, section 5.5; the pattern
//! of the blocks is that of the Barcelona OpenMP Tasks Suite: A. Duran and others 2009).
//!
//! Updates fill blocks that are empty at first, so the calls depend on the existing blocks.

use dataflow_framework::{Array, Data, Failure, program, task};
use serde::{Deserialize, Serialize};

use crate::positive;

/// A square block.
pub type Block = Array<f64>;

/// The size of the matrix: `blocks` × `blocks` blocks of `size` × `size` numbers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of blocks in each direction.
    #[arg(long, default_value_t = 16, value_parser = positive)]
    pub blocks: usize,
    /// The number of rows and columns of a block.
    #[arg(long, default_value_t = 50, value_parser = positive)]
    pub size: usize,
}

/// Returns whether a block is empty at first.
pub fn is_empty(row: usize, column: usize) -> bool {
    if row.abs_diff(column) <= 1 {
        return false;
    }
    let sparse = (row < column && !row.is_multiple_of(3)) || (row > column && !column.is_multiple_of(3));
    sparse || row % 2 == 1 || column % 2 == 1
}

/// Makes a block with numbers that depend on its place. The matrix is diagonally dominant, so that no pivoting is
/// needed.
#[task]
pub fn block(size: usize, row: usize, column: usize) -> Block {
    let mut block = Array::filled([size, size], 0.0);
    for i in 0..size {
        for j in 0..size {
            let place = (row * size + i) * 31 + (column * size + j) * 17;
            block[[i, j]] = (place % 13) as f64 / 13.0 - 0.5;
        }
        if row == column {
            block[[i, i]] += 64.0;
        }
    }
    block
}

/// Factorises a block on the diagonal.
#[task]
pub fn lu0(diagonal: &mut Block) {
    let size = diagonal.shape()[0];
    for k in 0..size {
        for i in k + 1..size {
            diagonal[[i, k]] /= diagonal[[k, k]];
            for j in k + 1..size {
                diagonal[[i, j]] -= diagonal[[i, k]] * diagonal[[k, j]];
            }
        }
    }
}

/// Solves a block to the right of the diagonal.
#[task]
pub fn fwd(diagonal: &Block, right: &mut Block) {
    let size = diagonal.shape()[0];
    for k in 0..size {
        for i in k + 1..size {
            for j in 0..size {
                right[[i, j]] -= diagonal[[i, k]] * right[[k, j]];
            }
        }
    }
}

/// Solves a block below the diagonal.
#[task]
pub fn bdiv(diagonal: &Block, below: &mut Block) {
    let size = diagonal.shape()[0];
    for i in 0..size {
        for k in 0..size {
            below[[i, k]] /= diagonal[[k, k]];
            for j in k + 1..size {
                below[[i, j]] -= below[[i, k]] * diagonal[[k, j]];
            }
        }
    }
}

/// Updates a block by the solved blocks to its left and above it.
#[task]
pub fn bmod(left: &Block, above: &Block, inner: &mut Block) {
    let size = left.shape()[0];
    for i in 0..size {
        for k in 0..size {
            for j in 0..size {
                inner[[i, j]] -= left[[i, k]] * above[[k, j]];
            }
        }
    }
}

/// Does the same for a block that was empty.
#[task]
pub fn bmod_new(left: &Block, above: &Block) -> Block {
    let mut inner = Array::filled(left.shape(), 0.0);
    bmod::now(left, above, &mut inner);
    inner
}

/// A matrix of blocks, some of which are empty.
pub type Matrix = Vec<Vec<Option<Block>>>;

/// Factorises the matrix, and returns both factors in its place.
#[allow(clippy::needless_range_loop, reason = "as in the books")]
fn factorise(input: Input) -> Result<Matrix, Failure> {
    let Input { blocks, size } = input;
    let make = |row, column| (!is_empty(row, column)).then(|| block(size, row, column));
    let mut a: Vec<Vec<Option<Data<Block>>>> =
        (0..blocks).map(|row| (0..blocks).map(|column| make(row, column)).collect()).collect();
    for k in 0..blocks {
        let Some(pivot) = &mut a[k][k] else { unreachable!("no block on the diagonal is empty") };
        lu0(pivot);
        let pivot = pivot.clone();
        for right in a[k][k + 1..].iter_mut().flatten() {
            fwd(&pivot, right);
        }
        for i in k + 1..blocks {
            let Some(below) = &mut a[i][k] else { continue };
            bdiv(&pivot, below);
            let below = below.clone();
            for j in k + 1..blocks {
                let Some(above) = a[k][j].clone() else { continue };
                match &mut a[i][j] {
                    Some(inner) => bmod(&below, &above, inner),
                    empty => *empty = Some(bmod_new(&below, &above)),
                }
            }
        }
    }
    let read = |block: Option<Data<Block>>| block.map(|block| Ok((*block.get()?).clone())).transpose();
    a.into_iter().map(|row| row.into_iter().map(read).collect()).collect()
}

/// The blocks of the factors that are not empty.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    blocks: usize,
    /// The sum of their elements.
    sum: f64,
}

impl Factors {
    fn of(matrix: &Matrix) -> Self {
        let blocks = || matrix.iter().flatten().flatten();
        Self { blocks: blocks().count(), sum: blocks().flat_map(|block| block.iter()).sum() }
    }
}

/// Factorises a sparse matrix of blocks.
///
/// # Errors
/// If a call fails.
#[program(block, lu0, fwd, bdiv, bmod, bmod_new)]
pub fn sparse_lu(#[command(flatten)] input: Input) -> Result<Factors, Failure> {
    Ok(Factors::of(&factorise(input)?))
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Program as _, Workflow, WorkflowError};

    use super::{Factors, Input, block, factorise, is_empty, sparse_lu};

    #[test]
    fn product_of_factors_equals_matrix() -> Result<(), WorkflowError> {
        let input = Input { blocks: 7, size: 3 };
        let factors = Workflow::new(sparse_lu::tasks())?.workers(2).run(|| factorise(input))?;
        let number = |row: usize, column: usize| match &factors[row / 3][column / 3] {
            Some(block) => block[[row % 3, column % 3]],
            None => 0.0,
        };
        for row in 0..21 {
            for column in 0..21 {
                let below = |k: usize| if k == row { 1.0 } else { number(row, k) };
                let product: f64 = (0..=row.min(column)).map(|k| below(k) * number(k, column)).sum();
                let (block_row, block_column) = (row / 3, column / 3);
                let expected = if is_empty(block_row, block_column) {
                    0.0
                } else {
                    block::now(3, block_row, block_column)[[row % 3, column % 3]]
                };
                assert!(
                    (product - expected).abs() < 1e-9,
                    "{product} at {row}, {column}, and not {expected}"
                );
            }
        }
        Ok(())
    }

    #[test]
    fn result_is_the_same_in_all_modes() -> Result<(), WorkflowError> {
        let input = Input { blocks: 8, size: 2 };
        let expected = Workflow::new(sparse_lu::tasks())?.sequential().run(|| factorise(input))?;
        for workers in [1, 2, 8] {
            assert_eq!(
                Workflow::new(sparse_lu::tasks())?.workers(workers).run(|| factorise(input))?,
                expected
            );
        }
        Ok(())
    }

    #[test]
    fn nodes_within_process_give_same_result() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let input = Input { blocks: 12, size: 8 };
        let expected = Workflow::new(sparse_lu::tasks())?.sequential().run(|| factorise(input))?;
        let report = Main::<sparse_lu>::job((input,)).nodes(4).run()?;
        assert_eq!(Main::<sparse_lu>::returned(&report)?, Factors::of(&expected));
        Ok(())
    }

    /// The number of tasks that the thesis has for 64 × 64 blocks.
    #[test]
    fn large_matrix_makes_expected_number_of_calls() -> Result<(), WorkflowError> {
        let input = Input { blocks: 64, size: 1 };
        let (_, figures) =
            Workflow::new(sparse_lu::tasks())?.workers(2).run_with_stats(|| factorise(input))?;
        assert_eq!(figures.calls, 24_510);
        assert_eq!(figures.dependencies, 68_158);
        assert_eq!(figures.depth, 191);
        Ok(())
    }
}

//! The product of two matrices of square blocks (Tejedor 2013, section 5.5).
//!
//! Each block of the product is a chain of updates; the chains do not depend on each other.

use std::{thread, time::Duration};

use dataflow_framework::{Array, Data, Failure, program, task};
use serde::{Deserialize, Serialize};

/// A square block.
pub type Block = Array<f64>;

/// The size of the matrices: `blocks` × `blocks` blocks of `size` × `size` numbers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of blocks in each direction.
    #[arg(long, default_value_t = 8)]
    pub blocks: usize,
    /// The number of rows and columns of a block.
    #[arg(long, default_value_t = 100)]
    pub size: usize,
    /// The time for which each multiplication waits, in milliseconds, as if it took as long.
    #[arg(long, default_value_t = 0)]
    pub wait_ms: u64,
}

/// Makes a block of numbers that depend on their place.
#[task]
pub fn block(size: usize, row: usize, column: usize, factor: f64) -> Block {
    let mut block = Array::filled([size, size], 0.0);
    for i in 0..size {
        for j in 0..size {
            block[[i, j]] = factor * ((row * size + i) as f64 - 0.5 * (column * size + j) as f64);
        }
    }
    block
}

/// Makes a block of zeros.
#[task]
pub fn zeros(size: usize) -> Block {
    Array::filled([size, size], 0.0)
}

/// Adds the product of two blocks to a third one.
#[task]
pub fn multiply(a: &Block, b: &Block, c: &mut Block, wait_ms: u64) {
    thread::sleep(Duration::from_millis(wait_ms));
    for i in 0..a.shape()[0] {
        for (k, factor) in a.row(i).iter().enumerate() {
            for (to, from) in c.row_mut(i).iter_mut().zip(b.row(k)) {
                *to += factor * from;
            }
        }
    }
}

/// The sums of the elements of the product: of all, and of each block, row by row.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    sum: f64,
    /// The sums of the blocks.
    pub blocks: Vec<f64>,
}

/// Multiplies two matrices of blocks.
///
/// # Errors
/// If a call fails.
#[program(block, zeros, multiply)]
pub fn matmul(#[command(flatten)] input: Input) -> Result<Sums, Failure> {
    let Input { blocks, size, wait_ms } = input;
    let matrix = |make: &dyn Fn(usize, usize) -> Data<Block>| -> Vec<Vec<Data<Block>>> {
        (0..blocks).map(|row| (0..blocks).map(|column| make(row, column)).collect()).collect()
    };
    let a = matrix(&|row, column| block(size, row, column, 1.0));
    let b = matrix(&|row, column| block(size, row, column, -0.25));
    let mut c = matrix(&|_, _| zeros(size));
    for i in 0..blocks {
        for j in 0..blocks {
            for k in 0..blocks {
                multiply(&a[i][k], &b[k][j], &mut c[i][j], wait_ms);
            }
        }
    }
    let sums = c.into_iter().flatten().map(|block| Ok(block.get()?.iter().sum::<f64>()));
    let blocks = sums.collect::<Result<Vec<_>, Failure>>()?;
    Ok(Sums { sum: blocks.iter().sum(), blocks })
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Program as _, Workflow, WorkflowError};

    use super::{Input, block, matmul};

    #[test]
    fn product_equals_that_of_loops() -> Result<(), WorkflowError> {
        let input = Input { blocks: 3, size: 4, wait_ms: 0 };
        let (sums, figures) = Workflow::new(matmul::tasks())?.workers(2).run_with_stats(|| matmul(input))?;
        assert_eq!(figures.calls, 27 + 3 * 9);
        assert_eq!(figures.dependencies, 3 * 27);
        assert_eq!(figures.depth, 4);
        // One large block each.
        let (a, b) = (block::now(12, 0, 0, 1.0), block::now(12, 0, 0, -0.25));
        for (number, sum) in sums.blocks.iter().enumerate() {
            let mut expected = 0.0;
            for i in 0..4 {
                for j in 0..4 {
                    let (row, column) = (number / 3 * 4 + i, number % 3 * 4 + j);
                    expected += (0..12).map(|k| a[[row, k]] * b[[k, column]]).sum::<f64>();
                }
            }
            // Exact: the elements are small multiples of an eighth.
            assert_eq!(sum.to_bits(), expected.to_bits(), "block {number}: {sum} and {expected}");
        }
        Ok(())
    }

    #[test]
    fn result_is_the_same_in_all_modes() -> Result<(), WorkflowError> {
        let input = Input { blocks: 4, size: 3, wait_ms: 0 };
        let expected = Workflow::new(matmul::tasks())?.sequential().run(|| matmul(input))?;
        for workers in [1, 2, 8] {
            assert_eq!(Workflow::new(matmul::tasks())?.workers(workers).run(|| matmul(input))?, expected);
        }
        Ok(())
    }

    #[test]
    fn nodes_within_process_give_same_result() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let input = Input { blocks: 5, size: 6, wait_ms: 1 };
        let expected = Workflow::new(matmul::tasks())?.sequential().run(|| matmul(input))?;
        for nodes in [1, 2, 4] {
            let report = Main::<matmul>::job((input,)).nodes(nodes).run()?;
            assert_eq!(Main::<matmul>::returned(&report)?, expected, "on {nodes} nodes");
        }
        Ok(())
    }

    /// The figures of the program with 64 × 64 blocks.
    #[test]
    fn large_product_makes_expected_number_of_calls() -> Result<(), WorkflowError> {
        let input = Input { blocks: 64, size: 1, wait_ms: 0 };
        let (_, figures) = Workflow::new(matmul::tasks())?.workers(2).run_with_stats(|| matmul(input))?;
        assert_eq!(figures.calls, 262_144 + 12_288);
        assert_eq!(figures.dependencies, 786_432);
        assert_eq!(figures.depth, 65);
        Ok(())
    }
}

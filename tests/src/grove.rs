//! A workflow for scenarios, of tasks that call tasks: trees whose branches wait for their sub-branches. The
//! leaves wait at a gate, so that a test can inject faults into a job that cannot end in the meantime.

use std::error::Error;

use dataflow_framework::{Data, Failure, program, task};

use crate::gate::Gate;

/// The number of trees.
const TREES: u64 = 3;

#[task]
fn leaf(number: u64, gate: Option<Gate>) -> Result<u64, Box<dyn Error + Send + Sync>> {
    if let Some(gate) = &gate {
        gate.pass(number)?;
    }
    Ok(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[task]
fn join(left: &u64, right: &u64) -> u64 {
    left.rotate_left(7) ^ right
}

/// Forwards the sum of its branches, after waiting for the first of them.
#[task]
fn branch(first: u64, height: u32, gate: Option<Gate>) -> Result<Data<u64>, Failure> {
    if height == 0 {
        return Ok(leaf(first, gate));
    }
    let left = branch(first, height - 1, gate.clone());
    let right = branch(first + (1 << (height - 1)), height - 1, gate);
    let mark = Data::new(*left.get()? % 2);
    Ok(join(&join(&left, &mark), &right))
}

/// Runs when all trees are done.
#[task]
fn last(all: &u64, number: u64, gate: Option<Gate>) -> Result<u64, Box<dyn Error + Send + Sync>> {
    leaf::now(number, gate).map(|leaf| leaf ^ all)
}

/// Runs trees of tasks that call tasks.
///
/// # Errors
/// If a call fails.
#[program(leaf, join, branch, last)]
pub fn grove(
    /// The number of levels at which each tree branches.
    #[arg(default = 4, value_parser = clap::value_parser!(u32).range(..=20))]
    height: u32,
    /// A file with the number of leaves of each tree that may run, and one more for the end; by default all.
    #[arg(long, value_name = "FILE")]
    gate: Option<Gate>,
) -> Result<Vec<u64>, Failure> {
    // So that a completed call exists.
    let begun = leaf(0, None);
    let trees: Vec<_> = (0..TREES).map(|_| branch(0, height, gate.clone())).collect();
    let all = trees.iter().fold(begun, |all, tree| join(&all, tree));
    let last = last(&all, 1 << height, gate.clone());
    trees.iter().chain([&last]).map(|data| Ok(*data.get()?)).collect()
}

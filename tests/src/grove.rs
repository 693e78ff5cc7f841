//! A workflow for scenarios, of tasks that call tasks: trees whose branches wait for their sub-branches. The
//! leaves wait at a gate, so that a test can inject faults into a job that cannot end in the meantime.

use std::error::Error;

use dataflow_framework::{
    Data, Program, TaskDef,
    cli::{Command, Failure, Shown},
    task, tasks,
};
use serde::{Deserialize, Serialize};

use crate::gate::Gate;

/// The size of the trees, and their gate.
#[derive(Debug, Clone, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of levels at which each tree branches.
    #[arg(long, default_value_t = 4)]
    pub height: u32,
    /// A file with the number of leaves of each tree that may run, and one more for the end; by default all.
    #[arg(long, value_name = "FILE")]
    pub gate: Option<Gate>,
}

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
fn branch(first: u64, height: u32, gate: Option<Gate>) -> Result<Data<u64>, dataflow_framework::Failure> {
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

/// The program `grove`.
#[derive(Debug)]
pub struct Grove;

impl Program for Grove {
    type Arguments = Input;
    type Output = Vec<u64>;

    fn tasks() -> Vec<&'static TaskDef> {
        tasks![leaf, join, branch, last].to_vec()
    }

    fn run(Input { height, gate }: &Input) -> Result<Vec<u64>, Box<dyn Error + Send + Sync>> {
        // So that a completed call exists.
        let begun = leaf(0, None);
        let trees: Vec<_> = (0..TREES).map(|_| branch(0, *height, gate.clone())).collect();
        let all = trees.iter().fold(begun, |all, tree| join(&all, tree));
        let last = last(&all, 1 << height, gate.clone());
        trees.iter().chain([&last]).map(|data| Ok(*data.get()?)).collect()
    }
}

impl Command for Grove {
    const NAME: &'static str = "grove";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Runs trees of tasks that call tasks";
    type Options = Input;

    fn arguments(input: Input) -> Result<Input, Failure> {
        if input.height > 20 {
            return Err(Failure::usage("a tree branches at most 20 times"));
        }
        Ok(input)
    }

    fn show(trees: Vec<u64>) -> Shown {
        Shown::done(format!("{trees:x?}"), trees)
    }
}

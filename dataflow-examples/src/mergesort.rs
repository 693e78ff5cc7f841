//! Merge sort: a list is split in two again and again, and the sorted parts are merged (Tejedor 2013, section 4.5.2).
//!
//! The program is recursive, and waits for nothing before its end: where a list is split does not depend on what is in
//! it. The recursion is that of the program, not of a task: calls that a task makes are run at once where it runs.

use std::error::Error;

use dataflow_framework::{
    Array, Data, Program, TaskDef,
    cli::{Command, Failure, Shown},
    task, tasks,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A list.
pub type List = Array<u64>;

/// What is sorted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The length of the list.
    #[arg(long, default_value_t = 1_000_000)]
    pub length: usize,
    /// How often it is split, at most 20: there are two, four, eight and so on parts.
    #[arg(long, default_value_t = 4)]
    pub splits: u32,
}

fn list(elements: Vec<u64>) -> List {
    Array::from_elements([elements.len()], elements)
}

/// Makes a list in no order.
#[task]
pub fn numbers(length: usize) -> List {
    let mut random = StdRng::seed_from_u64(1);
    list((0..length).map(|_| random.random()).collect())
}

/// Splits a list into halves.
#[task]
pub fn split(whole: &List) -> (List, List) {
    let (left, right) = whole.split_at(whole.len() / 2);
    (list(left.to_vec()), list(right.to_vec()))
}

/// Sorts a list.
#[task]
pub fn sort(part: &mut List) {
    part.sort_unstable();
}

/// Merges two sorted lists.
#[task]
pub fn merge(left: &List, right: &List) -> List {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut rest: &[u64] = right;
    for element in left.iter() {
        let (smaller, others) = rest.split_at(rest.partition_point(|other| other < element));
        merged.extend_from_slice(smaller);
        merged.push(*element);
        rest = others;
    }
    merged.extend_from_slice(rest);
    list(merged)
}

/// Returns the tasks of the program.
pub fn tasks() -> Vec<&'static TaskDef> {
    tasks![numbers, split, sort, merge].to_vec()
}

/// Sorts a list that is split so often.
fn sorted(mut whole: Data<List>, splits: u32) -> Data<List> {
    if splits == 0 {
        sort(&mut whole);
        return whole;
    }
    let (left, right) = split(&whole);
    // Nobody else reads it.
    drop(whole);
    merge(&sorted(left, splits - 1), &sorted(right, splits - 1))
}

/// Returns the sorted list.
///
/// # Errors
/// If a call fails.
pub fn program(input: Input) -> Result<List, dataflow_framework::Failure> {
    let sorted = sorted(numbers(input.length), input.splits);
    let list = (*sorted.get()?).clone();
    Ok(list)
}

/// The program `mergesort`.
#[derive(Debug)]
pub struct Mergesort;

impl Program for Mergesort {
    type Arguments = Input;
    type Output = List;

    fn tasks() -> Vec<&'static TaskDef> {
        tasks()
    }

    fn run(input: &Input) -> Result<List, Box<dyn Error + Send + Sync>> {
        Ok(program(*input)?)
    }
}

impl Command for Mergesort {
    const NAME: &'static str = "mergesort";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Sorts a list";
    type Options = Input;

    fn arguments(input: Input) -> Result<Input, Failure> {
        if input.splits > 20 {
            return Err(Failure::usage("a list is split at most 20 times, into 1,048,576 parts"));
        }
        Ok(input)
    }

    fn show(list: List) -> Shown {
        let (first, last) = (list.first(), list.last());
        let text = match (first, last) {
            (Some(first), Some(last)) => format!("{} numbers, from {first} to {last}", list.len()),
            _ => "no numbers".to_owned(),
        };
        Shown::done(text, json!({ "length": list.len(), "first": first, "last": last }))
    }
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Workflow, WorkflowError};

    use super::{Input, Mergesort, list, merge, numbers, program, tasks};

    #[test]
    fn all_ways_to_run_it_give_what_the_standard_library_gives()
    -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        for (length, splits) in [(1000, 3), (7, 4), (0, 2), (5, 0)] {
            let input = Input { length, splits };
            let mut expected = numbers::now(length);
            expected.sort_unstable();
            assert_eq!(Workflow::new(tasks())?.sequential().run(|| program(input))?, expected);
            for workers in [1, 4] {
                assert_eq!(Workflow::new(tasks())?.workers(workers).run(|| program(input))?, expected);
            }
            let report = Main::<Mergesort>::job(input).nodes(2).run()?;
            assert_eq!(Main::<Mergesort>::returned(&report)?, expected);
        }
        Ok(())
    }

    #[test]
    fn equal_elements_are_all_merged() {
        let merged = merge::now(&list(vec![1, 1, 3, 5]), &list(vec![0, 1, 3, 3, 9]));
        assert_eq!(*merged, [0, 1, 1, 1, 3, 3, 3, 5, 9]);
    }

    /// A list of 2^n parts is split and merged 2^n - 1 times.
    #[test]
    fn there_are_as_many_calls_as_there_should_be() -> Result<(), WorkflowError> {
        let input = Input { length: 1 << 10, splits: 10 };
        let (_, figures) = Workflow::new(tasks())?.workers(2).measured(|| program(input))?;
        assert_eq!(figures.calls, 1 + 1023 + 1024 + 1023);
        assert_eq!(figures.dependencies, 1023 + 1024 + 2 * 1023);
        assert_eq!(figures.depth, 1 + 10 + 1 + 10);
        Ok(())
    }
}

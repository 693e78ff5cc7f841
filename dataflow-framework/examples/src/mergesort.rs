//! Merge sort: a list is split in two repeatedly, and the sorted parts are merged (Tejedor 2013, section 4.5.2).
//!
//! A task recurses: it splits its list in place, calls itself for both halves, and forwards the output of
//! their merge. So no task waits, and the program makes two calls, regardless of the length of the list.

use std::{error::Error, process::ExitCode};

use dataflow_framework::{
    Array, Data, Program, TaskDef,
    cli::{self, Command, Failure, Shown},
    task, tasks,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A list.
pub type List = Array<u64>;

/// The size of the input.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The length of the list.
    #[arg(long, default_value_t = 1_000_000)]
    pub length: usize,
    /// The number of splits, at most 20: there are two, four, eight and so on parts.
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

/// Sorts a list that is split so often.
#[task]
pub fn sorted(whole: &List, splits: u32) -> Data<List> {
    if splits == 0 {
        let mut elements = whole.to_vec();
        elements.sort_unstable();
        return Data::new(list(elements));
    }
    let (left, right) = whole.split_at(whole.len() / 2);
    let [left, right] = [left, right].map(|half| sorted(&Data::new(list(half.to_vec())), splits - 1));
    merge(&left, &right)
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
    tasks![numbers, sorted, merge].to_vec()
}

/// Returns the sorted list.
///
/// # Errors
/// If a call fails.
pub fn program(input: Input) -> Result<List, dataflow_framework::Failure> {
    let sorted = sorted(&numbers(input.length), input.splits);
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

/// Runs the program `mergesort`.
pub fn main() -> ExitCode {
    cli::main::<Mergesort>()
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Workflow, WorkflowError};

    use super::{Input, Mergesort, list, merge, numbers, program, tasks};

    #[test]
    fn result_equals_standard_library_in_all_modes() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
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
    fn equal_elements_are_kept_by_merge() {
        let merged = merge::now(&list(vec![1, 1, 3, 5]), &list(vec![0, 1, 3, 3, 9]));
        assert_eq!(*merged, [0, 1, 1, 1, 3, 3, 3, 5, 9]);
    }

    /// There are 2^n parts, so 2^(n + 1) - 1 lists are sorted, and 2^n - 1 times two are merged.
    #[test]
    fn program_makes_expected_number_of_calls() -> Result<(), WorkflowError> {
        let input = Input { length: 1 << 10, splits: 10 };
        let (_, figures) = Workflow::new(tasks())?.workers(2).run_with_stats(|| program(input))?;
        assert_eq!(figures.calls, 1 + 2047 + 1023);
        assert_eq!(figures.dependencies, 2047 + 2 * 1023);
        assert_eq!(figures.depth, 1 + 10 + 1 + 10);
        Ok(())
    }
}

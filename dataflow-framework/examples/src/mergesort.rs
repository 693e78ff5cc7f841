//! Merge sort: a list is split in two repeatedly, and the sorted parts are merged (Tejedor 2013, section 4.5.2).
//!
//! A task recurses: it splits its list in place, calls itself for both halves, and forwards the output of
//! their merge. So no task waits, and the program makes two calls, regardless of the length of the list.

use dataflow_framework::{Array, Data, Failure, program, task};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// A list.
pub type List = Array<u64>;

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

fn sort(length: usize, splits: u32) -> Result<List, Failure> {
    let sorted = sorted(&numbers(length), splits);
    let list = (*sorted.get()?).clone();
    Ok(list)
}

/// The ends of a sorted list.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    length: usize,
    first: Option<u64>,
    last: Option<u64>,
}

impl Summary {
    fn of(list: &List) -> Self {
        Self { length: list.len(), first: list.first().copied(), last: list.last().copied() }
    }
}

/// Sorts a list.
///
/// # Errors
/// If a call fails.
#[program(numbers, sorted, merge)]
pub fn mergesort(
    /// The length of the list.
    #[arg(default = 1_000_000)]
    length: usize,
    /// The number of splits, at most 20: there are two, four, eight and so on parts.
    #[arg(default = 4, value_parser = clap::value_parser!(u32).range(..=20))]
    splits: u32,
) -> Result<Summary, Failure> {
    Ok(Summary::of(&sort(length, splits)?))
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Program as _, Workflow, WorkflowError};

    use super::{Summary, list, merge, mergesort, numbers, sort};

    #[test]
    fn result_equals_standard_library_in_all_modes() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        for (length, splits) in [(1000, 3), (7, 4), (0, 2), (5, 0)] {
            let tasks = mergesort::tasks;
            let mut expected = numbers::now(length);
            expected.sort_unstable();
            assert_eq!(Workflow::new(tasks())?.sequential().run(|| sort(length, splits))?, expected);
            for workers in [1, 4] {
                assert_eq!(Workflow::new(tasks())?.workers(workers).run(|| sort(length, splits))?, expected);
            }
            let report = Main::<mergesort>::job((length, splits)).nodes(2).run()?;
            assert_eq!(Main::<mergesort>::returned(&report)?, Summary::of(&expected));
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
        let workflow = Workflow::new(mergesort::tasks())?.workers(2);
        let (_, figures) = workflow.run_with_stats(|| sort(1 << 10, 10))?;
        assert_eq!(figures.calls, 1 + 2047 + 1023);
        assert_eq!(figures.dependencies, 2047 + 2 * 1023);
        assert_eq!(figures.depth, 1 + 10 + 1 + 10);
        Ok(())
    }
}

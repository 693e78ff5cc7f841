//! Reductions in any order, in every mode of execution.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{Data, Failure, Main, Program, TaskDef, Workflow, reduce, task, tasks};

/// The limit of a wait, longer than any test takes.
const LONG: Duration = Duration::from_secs(120);

fn table() -> Vec<&'static TaskDef> {
    tasks![part, late, add, add_and_count, add_or_fail, join, added_by_a_task, both].to_vec()
}

fn workflow(workers: usize) -> Workflow {
    let workflow = Workflow::new(table()).expect("no two tasks have one name");
    if workers == 0 { workflow.sequential() } else { workflow.workers(workers) }
}

/// The number of additions that have run for a test.
static ADDED: Mutex<u64> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

#[task]
fn part(number: u64) -> u64 {
    number
}

/// Returns a part once this number of additions has run.
#[task]
fn late(number: u64, additions: u64) -> Result<u64, String> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = CHANGED.wait_timeout_while(added, LONG, |added| *added < additions);
    let (added, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    drop(added);
    if timeout.timed_out() { Err("the other parts were not added".to_owned()) } else { Ok(number) }
}

#[task]
fn add(sum: &mut u64, other: &u64) {
    *sum += other;
}

#[task]
fn add_and_count(sum: &mut u64, other: &u64) {
    *sum += other;
    *ADDED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    CHANGED.notify_all();
}

#[task]
fn add_or_fail(sum: &mut u64, other: &u64, most: u64) -> Result<(), String> {
    *sum += other;
    if *sum > most { Err(format!("{sum} is too much")) } else { Ok(()) }
}

#[task]
fn join(text: &mut String, other: &String) {
    text.push_str(other);
}

#[task]
fn both(sum: &mut u64, other: &u64) -> u64 {
    *sum += other;
    *sum
}

#[task]
fn added_by_a_task(upto: u64) -> Data<u64> {
    reduce((1..=upto).map(part), add).any_order().expect("there are some")
}

#[test]
fn any_order_reduction_merges_each_part_once() {
    for workers in [0, 1, 2, 5] {
        for number in [1, 2, 3, 4, 7, 64, 100] {
            let program = || {
                let parts: Vec<_> = (1..=number).map(part).collect();
                let kept = parts[0].clone();
                let sum = reduce(parts, add).any_order().expect("there are some");
                Ok::<_, Failure>((*sum.get()?, *kept.get()?))
            };
            let (sum, figures) = workflow(workers).measured(program).expect("it succeeds");
            assert_eq!(sum, (number * (number + 1) / 2, 1), "{number} parts on {workers} workers");
            assert_eq!(figures.calls, 2 * number - 1);
        }
    }
    let none = workflow(1)
        .run(|| Ok::<_, Failure>(reduce(Vec::<Data<u64>>::new(), add).any_order().data().is_none()));
    assert!(none.expect("it succeeds"));
}

#[test]
fn any_order_late_part_delays_only_last_merge() {
    let sum = workflow(2).run(|| {
        // In a fixed tree, the late part would delay other additions.
        let parts = [late(1000, 14)].into_iter().chain((0..15).map(part));
        let sum = reduce(parts.collect::<Vec<_>>(), add_and_count).any_order().expect("there are some");
        sum.get().map(|sum| *sum)
    });
    assert_eq!(sum.expect("the late part is made"), 1000 + 105);
}

#[test]
fn any_order_sequential_run_merges_in_list_order() {
    let texts = || "abcdefg".chars().map(|letter| Data::new(letter.to_string()));
    let text = workflow(0).run(|| {
        let text = reduce(texts(), join).any_order().expect("there are some");
        text.get().map(|text| text.clone())
    });
    assert_eq!(text.expect("it succeeds"), "abcdefg");
    // With threads, the order may differ, but each letter occurs once.
    let text = workflow(3).run(|| {
        let text = reduce(texts(), join).any_order().expect("there are some");
        text.get().map(|text| text.clone())
    });
    let mut letters: Vec<_> = text.expect("it succeeds").chars().collect();
    letters.sort_unstable();
    assert!(letters.into_iter().eq("abcdefg".chars()));
}

#[test]
fn any_order_parts_beyond_window_are_merged() {
    let sum = workflow(2).calls_ahead_max(1).run(|| {
        let parts: Vec<_> = (1..=50).map(part).collect();
        reduce(parts, add).any_order().expect("there are some").get().map(|sum| *sum)
    });
    assert_eq!(sum.expect("it succeeds"), 1275);
}

#[test]
fn any_order_failed_merge_fails_result() {
    for workers in [0, 1, 3] {
        let ended = workflow(workers).run(|| {
            let parts: Vec<_> = (1..=10).map(part).collect();
            let merge = |sum: &mut _, other: &_| add_or_fail(sum, other, 54);
            let sum = reduce(parts, merge).any_order().expect("there are some");
            Ok::<_, Failure>(sum.get().expect_err("the last one fails").reason().to_owned())
        });
        assert_eq!(ended.expect("the program handles the failure"), "55 is too much");
    }
}

#[test]
fn any_order_unsuitable_merge_is_refused() {
    let returns_more: fn(&mut Data<u64>, &Data<u64>) = |sum, other| drop(both(sum, other));
    let updates_another: fn(&mut Data<u64>, &Data<u64>) = |sum, other| {
        let mut another = other.clone();
        add(&mut another, sum);
    };
    for merge in [returns_more, updates_another] {
        let ended = workflow(2).run(|| {
            let parts: Vec<_> = (1..=3).map(part).collect();
            reduce(parts, merge).any_order().expect("there are some").get().map(|sum| *sum)
        });
        let reason = ended.expect_err("it is refused").to_string();
        assert!(reason.contains("merges by one call that updates its first argument"), "{reason}");
    }
}

#[test]
fn any_order_merge_waiting_for_its_sum_completes() {
    for workers in [0, 2] {
        let sum = workflow(workers).run(|| {
            let merge = |sum: &mut Data<u64>, other: &Data<u64>| {
                add(sum, other);
                sum.get().expect("it can be added");
            };
            let parts: Vec<_> = (1..=20).map(part).collect();
            reduce(parts, merge).any_order().expect("there are some").get().map(|sum| *sum)
        });
        assert_eq!(sum.expect("the program completes"), 210);
    }
}

/// A program with one reduction of its own and one in a task.
struct Sums;

impl Program for Sums {
    type Arguments = u64;
    type Output = [u64; 2];

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(upto: &u64) -> Result<[u64; 2], Box<dyn std::error::Error + Send + Sync>> {
        let nested = added_by_a_task(*upto);
        let sum = reduce((1..=*upto).map(part), add).any_order().expect("there are some");
        Ok([*sum.get()?, *nested.get()?])
    }
}

#[test]
fn any_order_several_nodes_reach_same_sum() {
    let report = Main::<Sums>::job(40).nodes(3).run().expect("it runs");
    assert_eq!(Main::<Sums>::returned(&report).expect("it succeeds"), [820, 820]);
}

//! Reductions in any order and commuting updates, in every mode of execution.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{Data, Failure, Main, Program, TaskDef, Workflow, commute, reduce, task, tasks};

/// The limit of a wait, longer than any test takes.
const LONG: Duration = Duration::from_secs(120);

fn table() -> Vec<&'static TaskDef> {
    tasks![
        part,
        late,
        add,
        add_and_count,
        add_or_fail,
        join,
        added_by_a_task,
        both,
        count,
        add_even,
        append,
        effect,
        sum_of
    ]
    .to_vec()
}

fn workflow(workers: usize) -> Workflow {
    let workflow = Workflow::new(table()).expect("no two tasks have one name");
    if workers == 0 { workflow.sequential() } else { workflow.workers(workers) }
}

/// The numbers of additions that have run, for the test of reductions and for the test of updates.
static ADDED: Mutex<[u64; 2]> = Mutex::new([0; 2]);
static CHANGED: Condvar = Condvar::new();
const REDUCED: usize = 0;
const UPDATED: usize = 1;

fn count_addition(test: usize) {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner)[test] += 1;
    CHANGED.notify_all();
}

#[task]
fn part(number: u64) -> u64 {
    number
}

/// Returns a part once this number of additions has run.
#[task]
fn late(number: u64, test: usize, additions: u64) -> Result<u64, String> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = CHANGED.wait_timeout_while(added, LONG, |added| added[test] < additions);
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
    count_addition(REDUCED);
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

/// Adds a multiple, with the updated argument last.
#[task]
fn count(other: &u64, times: u64, sum: &mut u64) {
    *sum += other * times;
    count_addition(UPDATED);
}

#[task]
fn add_even(sum: &mut u64, other: &u64) -> Result<(), String> {
    *sum += other;
    if other.is_multiple_of(2) { Ok(()) } else { Err(format!("{other} is odd")) }
}

#[task]
fn append(text: &mut String, letter: char) {
    text.push(letter);
}

#[task(effect)]
fn effect(sum: &mut u64, other: &u64) {
    *sum += other;
}

#[task]
fn sum_of(upto: u64) -> Data<u64> {
    let mut sum = Data::new(0);
    for number in 1..=upto {
        add(commute(&mut sum), &part(number));
    }
    sum
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
            let (sum, figures) = workflow(workers).run_with_stats(program).expect("it succeeds");
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
        let parts = [late(1000, REDUCED, 14)].into_iter().chain((0..15).map(part));
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

#[test]
fn commuting_updates_run_once_and_reads_see_earlier_ones() {
    for workers in [0, 1, 2, 5] {
        let program = || {
            let mut sum = Data::new(0);
            let mut seen = Vec::new();
            for number in 1..=60 {
                match number % 3 {
                    0 => count(&part(number), 2, commute(&mut sum)),
                    _ => add(commute(&mut sum), &part(number)),
                }
                if number % 20 == 0 {
                    seen.push(sum.clone());
                }
                if number == 50 {
                    // An ordinary update runs after all earlier ones and before all later ones.
                    add(&mut sum, &part(1000));
                }
            }
            seen.iter().map(|sum| Ok(*sum.get()?)).collect::<Result<Vec<_>, Failure>>()
        };
        let expected = |upto: u64| {
            let sum: u64 = (1..=upto).map(|number| if number % 3 == 0 { 2 * number } else { number }).sum();
            sum + if upto > 50 { 1000 } else { 0 }
        };
        let seen = workflow(workers).run(program).expect("it succeeds");
        assert_eq!(seen, [20, 40, 60].map(expected), "on {workers} workers");
    }
}

#[test]
fn commuting_late_input_delays_only_its_update() {
    let sum = workflow(2).run(|| {
        let mut sum = Data::new(0);
        count(&late(1000, UPDATED, 15), 1, commute(&mut sum));
        for number in 0..15 {
            count(&part(number), 1, commute(&mut sum));
        }
        sum.get().map(|sum| *sum)
    });
    assert_eq!(sum.expect("the late part is made"), 1105);
}

#[test]
fn commuting_sequential_run_updates_in_call_order() {
    let text = workflow(0).run(|| {
        let mut text = Data::new(String::new());
        for letter in "abcdefg".chars() {
            append(commute(&mut text), letter);
        }
        text.get().map(|text| text.clone())
    });
    assert_eq!(text.expect("it succeeds"), "abcdefg");
}

#[test]
fn commuting_failed_update_fails_later_versions() {
    for workers in [0, 1, 3] {
        let ended = workflow(workers).run(|| {
            let mut sum = Data::new(0);
            for number in [2, 4, 7, 8] {
                add_even(commute(&mut sum), &part(number));
            }
            Ok::<_, Failure>(sum.get().expect_err("7 is odd").to_string())
        });
        let failure = ended.expect("the program handles the failure");
        assert!(failure.contains("`add_even`") && failure.ends_with("7 is odd"), "{failure}");
    }
}

#[test]
fn commuting_order_dependent_update_is_refused() {
    for workers in [0, 2] {
        for update in [
            |sum: &mut Data<u64>| drop(both(commute(sum), &part(1))),
            |sum: &mut Data<u64>| {
                effect(commute(sum), &part(1));
            },
        ] {
            let ended = workflow(workers).run(|| {
                let mut sum = Data::new(0);
                update(&mut sum);
                sum.get().map(|sum| *sum)
            });
            let reason = ended.expect_err("it is refused").to_string();
            assert!(reason.contains("updates one datum and returns nothing"), "{reason}");
        }
    }
}

/// A program with a reduction and updates of its own, and with the same in tasks.
struct Sums;

impl Program for Sums {
    type Arguments = u64;
    type Output = [u64; 4];

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(upto: &u64) -> Result<[u64; 4], Box<dyn std::error::Error + Send + Sync>> {
        let (reduced, updated) = (added_by_a_task(*upto), sum_of(*upto));
        let sum = reduce((1..=*upto).map(part), add).any_order().expect("there are some");
        let mut other = Data::new(0);
        for number in 1..=*upto {
            add(commute(&mut other), &part(number));
        }
        Ok([*sum.get()?, *reduced.get()?, *other.get()?, *updated.get()?])
    }
}

#[test]
fn free_order_sums_on_several_nodes_equal_local_ones() {
    let report = Main::<Sums>::job(40).nodes(3).run().expect("it runs");
    assert_eq!(Main::<Sums>::returned(&report).expect("it succeeds"), [820; 4]);
}

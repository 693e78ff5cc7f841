//! Commuting updates, in every mode of execution.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{Data, Failure, Main, Program, TaskDef, Workflow, commute, task, tasks};

/// The limit of a wait, longer than any test takes.
const LONG: Duration = Duration::from_secs(120);

fn table() -> Vec<&'static TaskDef> {
    tasks![part, late, add, count, add_even, append, both, effect, sum_of].to_vec()
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

/// Adds a multiple, with the updated argument last.
#[task]
fn count(other: &u64, times: u64, sum: &mut u64) {
    *sum += other * times;
    *ADDED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    CHANGED.notify_all();
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

#[task]
fn both(sum: &mut u64, other: &u64) -> u64 {
    *sum += other;
    *sum
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
        count(&late(1000, 15), 1, commute(&mut sum));
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

/// A program with commuting updates of its own and in a task.
struct Sums;

impl Program for Sums {
    type Arguments = u64;
    type Output = [u64; 2];

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(upto: &u64) -> Result<[u64; 2], Box<dyn std::error::Error + Send + Sync>> {
        let nested = sum_of(*upto);
        let mut sum = Data::new(0);
        for number in 1..=*upto {
            add(commute(&mut sum), &part(number));
        }
        Ok([*sum.get()?, *nested.get()?])
    }
}

#[test]
fn commuting_several_nodes_reach_same_sum() {
    let report = Main::<Sums>::job(40).nodes(3).run().expect("it runs");
    assert_eq!(Main::<Sums>::returned(&report).expect("it succeeds"), [820, 820]);
}

//! Groups that are cancelled when one of their calls fails.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{Data, Main, OnFailure, Program, TaskDef, Workflow, barrier, group, task, tasks};

fn table() -> Vec<&'static TaskDef> {
    tasks![check, plain, wait_for, count, checks].to_vec()
}

fn workflow(workers: usize) -> Workflow {
    let workflow = Workflow::new(table()).expect("no two tasks have one name");
    if workers == 0 { workflow.sequential() } else { workflow.workers(workers) }
}

fn checked(number: u64) -> Result<u64, String> {
    if number.is_multiple_of(100) { Err(format!("{number} is round")) } else { Ok(number) }
}

#[task(on_failure = cancel_group)]
fn check(number: u64) -> Result<u64, String> {
    checked(number)
}

#[task]
fn plain(number: u64) -> Result<u64, String> {
    checked(number)
}

static GATE: Mutex<()> = Mutex::new(());

#[task]
fn wait_for(number: u64) -> u64 {
    drop(GATE.lock());
    number
}

static COUNTED: AtomicU64 = AtomicU64::new(0);

#[task]
fn count(after: &u64) -> u64 {
    COUNTED.fetch_add(1, Relaxed);
    *after
}

/// Makes a group that is cancelled. Returns the failure of the group, and whether the last call was cancelled.
#[task]
fn checks() -> (String, bool) {
    let (calls, last) = group(|| {
        let late = check(1);
        check(100);
        wait_for(1);
        late
    });
    let failure = calls.wait().expect_err("one has failed");
    (failure.reason().to_owned(), last.get().is_err())
}

#[test]
fn group_failure_cancels_other_calls_and_wait_returns_it() {
    for workers in [1, 3] {
        let ended = workflow(workers).run(|| {
            let closed = GATE.lock().expect("no holder panics");
            let (calls, (failed, raised, others)) = group(|| {
                let failed = plain::with().priority(2).call(200);
                let raised = check::with().priority(1).call(100);
                let held = wait_for(7);
                (failed, raised, (0..500).map(|_| count(&held)).collect::<Vec<_>>())
            });
            let other = wait_for(1);
            raised.get().expect_err("it has failed");
            // The group is cancelled: its other calls cannot start.
            drop(closed);
            let failure = calls.wait().expect_err("two have failed");
            assert_eq!((failure.task(), failure.reason()), ("check", "100 is round"));
            assert_eq!(failed.get().expect_err("it has failed").reason(), "200 is round");
            for other in others {
                assert_eq!(other.get().expect_err("it is cancelled").reason(), "it was cancelled");
            }
            // A call outside of the group runs.
            other.get().map(|number| *number)
        });
        assert_eq!(ended.expect("all failures are handled"), 1);
    }
}

#[test]
fn calls_made_after_group_failure_do_not_run() {
    COUNTED.store(0, Relaxed);
    let ended = workflow(0).run(|| {
        let (outer, (inner, last)) = group(|| {
            let before = count(&Data::new(1));
            let inner = group(|| {
                check(200);
                count(&before)
            });
            // This call belongs to the outer group, which continues.
            (inner.0, (count(&before), inner.1))
        });
        assert_eq!(outer.wait().expect_err("one has failed").reason(), "200 is round");
        assert_eq!(inner.wait().expect_err("one has failed").reason(), "200 is round");
        assert_eq!(*last.0.get()?, 1);
        assert_eq!(last.1.get().expect_err("it was not run").reason(), "it was cancelled");
        // Calls after the groups run.
        count(&last.0).get().map(|number| *number)
    });
    assert_eq!(ended.expect("the failure is handled"), 1);
    assert_eq!(COUNTED.load(Relaxed), 3);
}

#[test]
fn cancel_group_without_group_is_ordinary_failure() {
    for workers in [0, 2] {
        let ended = workflow(workers).run(|| {
            let failed = plain::with().on_failure(OnFailure::CancelGroup).call(100);
            let other = plain(1);
            assert_eq!(barrier().expect_err("one has failed").reason(), "100 is round");
            assert!(failed.get().is_err());
            other.get().map(|number| *number)
        });
        assert_eq!(ended.expect("the failure is handled"), 1);
    }
}

/// A program with cancelled groups of its own and in a task.
struct Checks;

impl Program for Checks {
    type Arguments = ();
    type Output = (String, String, u64);

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run((): &()) -> Result<Self::Output, Box<dyn std::error::Error + Send + Sync>> {
        let (_, after) = group(|| {
            let first = check(1);
            (0..50).for_each(|_| drop(count(&first)));
            check(100);
            first
        });
        let checked = checks();
        let first = *after.get()?;
        let failure = barrier().expect_err("one has failed").reason().to_owned();
        Ok((failure, checked.0.get()?.clone(), first))
    }
}

#[test]
fn group_failure_cancels_across_nodes_and_in_tasks() {
    let report = Main::<Checks>::job(()).nodes(3).run().expect("it runs");
    let expected = ("100 is round".to_owned(), "100 is round".to_owned(), 1);
    assert_eq!(Main::<Checks>::returned(&report).expect("the failures are handled"), expected);
}

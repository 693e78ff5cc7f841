//! Failures, timeouts and impure tasks; groups and barriers.

use std::{
    cell::Cell,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    Data, Failure, FailureKind, File, Main, OnFailure, Program, RunOptions, TaskDef, Workflow, WorkflowError,
    barrier, group, task, tasks, time_left,
};

/// A duration longer than any test takes.
const FOREVER: Duration = Duration::from_secs(3600);

fn table() -> Vec<&'static TaskDef> {
    tasks![
        halve,
        must_halve,
        try_to_halve,
        add,
        sleep,
        sleep_or_not,
        poll,
        wait_for,
        count,
        touch,
        index,
        open_or_panic,
        add_one,
        fail_three_times
    ]
    .to_vec()
}

fn workflow(workers: usize) -> Workflow {
    let workflow = Workflow::new(table()).expect("no two tasks have one name");
    if workers == 0 { workflow.sequential() } else { workflow.workers(workers) }
}

fn halved(number: u64) -> Result<u64, String> {
    if number.is_multiple_of(2) { Ok(number / 2) } else { Err(format!("{number} is odd")) }
}

#[task]
fn halve(number: u64) -> Result<u64, String> {
    halved(number)
}

#[task(on_failure = fail)]
fn must_halve(number: u64) -> Result<u64, String> {
    halved(number)
}

#[task(on_failure = ignore)]
fn try_to_halve(number: &mut u64, log: &mut String) -> Result<(bool, Vec<u64>), String> {
    log.push_str("tried");
    *number = halved(*number)?;
    Ok((true, vec![*number]))
}

#[task]
fn add(to: &mut u64, from: &u64) {
    *to += from;
}

#[task(timeout = "50 ms")]
fn sleep(time: Duration) {
    thread::sleep(time);
}

#[task(on_failure = ignore)]
fn sleep_or_not(kept: &mut u64, time: Duration) -> u64 {
    *kept += 1;
    thread::sleep(time);
    *kept
}

#[task]
fn poll() -> bool {
    let first = time_left();
    while time_left().is_some_and(|left| !left.is_zero()) {
        thread::yield_now();
    }
    first.is_some()
}

#[task]
fn open_or_panic(path: String) -> File {
    File::open(path).expect("it exists")
}

#[task]
fn index(numbers: &Vec<u64>, at: usize) -> u64 {
    numbers[at]
}

#[task]
fn add_one(number: &u64) -> u64 {
    number + 1
}

static GATE: Mutex<()> = Mutex::new(());

#[task]
fn wait_for(number: u64) -> u64 {
    drop(GATE.lock());
    number
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

#[task]
fn count() -> u64 {
    COUNTER.fetch_add(1, Relaxed)
}

/// A value that its readers can change.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Touchy(Mutex<u64>);

#[task]
fn touch(touchy: &Touchy) -> u64 {
    let mut number = touchy.0.lock().expect("no holder panics");
    *number += 1;
    0
}

/// Returns the failure of a program.
fn failure<R: std::fmt::Debug>(ended: Result<R, WorkflowError>) -> Failure {
    match ended {
        Err(WorkflowError::Call(failure)) => failure,
        ended => panic!("the program has not failed by a call: {ended:?}"),
    }
}

#[test]
fn failed_call_with_on_failure_fail_ends_program() {
    for workers in [0, 1, 3] {
        let calls = Cell::new(0);
        let ended = workflow(workers).run(|| {
            must_halve(7);
            loop {
                // The program fails at a later iteration.
                halve(8);
                calls.set(calls.get() + 1);
                barrier()?;
            }
            #[allow(unreachable_code, reason = "it fixes the type of the error")]
            Ok::<(), Failure>(())
        });
        let failure = failure(ended);
        assert_eq!((failure.task(), failure.call(), failure.reason()), ("must_halve", 0, "7 is odd"));
        assert!(workers > 0 || calls.get() == 0, "the program continues for {} calls", calls.get());
    }
}

#[test]
fn ignored_failure_keeps_old_values_and_returns_defaults() {
    for workers in [0, 1, 3] {
        let values = workflow(workers).run_with_stats(|| {
            let (mut number, mut log) = (Data::new(6), Data::new(String::new()));
            // The second call fails after it has changed its arguments.
            let first = try_to_halve(&mut number, &mut log);
            let second = try_to_halve(&mut number, &mut log);
            add(&mut number, &halve(4));
            let halved = [*first.0.get()?, *second.0.get()?];
            let numbers = [first.1.get()?.clone(), second.1.get()?.clone()];
            Ok::<_, Failure>((halved, numbers, *number.get()?, log.get()?.clone()))
        });
        let (values, figures) = values.expect("the failure is ignored");
        assert_eq!(values, ([true, false], [vec![3], vec![]], 5, "tried".to_owned()));
        assert_eq!((figures.ignored, figures.retries), (1, 0));
    }
}

#[test]
fn failure_kind_names_its_cause() {
    for workers in [0, 1] {
        let kinds = workflow(workers).run(|| {
            let numbers = Data::new(vec![1, 2]);
            let late = group(|| sleep(Duration::from_millis(60))).0;
            let late = late.wait().expect_err("its timeout is 50 ms");
            let calls = [
                halve(7),
                index(&numbers, 2),
                halve::with().on_failure(OnFailure::Ignore).call(8),
                add_one(&halve(7)),
            ];
            let kinds = calls.map(|call| call.get().expect_err("it fails").kind());
            Ok::<_, Failure>((late.kind(), kinds))
        });
        let kinds = kinds.expect("the program handles the failures");
        let of_calls = [FailureKind::Error, FailureKind::Panic, FailureKind::Runtime, FailureKind::Error];
        assert_eq!(kinds, (FailureKind::Timeout, of_calls));
    }
}

#[test]
fn panic_after_file_error_is_panic() {
    for workers in [0, 1] {
        let kind = workflow(workers).run(|| {
            Ok::<_, Failure>(open_or_panic("/missing".to_owned()).get().expect_err("it panics").kind())
        });
        assert_eq!(kind.expect("the program handles the failure"), FailureKind::Panic);
    }
}

#[test]
fn ignoring_failure_requires_defaults() {
    let ended = workflow(2).run(|| {
        let half = halve::with().on_failure(OnFailure::Ignore).call(8);
        half.get().map(|half| *half)
    });
    let reason = failure(ended).reason().to_owned();
    assert!(reason.contains("#[task(on_failure = ignore)]"), "{reason}");
    let ended = workflow(2).run(|| {
        let (mut number, mut log) = (Data::new(7), Data::new(String::new()));
        let call = try_to_halve::with().on_failure(OnFailure::CancelSuccessors);
        let (halved, _) = call.call(&mut number, &mut log);
        halved.get().map(|halved| *halved)
    });
    assert_eq!(failure(ended).reason(), "7 is odd");
}

#[test]
fn timed_out_call_fails_and_others_continue() {
    let ended = workflow(1).run_with_stats(|| {
        let long = group(|| sleep(FOREVER)).0;
        // Without the timeout, this call would never get the only worker.
        let half = *halve(8).get()?;
        let failure = long.wait().expect_err("it takes too long");
        assert_eq!(failure.reason(), "it has taken longer than 50ms, the timeout of the call");
        sleep(Duration::ZERO);
        sleep::with().retry(2).timeout(Duration::from_millis(1)).call(FOREVER);
        assert_eq!(barrier().expect_err("it takes too long").call(), 3);
        Ok::<_, Failure>(half)
    });
    let (half, figures) = ended.expect("the program handles the failures");
    assert_eq!((half, figures.retries), (4, 2));
}

static TRIES: AtomicU64 = AtomicU64::new(0);

#[task(retry = 3, pause = "1 ms", pause_max = "2 ms")]
fn fail_three_times() -> Result<u64, String> {
    let tries = TRIES.fetch_add(1, Relaxed);
    if tries < 3 { Err("not yet".to_owned()) } else { Ok(tries) }
}

#[test]
fn failed_call_is_repeated_after_pauses() {
    let ended = workflow(1).run_with_stats(|| fail_three_times().get().map(|tries| *tries));
    let (tries, figures) = ended.expect("the last try succeeds");
    assert_eq!((tries, figures.retries), (3, 3));
}

#[test]
fn timed_out_call_may_be_ignored() {
    let ended = workflow(1).run(|| {
        let mut kept = Data::new(40);
        let soon = sleep_or_not(&mut kept, Duration::ZERO);
        let call = sleep_or_not::with().timeout(Duration::from_millis(20));
        let never = call.call(&mut kept, FOREVER);
        Ok::<_, Failure>([*soon.get()?, *never.get()?, *kept.get()?])
    });
    assert_eq!(ended.expect("it is ignored"), [41, 0, 41]);
}

#[test]
fn time_left_counts_down_to_timeout() {
    for workers in [0, 1] {
        let ended = workflow(workers).run(|| {
            assert!(!*poll().get()?);
            let started = Instant::now();
            let polled = poll::with().timeout(Duration::from_millis(20)).call();
            let failure = polled.get().expect_err("it runs longer than its timeout");
            assert!(failure.reason().contains("longer than 20ms") && started.elapsed() < FOREVER);
            Ok::<_, Failure>(time_left())
        });
        assert_eq!(ended.expect("the program handles the failure"), None);
    }
}

#[test]
fn group_wait_covers_only_its_calls() {
    let ended = workflow(2).run(|| {
        let closed = GATE.lock().expect("no holder panics");
        let waits = wait_for(5);
        let (first, halves) = group(|| {
            let (inner, half) = group(|| halve(8));
            inner.wait().expect("8 is even");
            [half, halve(9), halve(11)]
        });
        let failure = first.wait().expect_err("two have failed");
        assert_eq!(failure.reason(), "9 is odd");
        assert_eq!(*halves[0].get()?, 4);
        drop(closed);
        group(|| ()).0.wait()?;
        waits.get().map(|number| *number)
    });
    // Waiting for the group handles all of its failures.
    assert_eq!(ended.expect("all failures are handled"), 5);
}

#[test]
fn cancelled_calls_do_not_run() {
    let ended = workflow(1).run(|| {
        let closed = GATE.lock().expect("no holder panics");
        let (waiting, numbers) = group(|| (0..2_000).map(wait_for).collect::<Vec<_>>());
        let mut sum = numbers[1_999].clone();
        add(&mut sum, &numbers[0]);
        waiting.cancel();
        drop(closed);
        waiting.wait()?;
        let failure = sum.get().expect_err("it depends on one that was cancelled");
        assert_eq!((failure.call(), failure.reason()), (0, "it was cancelled"));
        assert_eq!(failure.kind(), FailureKind::Cancelled);
        let run = numbers.iter().filter(|number| number.get().is_ok()).count();
        assert!(run < 2_000);
        waiting.cancel();
        barrier()
    });
    ended.expect("a cancellation is no failure");
}

#[test]
fn checked_run_detects_impure_task() {
    for workers in [0, 2] {
        let reason = failure(workflow(workers).checked().run(|| count().get().map(|count| *count)));
        assert!(reason.reason().contains("output 1 of 1 differs"), "{reason}");
        let touched = || touch(&Data::new(Touchy::default())).get().map(|number| *number);
        let reason = failure(workflow(workers).checked().run(touched));
        assert!(reason.reason().contains("it has changed its read-only input 1 of 1"), "{reason}");
        workflow(workers).run(touched).expect("it is not checked");
        let (sum, figures) = workflow(workers)
            .checked()
            .run_with_stats(|| {
                let mut sum = halve(8);
                add(&mut sum, &halve(10));
                sum.get().map(|sum| *sum)
            })
            .expect("they are functions");
        assert_eq!((sum, figures.calls), (9, 3));
    }
}

/// A program with failures of each kind.
struct Failing;

impl Program for Failing {
    /// A number that must be even.
    type Arguments = u64;
    type Output = (u64, String);

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(number: &u64) -> Result<(u64, String), Box<dyn std::error::Error + Send + Sync>> {
        let (mut kept, mut log) = (Data::new(14), Data::new(String::new()));
        for _ in 0..3 {
            try_to_halve(&mut kept, &mut log);
        }
        let (late, ()) = group(|| sleep::with().call(FOREVER));
        let failure = late.wait().expect_err("it takes too long").reason().to_owned();
        must_halve(*number);
        barrier()?;
        Ok((*kept.get()?, failure))
    }
}

#[test]
fn failures_on_several_nodes_match_local_run() {
    for checked in [false, true] {
        let job = |number| Main::<Failing>::job_with(number, RunOptions::default().checked(checked));
        let report = job(8).nodes(3).run().expect("it runs");
        let returned = Main::<Failing>::returned(&report).expect("it succeeds");
        assert_eq!(returned, (7, "it has taken longer than 50ms, the timeout of the call".to_owned()));
        let report = job(9).nodes(3).run().expect("it runs");
        let failed = Main::<Failing>::returned(&report).expect_err("9 is odd").to_string();
        assert!(failed.contains("task `must_halve`") && failed.ends_with("9 is odd"), "{failed}");
    }
}

#[test]
fn cancelled_program_reports_the_cancellation_and_its_reason() {
    let job = Main::<Failing>::job(8).nodes(2);
    job.stopper().stop();
    let report = job.run().expect("the job is cancelled cleanly");
    let reason = report.cancelled.clone().expect("it was cancelled");
    let error = Main::<Failing>::returned(&report).expect_err("it has no result").to_string();
    assert!(error.contains("was cancelled") && error.ends_with(&reason), "{error}");
}

#[task]
fn has_timeout() -> bool {
    time_left().is_some()
}

#[task]
fn nested_has_timeout() -> Data<bool> {
    has_timeout()
}

struct Timeouts;

impl Program for Timeouts {
    type Arguments = ();
    type Output = [bool; 2];

    fn tasks() -> Vec<&'static TaskDef> {
        tasks![has_timeout, nested_has_timeout].to_vec()
    }

    fn run((): &()) -> Result<[bool; 2], Box<dyn std::error::Error + Send + Sync>> {
        Ok([*has_timeout().get()?, *nested_has_timeout().get()?])
    }
}

#[test]
fn changed_option_applies_to_calls_of_program_and_of_tasks_on_all_nodes() {
    let given = vec!["has_timeout.timeout=1 h".to_owned()];
    for (given, expected) in [(Vec::new(), false), (given, true)] {
        let workflow = Workflow::new(Timeouts::tasks()).and_then(|workflow| workflow.task_options(&given));
        let here = workflow.expect("the option is valid").workers(2).run(|| Timeouts::run(&()));
        assert_eq!(here.expect("it succeeds"), [expected; 2]);
        let options = RunOptions::default().task_options(given);
        let report = Main::<Timeouts>::job_with((), options).nodes(2).run().expect("it runs");
        assert_eq!(Main::<Timeouts>::returned(&report).expect("it succeeds"), [expected; 2]);
    }
}

//! Tasks that call tasks, in every mode of execution.

use std::{
    cell::RefCell,
    error::Error,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use crate::{
    Data, Failure, FailureKind, Main, Program, TaskDef, Workflow, WorkflowError, barrier, group, task, tasks,
};

fn table() -> Vec<&'static TaskDef> {
    let plain = tasks![add, odd, both, flaky];
    let calling = tasks![fibonacci, waiting, down, tries_it, silent, passes_on, updates, many, wide];
    let others = tasks![calls_flaky, keeps, uses, waits_for_kept, cancels, differs, spread_out];
    [&plain[..], &calling, &others].concat()
}

/// Runs a program sequentially, on one, two and five workers, and checked. Compares the results.
fn everywhere<R: PartialEq + std::fmt::Debug>(program: fn() -> Result<R, Failure>) -> R {
    let workflow = || Workflow::new(table()).expect("no two tasks have one name");
    let result = workflow().sequential().run(program).expect("it succeeds");
    for workers in [1, 2, 5] {
        let again = workflow().workers(workers).run(program).expect("it succeeds");
        assert_eq!(again, result, "on {workers} workers");
    }
    let checked = workflow().workers(2).checked().run(program).expect("it succeeds twice");
    assert_eq!(checked, result, "checked");
    result
}

#[task]
fn add(a: &u64, b: &u64) -> u64 {
    a + b
}

/// Forwards the result of its calls.
#[task]
fn fibonacci(number: u64) -> Data<u64> {
    if number < 2 {
        return Data::new(number);
    }
    add(&fibonacci(number - 1), &fibonacci(number - 2))
}

/// Waits for the results of its calls.
#[task]
fn waiting(number: u64) -> Result<u64, Failure> {
    if number < 2 {
        return Ok(number);
    }
    let (left, right) = (waiting(number - 1), waiting(number - 2));
    Ok(*left.get()? + *right.get()?)
}

#[task]
fn down(depth: u64) -> Result<u64, Failure> {
    if depth == 0 { Ok(0) } else { Ok(*down(depth - 1).get()? + 1) }
}

#[task]
fn odd(number: u64) -> Result<u64, String> {
    if number % 2 == 1 { Ok(number) } else { Err(format!("{number} is even")) }
}

/// Returns one value, and forwards another one.
#[task]
fn both(number: u64) -> (u64, Data<u64>) {
    (number, odd(number))
}

/// Handles the failure of a call, and succeeds.
#[task]
fn tries_it(number: u64) -> String {
    match odd(number).get() {
        Ok(number) => number.to_string(),
        Err(failure) => failure.to_string(),
    }
}

/// Does not look at the failure of a call.
#[task]
fn silent(number: u64) -> u64 {
    odd(number);
    number
}

#[task]
fn passes_on(number: u64) -> Result<u64, Failure> {
    Ok(*silent(number).get()?)
}

#[task]
fn updates(list: &mut Vec<u64>) -> Result<(), Failure> {
    let mut sum = Data::new(0);
    for number in &*list {
        sum = add(&sum, &Data::new(*number));
    }
    list.push(*sum.get()?);
    Ok(())
}

/// Makes a group of calls, and waits for it.
#[task]
fn many(count: u64) -> Result<Vec<u64>, Failure> {
    let (calls, numbers) = group(|| (0..count).map(|number| odd(2 * number + 1)).collect::<Vec<_>>());
    calls.wait()?;
    barrier()?;
    numbers.iter().map(|number| Ok(*number.get()?)).collect()
}

#[task]
fn wide(depth: u64) -> Result<u64, Failure> {
    if depth == 0 {
        return Ok(1);
    }
    let calls: Vec<_> = (0..3).map(|_| wide(depth - 1)).collect();
    calls.iter().map(|call| Ok(*call.get()?)).sum()
}

#[test]
fn task_forwards_results_of_its_calls() {
    assert_eq!(everywhere(|| Ok(*fibonacci(12).get()?)), 144);
}

#[test]
fn waiting_task_lends_its_worker() {
    assert_eq!(everywhere(|| Ok(*waiting(12).get()?)), 144);
    assert_eq!(everywhere(|| Ok(*wide(5).get()?)), 243);
    assert_eq!(
        everywhere(|| (0..20).map(|_| wide(2)).map(|data| Ok(*data.get()?)).sum::<Result<u64, _>>()),
        180
    );
}

#[test]
fn recursion_of_depth_120_succeeds() {
    assert_eq!(everywhere(|| Ok(*down(120).get()?)), 120);
}

#[test]
fn sequential_recursion_of_depth_2000_succeeds() -> Result<(), WorkflowError> {
    let workflow = Workflow::new(table())?.sequential();
    assert_eq!(workflow.run(|| Ok::<_, Failure>(*down(2_000).get()?))?, 2_000);
    Ok(())
}

#[test]
fn waiting_tasks_over_limit_fail_and_others_complete() -> Result<(), WorkflowError> {
    let failure = Workflow::new(table())?.workers(1).run(|| Ok::<_, Failure>(*down(1_500).get()?));
    let failure = failure.expect_err("it is too deep").to_string();
    assert!(failure.contains("1024 tasks of this node wait for calls that they have made"), "{failure}");
    Ok(())
}

#[task(cores = 2)]
fn takes_two(depth: u64) -> Result<u64, Failure> {
    if depth == 0 {
        return Ok(1);
    }
    let calls = [takes_two(depth - 1), takes_two(depth - 1)];
    calls.iter().map(|call| Ok(*call.get()?)).sum()
}

#[task(spread, memory = "1 MiB")]
fn spread_out(depth: u64) -> Result<u64, Failure> {
    if depth == 0 {
        return Ok(1);
    }
    let calls = [spread_out(depth - 1), spread_out(depth - 1)];
    calls.iter().map(|call| Ok(*call.get()?)).sum()
}

#[test]
fn waiting_multi_core_task_lends_all_its_workers() -> Result<(), WorkflowError> {
    let workflow = || Workflow::new(tasks![takes_two]);
    let program = || Ok::<_, Failure>(*takes_two(4).get()?);
    for workflow in [workflow()?.sequential(), workflow()?.workers(2), workflow()?.workers(3)] {
        assert_eq!(workflow.run(program)?, 16);
    }
    let failure = workflow()?.workers(1).run(program).expect_err("there is one worker").to_string();
    assert!(failure.contains("it needs 2 workers on one node"), "{failure}");
    Ok(())
}

#[test]
fn task_waits_for_groups_and_updates_arguments() {
    assert_eq!(everywhere(|| Ok(many(5).get()?.clone())), [1, 3, 5, 7, 9]);
    let list = everywhere(|| {
        let mut list = Data::new(vec![1, 2, 3]);
        updates(&mut list);
        updates(&mut list);
        Ok(list.get()?.clone())
    });
    assert_eq!(list, [1, 2, 3, 6, 12]);
}

#[test]
fn nested_failure_that_task_has_not_received_is_error() {
    let kinds = everywhere(|| {
        let silent = silent(8).get().expect_err("the failure was not handled").kind();
        let handed_on = both(6).1.get().expect_err("the forwarded value does not exist").kind();
        Ok([silent, handed_on])
    });
    assert_eq!(kinds, [FailureKind::Error; 2]);
}

#[test]
fn nested_failure_names_path_to_call() {
    let text = everywhere(|| {
        let handled = tries_it(4);
        let silent = passes_on(8).get().expect_err("the failure was not handled");
        let (value, handed_on) = both(6);
        let not_there = handed_on.get().expect_err("the forwarded value does not exist");
        let value = value.get().expect_err("its call has failed");
        assert_eq!(value.to_string(), not_there.to_string());
        let odd = both(7);
        assert_eq!((*odd.0.get()?, *odd.1.get()?), (7, 7));
        Ok([handled.get()?.clone(), silent.to_string(), not_there.to_string()])
    });
    assert_eq!(text[0], "task `odd` (call 0.0) has failed: 4 is even");
    assert_eq!(
        text[1],
        "task `passes_on` (call 1) has failed: task `silent` (call 1.0) has failed: task `odd` (call 1.0.0) has \
         failed: 8 is even"
    );
    assert_eq!(text[2], "task `both` (call 2) has failed: task `odd` (call 2.0) has failed: 6 is even");
}

static TRIES: AtomicU64 = AtomicU64::new(0);

/// Fails in the first execution.
#[task]
fn flaky(number: u64) -> Result<u64, String> {
    if TRIES.fetch_add(1, SeqCst) == 0 { Err("it is the first execution".to_owned()) } else { Ok(number) }
}

#[task(retry = 1)]
fn calls_flaky(number: u64) -> Result<u64, Failure> {
    Ok(*flaky(number).get()?)
}

#[test]
fn retried_task_repeats_failed_calls() -> Result<(), WorkflowError> {
    for workflow in [Workflow::new(table())?.sequential(), Workflow::new(table())?.workers(2)] {
        TRIES.store(0, SeqCst);
        assert_eq!(workflow.run(|| Ok::<_, Failure>(*calls_flaky(7).get()?))?, 7);
        assert_eq!(TRIES.load(SeqCst), 2);
    }
    Ok(())
}

thread_local! {
    static KEPT: RefCell<Option<Data<u64>>> = const { RefCell::new(None) };
}

/// Keeps a handle after its completion.
#[task]
fn keeps() -> u64 {
    KEPT.set(Some(Data::new(1)));
    0
}

#[task]
fn uses(after: &u64) -> Result<u64, Failure> {
    assert_eq!(*after, 0);
    let kept = KEPT.take().expect("it is the same thread");
    Ok(*add(&kept, &Data::new(1)).get()?)
}

#[task]
fn waits_for_kept(after: &u64) -> Result<u64, Failure> {
    assert_eq!(*after, 0);
    Ok(*KEPT.take().expect("it is the same thread").get()?)
}

/// A task can use only its own handles, so it cannot wait for later outputs of its caller.
#[test]
fn handle_of_another_task_is_refused() -> Result<(), WorkflowError> {
    for workflow in [Workflow::new(table())?.sequential(), Workflow::new(table())?.workers(1)] {
        let (used, waited) = workflow.run(|| {
            let kept = keeps();
            let used = uses(&kept).get().expect_err("the handle belongs to another task");
            let waited = waits_for_kept(&keeps()).get().expect_err("the handle belongs to another task");
            Ok::<_, Failure>((used.to_string(), waited.to_string()))
        })?;
        assert!(used.contains("data of another workflow"), "{used}");
        assert!(waited.contains("a handle of a task that had ended"), "{waited}");
    }
    Ok(())
}

/// Cancels calls that never start, since their input has failed.
#[task]
fn cancels() -> bool {
    let (calls, sum) = group(|| {
        let first = add(&odd(2), &Data::new(1));
        add(&first, &Data::new(1))
    });
    calls.cancel();
    let is_there = sum.get().is_ok();
    // The first call may have failed before it was cancelled.
    let waited = calls.wait();
    is_there || waited.is_err_and(|failure| failure.task() != "odd")
}

#[test]
fn task_cancels_its_calls() {
    assert!(!everywhere(|| Ok(*cancels().get()?)));
}

static DIFFERENCE: AtomicU64 = AtomicU64::new(0);

/// Makes a different call in each execution.
#[task]
fn differs() -> Result<u64, Failure> {
    Ok(*odd(1 + 2 * DIFFERENCE.fetch_add(1, SeqCst)).get()?)
}

#[test]
fn task_with_different_calls_on_repeat_fails() -> Result<(), WorkflowError> {
    let failure = Workflow::new(table())?.workers(1).checked().run(|| Ok::<_, Failure>(*differs().get()?));
    let failure = failure.expect_err("it makes other calls").to_string();
    assert!(failure.contains("not the same") || failure.contains("makes other calls"), "{failure}");
    Ok(())
}

#[test]
fn failed_program_does_not_wait_for_waiting_tasks() -> Result<(), WorkflowError> {
    let program = || {
        let _sum = waiting(16);
        Err::<u64, _>("enough")
    };
    let failure = Workflow::new(table())?.workers(1).run(program).expect_err("it fails");
    assert_eq!(failure.to_string(), "enough");
    Ok(())
}

/// Runs the tasks above in one program, for a run on nodes.
struct Everything;

impl Program for Everything {
    type Arguments = u64;
    type Output = ([u64; 4], Vec<u64>, String);

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run(number: &u64) -> Result<Self::Output, Box<dyn Error + Send + Sync>> {
        let (handed_on, waited, deep) = (fibonacci(*number), waiting(*number), down(20));
        let spread = spread_out(4);
        let mut list = Data::new(vec![1, 2, 3]);
        updates(&mut list);
        let failure = passes_on(8).get().expect_err("the failure was not handled");
        let numbers = [*handed_on.get()?, *waited.get()?, *deep.get()?, *spread.get()?];
        Ok((numbers, list.get()?.clone(), failure.to_string()))
    }
}

#[test]
fn nested_calls_on_several_nodes_match_sequential_run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let expected = Workflow::new(table())?.sequential().run(|| Everything::run(&9))?;
    let report = Main::<Everything>::job(9).nodes(3).workers(1).run()?;
    assert_eq!(Main::<Everything>::returned(&report)?, expected);
    Ok(())
}

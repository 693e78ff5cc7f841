//! Demands of tasks on one machine.

use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use crate::{Failure, Main, Options, Program, TaskDef, Workflow, WorkflowError, task, tasks};

static TAKEN: AtomicU32 = AtomicU32::new(0);
static MOST: Mutex<u32> = Mutex::new(0);

fn use_workers(workers: u32, work: impl FnOnce()) {
    let taken = TAKEN.fetch_add(workers, SeqCst) + workers;
    let mut most = MOST.lock().unwrap();
    *most = taken.max(*most);
    drop(most);
    work();
    TAKEN.fetch_sub(workers, SeqCst);
}

#[task(cores = 2)]
fn wide(number: u64) -> u64 {
    use_workers(2, std::thread::yield_now);
    number
}

#[task]
fn narrow(number: u64) -> u64 {
    use_workers(1, std::thread::yield_now);
    number
}

#[task(cores = 64, memory = "2 GiB", needs("blast", "os=linux"), spread, everywhere)]
fn demanding() -> u64 {
    7
}

fn workflow() -> Result<Workflow, WorkflowError> {
    Workflow::new(tasks![wide, narrow, demanding])
}

#[test]
fn task_attribute_sets_options() {
    let expected = Options {
        cores: 64,
        memory: 2 << 30,
        needs: &["blast", "os=linux"],
        spread: true,
        everywhere: true,
        ..Options::DEFAULT
    };
    assert_eq!(demanding::TASK.options, expected);
    assert_eq!(narrow::TASK.options, Options::DEFAULT);
}

#[test]
fn calls_with_cores_never_exceed_workers() -> Result<(), WorkflowError> {
    let numbers = workflow()?.workers(3).run(|| {
        let all: Vec<_> =
            (0..200).map(|number| if number % 3 == 0 { wide(number) } else { narrow(number) }).collect();
        all.iter().map(|one| one.get().map(|number| *number)).sum::<Result<u64, Failure>>()
    })?;
    assert_eq!(numbers, 199 * 200 / 2);
    assert!(*MOST.lock().unwrap() <= 3);
    Ok(())
}

#[test]
fn call_with_unmet_demand_fails_at_once() -> Result<(), WorkflowError> {
    let refused = |call: fn() -> Result<u64, Failure>| -> Result<String, WorkflowError> {
        Ok(workflow()?.workers(2).run(call).expect_err("it cannot run").to_string())
    };
    let cores = refused(|| Ok(*demanding().get()?))?;
    assert!(cores.contains("it needs 64 workers on one node, and none has more than 2"), "{cores}");
    let label = refused(|| Ok(*demanding::with().cores(1).call().get()?))?;
    assert!(label.contains("it needs the label blast, and no node has it"), "{label}");
    let none = refused(|| Ok(*narrow::with().cores(0).call(1).get()?))?;
    assert!(none.contains("a call takes one or more"), "{none}");
    Ok(())
}

#[test]
fn sequential_run_ignores_demands() -> Result<(), WorkflowError> {
    assert_eq!(workflow()?.sequential().run(|| Ok::<_, Failure>(*demanding().get()?))?, 7);
    Ok(())
}

struct Demanding;

impl Program for Demanding {
    type Arguments = ();
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        tasks![demanding].to_vec()
    }

    fn run((): &()) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        Ok(*demanding().get()?)
    }
}

#[test]
fn call_no_local_node_can_take_fails() {
    let report = Main::<Demanding>::job(()).nodes(2).run().expect("the nodes run");
    let failure = Main::<Demanding>::returned(&report).expect_err("no node has 64 workers").to_string();
    assert!(failure.contains("it needs 64 workers on one node"), "{failure}");
}

static LICENCES: AtomicU32 = AtomicU32::new(0);

#[task(limits("licence=2"))]
fn licensed(number: u64) -> Result<u64, String> {
    let used = LICENCES.fetch_add(1, SeqCst) + 1;
    std::thread::yield_now();
    LICENCES.fetch_sub(1, SeqCst);
    if used <= 2 { Ok(number) } else { Err(format!("{used} licences are used")) }
}

/// Has the same limit, and is not counted: each workflow has its own limits.
#[task(limits("licence=2"))]
fn inner() -> u64 {
    1
}

#[task]
fn between() -> Result<u64, Failure> {
    Ok(*inner().get()?)
}

#[task(limits("disk=1"))]
fn outer() -> Result<u64, Failure> {
    Ok(*between().get()?)
}

#[test]
fn calls_with_a_limit_never_exceed_it() -> Result<(), WorkflowError> {
    assert_eq!(licensed::TASK.options.limits, ["licence=2"]);
    let numbers = Workflow::new(tasks![licensed])?.workers(6).run(|| {
        let all: Vec<_> = (0..300).map(licensed).collect();
        all.iter().map(|one| one.get().map(|number| *number)).sum::<Result<u64, Failure>>()
    })?;
    assert_eq!(numbers, 299 * 300 / 2);
    Ok(())
}

#[test]
fn calls_with_limits_within_each_other_are_refused() -> Result<(), WorkflowError> {
    let run = |call: fn() -> Result<u64, Failure>| -> Result<_, WorkflowError> {
        Ok(Workflow::new(tasks![inner, between, outer])?.workers(2).run(call).map_err(|it| it.to_string()))
    };
    assert_eq!(run(|| Ok(*between().get()?))?, Ok(1));
    let refused = run(|| Ok(*outer().get()?))?.expect_err("it could wait for itself");
    assert!(refused.contains("it has limits, and so has the call within which it is made"), "{refused}");
    let invalid = run(|| Ok(*inner::with().limits(&["licence"]).call().get()?))?;
    let invalid = invalid.expect_err("it is invalid");
    assert!(invalid.contains("\"licence\" is no limit"), "{invalid}");
    Ok(())
}

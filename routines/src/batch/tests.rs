//! Jobs of Python routines within this process.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork::{Job, JobError, Limits, Report, Task as _};

use super::{Batch, Checkpoint, Live, Node, combine::Stage};
use crate::{
    host::Host,
    order::Order,
    package::{Package, RuntimeKind},
    ranges::Ranges,
    reduction::Reduce,
    resource::Resources,
    runtime::{Event, Program, Starter},
    space::Space,
    store::{Results, Store},
    testing::{Fixture, fixture, package},
    wire::{EntryKind, ErrorKind, Step},
};

const MODULE: &str = r#"
import os, sys, time

def square(n):
    return n * n

def values(case):
    return [float("nan"), -float("inf"), 2 ** 64, "ä", {"a": [1, None, True]}, (1, 2)][case]

def invalid(case):
    if case == 0:
        return "\ud800"
    if case == 1:
        return {1: 2}
    if case == 2:
        return object()
    if case == 3:
        return {"$i": "1"}
    deep = 0
    for _ in range(101):
        deep = [deep]
    return deep

def arguments(*positional, **named):
    return [list(positional), named]

def fails(n):
    print("before the failure")
    return inner(n)

def inner(n):
    raise ValueError(f"no {n} \ud800")

def exits(n):
    sys.exit("left")

def crashes(n):
    if n == 7:
        print("the reason of the crash", flush=True)
        os.abort()
    return n

def sleeps(n):
    time.sleep(3600 if n == 3 else 0)
    return n

def notes(n):
    with open(FOLDER + "/notes", "a") as notes:
        notes.write(f"{n}\n")
    time.sleep(0.035)
    return n
"#;

/// A job of a routine of the module.
struct Run {
    package: Package,
    order: Order,
}

impl Run {
    fn of(entry: &str, more: &str, space: Space) -> Self {
        let Fixture { folder, store } = fixture();
        let package = package(folder, MODULE, entry, more);
        store.deploy(&package).unwrap();
        let key = format!("{:032x}", rand::random::<u128>());
        let order = Order::new(package.digest.clone(), key, space, Reduce::default());
        Self { package, order }
    }

    fn job(&self) -> Job<Batch> {
        Batch::job(self.order.clone(), "test".to_owned()).nodes(2).workers(2)
    }

    /// Runs the job, and returns its report and the outcomes as JSON.
    fn run(&self, job: Job<Batch>) -> (Report<Batch>, Vec<Value>) {
        let report = job.run().unwrap();
        assert_eq!(report.output.ended, self.order.space.len());
        let results = results(&self.order, report.output.ended);
        let lines = results.lines(0, usize::MAX, usize::MAX).unwrap();
        assert!((0..).zip(&lines).all(|(index, line)| line.index == index), "each index is there once");
        let outcomes = lines.iter().map(|line| serde_json::from_str(&line.json).unwrap()).collect();
        (report, outcomes)
    }
}

pub(super) fn results(order: &Order, ended: u64) -> Results {
    Results::open(fixture().store.objects.clone(), &Store::job(&order.key), ended).unwrap()
}

fn range(to: i64) -> Space {
    Space::Range { from: 0, to }
}

fn list(values: &[&str]) -> Space {
    Space::List(values.iter().map(|&value| value.to_owned()).collect())
}

#[test]
fn each_call_has_its_result_once() {
    let run = Run::of("square", "", range(3_000));
    let (report, outcomes) = run.run(run.job());
    assert!(report.output.failed.is_empty());
    assert!((0..3_000_u64).zip(&outcomes).all(|(n, outcome)| outcome["value"] == n * n), "{outcomes:?}");
}

#[test]
fn job_without_calls_is_done() {
    let run = Run::of("square", "", range(0));
    assert!(run.run(run.job()).1.is_empty());
}

#[test]
fn arguments_are_positional_named_or_single() {
    let run = Run::of(
        "arguments",
        "",
        list(&["[]", "[1,[2]]", r#"{"a":1}"#, "null", r#"{"$i":"18446744073709551616"}"#]),
    );
    let (_, outcomes) = run.run(run.job());
    let values: Vec<String> = outcomes.iter().map(|outcome| outcome["value"].to_string()).collect();
    assert_eq!(
        values,
        [
            r"[[],{}]",
            r"[[1,[2]],{}]",
            r#"[[],{"a":1}]"#,
            "[[null],{}]",
            r#"[[{"$i":"18446744073709551616"}],{}]"#
        ]
    );
}

#[test]
fn results_beyond_json_have_forms_of_their_own() {
    let run = Run::of("values", "", range(6));
    let (_, outcomes) = run.run(run.job());
    let values: Vec<String> = outcomes.iter().map(|outcome| outcome["value"].to_string()).collect();
    let expected = [
        r#"{"$f":"nan"}"#,
        r#"{"$f":"-inf"}"#,
        r#"{"$i":"18446744073709551616"}"#,
        r#""ä""#,
        r#"{"a":[1,null,true]}"#,
        "[1,2]",
    ];
    assert_eq!(values, expected);
}

#[test]
fn results_that_are_no_values_are_invalid() {
    let run = Run::of("invalid", "", range(5));
    let (report, outcomes) = run.run(run.job());
    assert_eq!(report.output.failed[&ErrorKind::Invalid], 5);
    for (outcome, reason) in outcomes.iter().zip(["surrogate", "key 1", "object", "reserved", "100 deep"]) {
        assert!(outcome["error"]["message"].as_str().unwrap().contains(reason), "{outcome}");
    }
}

#[test]
fn only_argument_with_wrong_number_is_invalid() {
    let run =
        Run::of("arguments", "", list(&["[1]", r#"{"$i":"one"}"#, r#"[{"$f":"nan"}]"#, r#"{"$f":[]}"#]));
    let (report, outcomes) = run.run(run.job());
    assert_eq!(report.output.failed.into_iter().collect::<Vec<_>>(), [(ErrorKind::Invalid, 2)]);
    assert_eq!(outcomes[0]["value"].to_string(), "[[1],{}]");
    assert!(outcomes[1]["error"]["message"].as_str().unwrap().contains("'one'"), "{}", outcomes[1]);
    assert_eq!(outcomes[2]["value"].to_string(), r#"[[{"$f":"nan"}],{}]"#);
}

#[test]
fn exception_reaches_result_with_traceback_of_user_code() {
    let run = Run::of("fails", "", list(&["5"]));
    let (report, outcomes) = run.run(run.job());
    assert_eq!(report.output.failed[&ErrorKind::User], 1);
    let error = &outcomes[0]["error"];
    assert_eq!(
        (error["kind"].as_str(), error["message"].as_str()),
        (Some("user"), Some("ValueError: no 5 ?"))
    );
    let trace = error["trace"].as_str().unwrap();
    for part in ["Traceback (most recent call last)", "module.py", "in fails", "in inner", "ValueError: no 5"]
    {
        assert!(trace.contains(part), "{trace}");
    }
    assert!(!trace.contains("shim.py"), "{trace}");
    let run = Run::of("exits", "", list(&["5"]));
    assert_eq!(run.run(run.job()).1[0]["error"]["message"], "SystemExit: left");
}

#[test]
fn only_call_that_crashes_its_runtime_fails() {
    let run = Run::of("crashes", "", range(300));
    let (report, outcomes) = run.run(run.job());
    assert_eq!(report.output.failed.into_iter().collect::<Vec<_>>(), [(ErrorKind::Crash, 1)]);
    let message = outcomes[7]["error"]["message"].as_str().unwrap();
    assert!(message.contains("signal: 6") && message.contains("the reason of the crash"), "{message}");
}

#[test]
fn only_call_that_exceeds_time_limit_fails() {
    let run = Run::of("sleeps", "timeout = 0.3", range(30));
    let (report, outcomes) = run.run(run.job());
    assert_eq!(report.output.failed.into_iter().collect::<Vec<_>>(), [(ErrorKind::Timeout, 1)]);
    assert!(outcomes[3]["error"]["message"].as_str().unwrap().contains("0.3 s"), "{}", outcomes[3]);
}

#[test]
fn routine_that_cannot_be_loaded_fails_job_with_traceback() {
    let Fixture { folder, store } = fixture();
    let package = package(folder, "import no_such_module\n", "square", "");
    store.deploy(&package).unwrap();
    let order = Order::new(package.digest, "k".to_owned(), range(5), Reduce::default());
    let failed = Batch::job(order, "test".to_owned()).run().unwrap_err();
    let text = failed.to_string();
    assert!(matches!(failed, JobError::Failed { .. }) || text.contains("no_such_module"), "{text}");
    assert!(text.contains("Traceback") && text.contains("no_such_module"), "{text}");
}

#[test]
fn cut_neither_cancels_nor_ends_running_call() {
    let run = Run::of("notes", "", range(60));
    let mut limits = Limits::default();
    limits.ledger_interval_ms = 10;
    let (_, outcomes) = run.run(run.job().limits(limits));
    assert!((0..60).zip(&outcomes).all(|(n, outcome)| outcome["value"] == n));
    let notes = fs::read_to_string(run.package.folder.join("notes")).unwrap();
    assert_eq!(notes.lines().count(), 60, "no call was repeated");
}

#[test]
fn calls_are_open_in_encoded_task_until_results_are_durable() {
    const CALLS: u64 = 20;
    let run = Run::of("square", "", range(20));
    let folder = fixture().folder.join("store").join(Store::job(&run.order.key));
    let node = Node::new(Host::current().unwrap(), &run.order, Stage::default()).unwrap();
    let mut live = Live::new(node, Arc::default());
    // No result can be written.
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    fs::write(&folder, "in the way").unwrap();
    let mut batch: Batch = Batch::of(CALLS);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut answered = 0;
    while answered < CALLS {
        assert!(Instant::now() < deadline, "{answered} answers");
        live.advance(&mut batch, &run.order).unwrap();
        // Also while a runtime has some of them.
        let mut unfinished = batch.open.clone();
        live.add_unfinished(&mut unfinished);
        assert_eq!(unfinished, Ranges::from(0..CALLS));
        answered += live.wait(&mut batch, &run.order, Duration::from_millis(10)).unwrap();
        assert!(live.settled(&mut batch).is_empty());
    }
    assert!(batch.open.is_empty() && !live.is_done());
    batch.live = Some(Box::new(live));
    let encoded = serde_json::to_vec(&batch).unwrap();
    let decoded: Batch = serde_json::from_slice(&encoded).unwrap();
    assert_eq!(decoded.open, Ranges::from(0..CALLS));
    fs::remove_file(&folder).unwrap();
    let mut live = batch.live.take().unwrap();
    let mut ended = 0;
    while ended < CALLS {
        assert!(Instant::now() < deadline, "{ended} durable results");
        live.wait(&mut batch, &run.order, Duration::from_millis(10)).unwrap();
        ended += live.settled(&mut batch).iter().map(|tally| tally.ended).sum::<u64>();
    }
    assert!(live.is_done());
    assert_eq!(results(&run.order, CALLS).len(), 20);
}

#[test]
fn split_gives_away_half_of_open_calls() {
    let mut batch: Batch = Batch::of(9);
    batch.crashed = [(1, 1), (8, 2)].into();
    batch.careful = 6;
    batch.checkpoint = Some(Checkpoint { index: 6, state: vec![1] });
    let order = Order::new(String::new(), String::new(), range(9), Reduce::default());
    let given = batch.split(&order).unwrap();
    assert_eq!((batch.open, given.open), (Ranges::from(0..5), Ranges::from(5..9)));
    assert_eq!((batch.crashed, given.crashed), ([(1, 1)].into(), [(8, 2)].into()));
    assert!(batch.checkpoint.is_none() && given.checkpoint.is_some_and(|last| last.index == 6));
    assert_eq!(given.careful, 1, "the calls after the suspects are not among them");
    assert!(Batch::<Node>::of(1).split(&order).is_none(), "its only call");
}

#[test]
fn runtime_restarts_after_its_number_of_calls() {
    let module = "import os\ndef run(n):\n    return os.getpid()\n";
    let Fixture { folder, store } = fixture();
    let package = package(folder, module, "run", "reuse = 1");
    store.deploy(&package).unwrap();
    let order = Order::new(
        package.digest.clone(),
        format!("{:032x}", rand::random::<u128>()),
        range(8),
        Reduce::default(),
    );
    let run = Run { package, order };
    let (_, outcomes) = run.run(run.job());
    let processes: std::collections::BTreeSet<u64> =
        outcomes.iter().map(|outcome| outcome["value"].as_u64().unwrap()).collect();
    assert_eq!(processes.len(), 8);
}

/// Starts a program instead of Python, with one call, and returns how it is lost.
fn lost(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("runtime");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let starter = Starter::new(
        folder.path(),
        Program::Command(vec![program.into()]),
        None,
        Resources::within(folder.path()).unwrap(),
    )
    .unwrap();
    let mut runtime =
        starter.start(folder.path(), "module:run", EntryKind::Function, RuntimeKind::Program).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < deadline, "the runtime is not lost");
        for event in runtime.poll(Duration::from_millis(10)) {
            match event {
                Event::Broken(reason) | Event::Memory(reason) => return reason,
                Event::Step(Step::Loaded) => {
                    let argument = serde_json::value::RawValue::from_string("5".to_owned()).unwrap();
                    runtime.call(&[(5, argument)], None, 0).unwrap();
                }
                Event::Step(_) => {}
            }
        }
    }
}

/// Returns the command that sends a message.
fn send(json: &str) -> String {
    let lengths = [json.len() + 4, json.len()].map(|length| u32::try_from(length).unwrap().to_le_bytes());
    let head: Vec<String> = lengths.concat().iter().map(|byte| format!("\\{byte:03o}")).collect();
    let head = head.concat();
    format!("printf '{head}{json}' > $ROUTINES_OUT")
}

#[test]
fn wrong_runtimes_are_lost_with_reason() {
    let ready = [send(r#"{"type":"ready","version":1}"#), send(r#"{"type":"ready"}"#)].join("\n");
    let result = send(r#"{"type":"result","values":[[5,1]]}"#);
    for (script, reason) in [
        ("echo the reason; exit 3".to_owned(), "exit status: 3; the end of its output:\nthe reason"),
        ("echo text of a user > $ROUTINES_OUT; sleep 60".to_owned(), "broken frame"),
        ("printf '\\010\\0' > $ROUTINES_OUT; exit 0".to_owned(), "the runtime has exited"),
        (format!("{ready}\nsleep 0.2\n{result}\n{result}\nsleep 60"), "second time"),
        (format!("{ready}\nsleep 0.2\n{result}\n{result}\nexit 0"), "second time"),
        (format!("{ready}\nsleep 0.2\n{}\nsleep 60", result.replace("[[5", "[[6")), "not given"),
        (format!("{}\nsleep 60", send(r#"{"type":"reboot"}"#)), "reboot"),
    ] {
        let lost = lost(&script);
        assert!(lost.contains(reason), "{script}: {lost}");
    }
}

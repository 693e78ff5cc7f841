//! Calls in Python that continue from their states.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json, value::RawValue};

use super::{Batch, Live, Node, combine::Stage, status::Counts, tests::results};
use crate::{
    host::Host,
    order::Order,
    package::Package,
    ranges::Ranges,
    reduction::Reduce,
    runtime::{Event, Request, Runtime},
    space::Space,
    tenant::Tenant,
    testing::{fixture, package},
    wire::Step,
};

/// Routines that note the step at which each call starts or continues, and each step.
const MODULE: &str = r#"
import os, threading, time
import routines

def note(name, text):
    with open(f"{FOLDER}/{name}", "a") as notes:
        notes.write(f"{text}\n")

def steps(last):
    step = routines.restored(0)
    note("starts", step)
    while step < last:
        note("steps", step)
        step += 1
        routines.checkpoint(step)
        if os.path.exists(f"{FOLDER}/gate"):
            continue
        time.sleep(0.005)
    return step

def crashes(last):
    step = routines.restored(0)
    note("starts", step)
    routines.checkpoint(step + 1)
    os.abort()

def large(bytes):
    routines.checkpoint("x" * bytes)

def unpicklable(n):
    routines.checkpoint(lambda: 0)

def replaces(last):
    try:
        return steps(last)
    except BaseException:
        raise ValueError("the stop was replaced")

def elsewhere(n):
    errors = []
    def save():
        try:
            routines.checkpoint(1)
        except RuntimeError as error:
            errors.append(str(error))
    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    return errors
"#;

const SOON: Duration = Duration::from_secs(60);

/// A job of a routine of the module.
struct Case {
    package: Package,
    order: Order,
}

impl Case {
    fn new(entry: &str, arguments: &[&str]) -> Self {
        let package = package(&fixture().folder, MODULE, entry, "checkpoint = 0.1");
        fixture().store.deploy(&package).unwrap();
        let space = Space::List(arguments.iter().map(|&argument| argument.to_owned()).collect());
        let key = format!("{:032x}", rand::random::<u128>());
        Self { order: Order::new(package.digest.clone(), key, space, Reduce::default()), package }
    }

    fn live(&self, counts: &Arc<Counts>) -> Live<Node> {
        Live::new(
            Node::new(Host::current().unwrap(), &self.order, Stage::default()).unwrap(),
            Arc::clone(counts),
        )
    }

    /// Returns the lines of a file of notes.
    fn notes(&self, name: &str) -> Vec<u64> {
        let notes = fs::read_to_string(self.package.folder.join(name)).unwrap_or_default();
        notes.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Works until a condition holds.
    fn work(&self, batch: &mut Batch, live: &mut Live<Node>, until: impl Fn(&Batch, &Live<Node>) -> bool) {
        let deadline = Instant::now() + SOON;
        while !until(batch, live) {
            assert!(Instant::now() < deadline, "{batch:?} {live:?}");
            live.settled(batch);
            live.advance(batch, &self.order).unwrap();
            live.wait(batch, &self.order, Duration::from_millis(1)).unwrap();
        }
    }

    /// Completes the job, and returns the outcome of its only call.
    fn finish(&self, batch: &mut Batch) -> Value {
        self.work(batch, &mut self.live(&Arc::default()), |batch, live| {
            batch.open.is_empty() && live.is_done()
        });
        assert!(batch.checkpoint.is_none(), "the result is durable");
        let results = results(&self.order, 1);
        serde_json::from_str(&results.lines(0, 1, 1).unwrap()[0].json).unwrap()
    }
}

#[test]
fn stopped_call_continues_elsewhere_and_repeats_no_step() {
    const STEPS: u64 = 2_000;
    for (entry, times) in [("steps", 3), ("replaces", 1)] {
        let case = Case::new(entry, &[&STEPS.to_string()]);
        let mut batch: Batch = Batch::of(1);
        for _ in 0..times {
            let counts = Arc::new(Counts::default());
            let mut live = case.live(&counts);
            // The first state of a process is sent at once.
            let before = batch.checkpoint.clone();
            case.work(&mut batch, &mut live, |batch, _| batch.checkpoint != before);
            counts.set_leaving();
            case.work(&mut batch, &mut live, |_, live| !live.has_frame());
            assert_eq!(batch.open, Ranges::from(0..1), "the call starts again elsewhere only");
            batch = serde_json::from_slice(&serde_json::to_vec(&batch).unwrap()).unwrap();
        }
        fs::write(case.package.folder.join("gate"), "").unwrap();
        assert_eq!(case.finish(&mut batch)["value"], STEPS);
        assert_eq!(case.notes("steps"), (0..STEPS).collect::<Vec<_>>());
        assert_eq!(case.notes("starts").len(), times + 1);
    }
}

#[test]
fn call_lost_with_its_runtime_continues_from_periodic_state() {
    let case = Case::new("steps", &["1000000"]);
    let mut batch: Batch = Batch::of(1);
    let mut live = case.live(&Arc::default());
    for _ in 0..3 {
        let before = batch.checkpoint.clone();
        case.work(&mut batch, &mut live, |batch, _| batch.checkpoint != before);
    }
    batch.live = Some(Box::new(live));
    let last = batch.checkpoint.clone();
    batch = serde_json::from_slice(&serde_json::to_vec(&batch).unwrap()).unwrap();
    assert_eq!((&batch.open, &batch.checkpoint), (&Ranges::from(0..1), &last), "also while the call runs");
    case.work(&mut batch, &mut case.live(&Arc::default()), |batch, _| batch.checkpoint != last);
    let starts = case.notes("starts");
    assert!(starts.len() == 2 && starts[0] == 0 && starts[1] > 1, "{starts:?}");
}

#[test]
fn crash_after_each_state_fails_call() {
    let case = Case::new("crashes", &["5"]);
    let error = case.finish(&mut Batch::of(1))["error"].clone();
    assert_eq!(error["kind"], "crash");
    assert_eq!(case.notes("starts"), [0, 1, 2], "each process continues from the state of the last one");
}

#[test]
fn invalid_states_fail_their_calls() {
    for (entry, argument, reasons) in [
        ("large", "1048577", ["1048586 bytes when pickled", "1048576"]),
        ("unpicklable", "0", ["cannot be pickled", "lambda"]),
    ] {
        let case = Case::new(entry, &[argument]);
        let error = case.finish(&mut Batch::of(1))["error"].clone();
        assert_eq!(error["kind"], "invalid");
        let message = error["message"].as_str().unwrap();
        assert!(reasons.iter().all(|reason| message.contains(reason)), "{message}");
    }
}

#[test]
fn checkpoint_in_another_thread_is_refused() {
    let case = Case::new("elsewhere", &["0"]);
    let errors = case.finish(&mut Batch::of(1))["value"].clone();
    assert!(errors[0].as_str().unwrap().contains("in the thread"), "{errors}");
}

/// Polls a runtime until it has sent a step for which the function returns a value.
fn step<R>(runtime: &mut Runtime, request: Option<Request>, find: impl Fn(Step) -> Option<R>) -> R {
    let deadline = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < deadline, "{runtime:?}");
        if request.is_some() {
            runtime.request(request);
        }
        for event in runtime.poll(Duration::from_millis(1)) {
            match event {
                Event::Step(step) => {
                    if let Some(found) = find(step) {
                        return found;
                    }
                }
                Event::Broken(reason) | Event::Memory(reason) => panic!("{reason}"),
            }
        }
    }
}

#[test]
fn stop_ends_frame_of_several_calls() {
    let case = Case::new("steps", &[]);
    let mut runtime = Host::current().unwrap().runtime(&case.package, &Tenant::default()).unwrap();
    step(&mut runtime, None, |step| matches!(step, Step::Loaded).then_some(()));
    let argument = |json: Value| RawValue::from_string(json.to_string()).unwrap();
    let calls = [(7, argument(json!(0))), (8, argument(json!(1_000_000))), (9, argument(json!(1_000_000)))];
    runtime.call(&calls, None, 0).unwrap();
    let stopped = |step| if let Step::Stopped(calls) = step { Some(calls) } else { None };
    assert_eq!(step(&mut runtime, Some(Request::Pause), stopped), Ranges::from(8..10));
    // The next frame has no request.
    runtime.call(&[(3, argument(json!(5)))], None, 0).unwrap();
    let answered = |step| if let Step::Answered(answers) = step { Some(answers[0].0) } else { None };
    assert_eq!(step(&mut runtime, None, answered), 3);
}

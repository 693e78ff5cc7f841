//! Searches in Python within this process: jobs, and the order of messages with one runtime.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json, value::RawValue};
use taskwork::{Limits, Output as _};

use super::{Best, Counts, Foreign, live::Live, result_of};
use crate::{
    host::Host,
    order::Order,
    package::Package,
    reduction::Reduce,
    runtime::{Event, Request, Runtime},
    space::Space,
    tenant::Tenant,
    testing::{fixture, package},
    wire::Step,
};

/// The number of states and solutions of 10 queens.
const STATES: i64 = 35_539;
const SOLUTIONS: i64 = 724;

/// A search for the subsets of a set, which fails at one of them in a way that the argument selects.
const MODULE: &str = r#"
import os, routines

class Subsets(routines.Search):
    def __init__(self, size, way="", times=0):
        self.size, self.way, self.times, self.stack = size, way, times, [()]

    def search(self, cx):
        while self.stack and not cx.asked[0]:
            chosen = self.stack.pop()
            if len(chosen) == self.size:
                cx.count["subsets"] += 1
                if sum(chosen) * 2 == self.size:
                    self.fail()
                cx.offer(abs(sum(chosen) * 3 - self.size), chosen)
            else:
                self.stack += [chosen + (0,), chosen + (1,)]

    def fail(self):
        if self.way == "crash":
            with open(FOLDER + "/crashes", "a+") as crashes:
                crashes.write("x")
                if crashes.tell() <= self.times:
                    print("the reason of the crash", flush=True)
                    os.abort()
        if self.way == "raise":
            raise ValueError("raised by the search")
        if self.way == "lambda":
            self.kept = lambda: 0
        if self.way == "large":
            self.kept = "x" * (1 << 20)
        if self.way == "names":
            raise SystemExit("left")

    def split(self):
        if self.way == "split":
            raise ValueError("raised by the split")
        give, self.stack = self.stack[::2], self.stack[1::2]
        # Possibly all of it.
        return self.but(stack=give) if give else None

def function():
    pass
"#;

fn order(package: &Package, argument: &Value) -> Order {
    fixture().store.deploy(package).unwrap();
    let key = format!("{:032x}", rand::random::<u128>());
    let space = Space::List(vec![argument.to_string()]);
    Order::new(package.digest.clone(), key, space, Reduce::default())
}

fn example(name: &str) -> Package {
    fixture();
    Package::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)).unwrap()
}

/// Runs a job on two nodes, with a cut at each interval, and returns its result or the reason of its failure.
fn run(package: &Package, argument: &Value, cut_ms: u64) -> Result<Value, String> {
    let mut limits = Limits::default();
    limits.ledger_interval_ms = cut_ms;
    let job = Foreign::job(order(package, argument), "test".to_owned()).nodes(2).workers(2).limits(limits);
    let report = job.run().map_err(|error| error.to_string())?;
    let result = result_of(&report.output, report.var::<Best>().as_deref());
    Ok(serde_json::from_str(&result).unwrap())
}

fn subsets(way: &str, times: u32) -> (Package, Result<Value, String>) {
    let package = package(&fixture().folder, MODULE, "Subsets", "kind = 'search'");
    // Each cut changes the state, and the crashes of one state are counted.
    let result = run(&package, &json!([16, way, times]), if times > 100 { 1_000 } else { 10 });
    (package, result)
}

#[test]
fn queens_have_known_numbers_on_two_nodes() {
    let expected = json!({ "counts": { "states": STATES, "solutions": SOLUTIONS }, "best": null });
    assert_eq!(run(&example("queens"), &json!(10), 10), Ok(expected));
}

#[test]
fn program_in_c_finds_known_numbers_of_queens_on_two_nodes() {
    let folder = fixture().folder.join("queens-c");
    fs::create_dir(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/queens_c");
    fs::copy(source.join("routine.toml"), folder.join("routine.toml")).unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("shims/c");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(&header)
        .arg(source.join("queens.c"))
        .arg("-o")
        .arg(folder.join("queens"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let expected = json!({ "counts": { "states": STATES, "solutions": SOLUTIONS }, "best": null });
    assert_eq!(run(&Package::read(&folder).unwrap(), &json!(10), 10), Ok(expected));
}

#[test]
fn knapsack_has_optimum_of_dynamic_programming() {
    let weights: Vec<usize> = (1..=32_usize).map(|item| 100 + item * item * 7919 % 900).collect();
    let profits: Vec<usize> = weights.iter().map(|weight| weight + 100).collect();
    let capacity = weights.iter().sum::<usize>() / 2;
    let mut best = vec![0; capacity + 1];
    for (weight, profit) in weights.iter().zip(&profits) {
        for free in (*weight..=capacity).rev() {
            best[free] = best[free].max(best[free - weight] + profit);
        }
    }
    let argument = json!({ "capacity": capacity, "profits": profits, "weights": weights });
    let found = run(&example("knapsack"), &argument, 10).unwrap()["best"].clone();
    assert_eq!(found["cost"].as_f64(), Some(-(best[capacity] as f64)), "{found}");
    let items = found["solution"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| usize::try_from(item.as_u64().unwrap()).unwrap());
    assert_eq!(items.map(|item| profits[item]).sum::<usize>(), best[capacity]);
}

#[test]
fn crashed_runtimes_neither_lose_nor_repeat_counts() {
    let (package, result) = subsets("crash", 3);
    let result = result.unwrap();
    assert_eq!((&result["counts"], &result["best"]["cost"]), (&json!({ "subsets": 65_536 }), &json!(1)));
    let crashes = fs::metadata(package.folder.join("crashes")).unwrap().len();
    assert!(crashes > 3, "{crashes}");
}

#[test]
fn search_that_always_crashes_fails_job_with_end_of_log() {
    let reason = subsets("crash", 1_000_000).1.unwrap_err();
    for part in ["4 times in a row", "signal: 6", "the reason of the crash"] {
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn failures_of_user_code_fail_job_with_reason() {
    for (way, reasons) in [
        ("raise", &["ValueError: raised by the search", "Traceback", "in fail"][..]),
        ("names", &["SystemExit: left"]),
        ("split", &["ValueError: raised by the split", "in split"]),
        ("lambda", &["cannot be pickled", "lambda"]),
        ("large", &["more than 1048576"]),
    ] {
        let reason = subsets(way, 0).1.unwrap_err();
        assert!(reasons.iter().all(|part| reason.contains(part)), "{way}: {reason}");
        assert!(!reason.contains("shim.py"), "{reason}");
    }
}

#[test]
fn entry_of_other_kind_fails_job() {
    let package = package(&fixture().folder, MODULE, "function", "kind = 'search'");
    let reason = run(&package, &json!([]), 10).unwrap_err();
    assert!(reason.contains("not a class with the methods search and split"), "{reason}");
}

/// A runtime with a search of 10 queens, the numbers that it has sent, and its last states.
struct Driven {
    runtime: Runtime,
    counts: Counts,
    parts: Vec<Vec<u8>>,
    rest: Vec<u8>,
    is_complete: bool,
}

impl Driven {
    /// Starts a search, by default that of the whole board.
    fn start(state: Option<&[u8]>) -> Self {
        fixture();
        let runtime = Host::current().unwrap().runtime(&example("queens"), &Tenant::default()).unwrap();
        let (counts, parts, rest) = (Counts::default(), Vec::new(), Vec::new());
        let mut driven = Self { runtime, counts, parts, rest, is_complete: false };
        // Unless it is from the pool.
        if !driven.runtime.exchange().is_loaded() {
            assert!(matches!(driven.step(None), Step::Loaded));
        }
        driven.search("10", state);
        driven
    }

    fn search(&mut self, argument: &str, state: Option<&[u8]>) {
        let argument = RawValue::from_string(argument.to_owned()).unwrap();
        self.runtime.search(&argument, state, f64::INFINITY).unwrap();
    }

    fn request(&self, request: Request) {
        self.runtime.request(Some(request));
    }

    /// Waits for a message, and repeats a request until then.
    fn step(&mut self, request: Option<Request>) -> Step {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < deadline, "the runtime does not answer");
            if let Some(request) = request {
                self.request(request);
            }
            match self.runtime.poll(Duration::from_millis(1)).pop() {
                Some(Event::Step(step)) => return step,
                Some(Event::Broken(reason) | Event::Memory(reason)) => panic!("{reason}"),
                None => {}
            }
        }
    }

    /// Waits until the search is paused or complete.
    fn wait(&mut self, request: Option<Request>) {
        let counts = match self.step(request) {
            Step::Paused { part, rest, counts } => {
                self.parts.extend(part);
                self.rest = rest;
                counts
            }
            Step::Complete(counts) => {
                self.is_complete = true;
                counts
            }
            step => panic!("{step:?}"),
        };
        self.counts.add(counts).unwrap();
    }

    /// Searches the rest, and returns all numbers and the parts that were given away.
    fn finish(mut self) -> (Counts, Vec<Vec<u8>>) {
        while !self.is_complete {
            self.runtime.go().unwrap();
            self.wait(None);
        }
        (self.counts, self.parts)
    }
}

/// Checks that the numbers, and those of the searches of states, are those of the whole board.
fn check(mut counts: Counts, states: &[Vec<u8>]) {
    for state in states {
        let mut driven = Driven::start(Some(state));
        driven.wait(None);
        counts.merge(driven.counts);
    }
    let result: Value = serde_json::from_str(&result_of(&counts, None)).unwrap();
    assert_eq!(result["counts"], json!({ "states": STATES, "solutions": SOLUTIONS }));
}

/// Returns a search that has given a part away. On a busy machine a search may be over before its first request.
fn split() -> Driven {
    let begun = || {
        let mut driven = Driven::start(None);
        driven.wait(Some(Request::Split));
        driven
    };
    let split = (0..20).map(|_| begun()).find(|driven| !driven.parts.is_empty());
    split.expect("a search gives a part away")
}

#[test]
fn requests_in_a_row_are_answered_once_each() {
    let mut driven = split();
    // Too late, and cleared before the search continues.
    driven.request(Request::Split);
    driven.runtime.go().unwrap();
    driven.request(Request::Bound);
    driven.request(Request::Split);
    // The answer may be a child, if the search has seen the previous request.
    driven.wait(Some(Request::Pause));
    let (counts, parts) = driven.finish();
    check(counts, &parts);
}

#[test]
fn runtime_lost_between_child_and_go_loses_and_repeats_nothing() {
    let mut driven = split();
    // Numbers after the last state do not count.
    driven.runtime.go().unwrap();
    let Driven { runtime, counts, mut parts, rest, .. } = driven;
    drop(runtime);
    assert_eq!(parts.len(), 1);
    parts.push(rest);
    check(counts, &parts);
}

#[test]
fn paused_search_is_replaced_by_another() {
    let mut driven = Driven::start(None);
    driven.wait(Some(Request::Pause));
    driven.search("4", None);
    let Step::Complete(counts) = driven.step(None) else { panic!("it is not complete") };
    assert_eq!(counts["solutions"], 2);
    let rest = driven.rest.clone();
    driven.search("4", Some(&rest));
    driven.wait(None);
    check(driven.counts, &[]);
}

#[test]
fn idle_runtime_is_kept_for_the_tenant_of_its_search() {
    let package = package(&fixture().folder, MODULE, "Subsets", "kind = 'search'");
    let tenant = Tenant::parse("anna").unwrap();
    let order = Order { tenant: tenant.clone(), ..order(&package, &json!([4])) };
    let host = Host::current().unwrap();
    let mut live = Live::new(host, &order).unwrap();
    live.advance(None, &order).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while live.wait(Duration::from_millis(10)).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the runtime does not load");
    }
    drop(live);
    assert!(
        host.pool.take(&package.digest).is_none() && host.pool.take(&tenant.key(&package.digest)).is_some()
    );
}

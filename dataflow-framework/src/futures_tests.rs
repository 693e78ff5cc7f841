//! Calls of `async` tasks, which occupy no worker.

use std::{
    future::pending,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error as _};
use tokio::{sync::Semaphore, task::yield_now};

use crate::{
    Data, Failure, FailureKind, File, Main, Program, TaskDef, Workflow, WorkflowError, barrier, once_token,
    task, tasks, time_left,
};

/// A duration longer than any test takes.
const FOREVER: Duration = Duration::from_secs(3600);

/// Calls that wait for each other.
struct Flight {
    /// The number of calls that have to run at the same time.
    wanted: usize,
    here: AtomicUsize,
    most: AtomicUsize,
    gate: Semaphore,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Flight {
    const fn of(wanted: usize) -> Self {
        Self {
            wanted,
            here: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            gate: Semaphore::const_new(0),
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        }
    }

    /// Waits until all wanted calls are here.
    async fn join(&self) {
        let here = self.here.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(here, Relaxed);
        if here == self.wanted {
            self.gate.close();
            *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.opened.notify_all();
        }
        // It fails when the gate is open.
        let _ = self.gate.acquire().await;
        self.here.fetch_sub(1, Relaxed);
    }

    /// Does the same on a thread, without counting.
    fn watch(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_timeout_while(is_open, Duration::from_secs(60), |is_open| !*is_open);
        assert!(!waited.is_ok_and(|(_, late)| late.timed_out()), "the calls do not run at the same time");
    }
}

static FLIGHTS: [Flight; 6] =
    [Flight::of(200), Flight::of(1_024), Flight::of(60), Flight::of(1), Flight::of(1), Flight::of(1)];

#[task(timeout = "60 s")]
async fn fly(flight: usize, number: u64) -> u64 {
    FLIGHTS[flight].join().await;
    number
}

/// Occupies a worker until the calls of a flight are here.
#[task]
fn hold(flight: usize) {
    FLIGHTS[flight].watch();
}

#[task]
async fn mix(by: u64, number: &u64, list: &[u64], text: &str, all: &[&u64], sum: &mut u64) -> (u64, String) {
    yield_now().await;
    *sum += number * by + list.iter().sum::<u64>() + all.iter().copied().sum::<u64>();
    yield_now().await;
    (*sum, text.repeat(2))
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Account(u64);

#[task]
impl Account {
    #[task]
    async fn pay(&mut self, cents: u64) -> u64 {
        yield_now().await;
        self.0 += cents;
        self.0
    }
}

static TRIES: AtomicU32 = AtomicU32::new(0);

#[task(retry = 2)]
async fn third_time(name: String) -> Result<String, String> {
    yield_now().await;
    let tries = TRIES.fetch_add(1, Relaxed);
    if tries < 2 { Err(format!("{name} fails")) } else { Ok(name) }
}

#[task]
async fn panics(number: &mut u64) {
    yield_now().await;
    *number += 1;
    panic!("as requested");
}

static DROPPED: Semaphore = Semaphore::const_new(0);

/// Notes the drop of a future, and panics.
struct Noisy(bool);

impl Drop for Noisy {
    fn drop(&mut self) {
        DROPPED.add_permits(1);
        assert!(!self.0, "dropped as requested");
    }
}

#[task(on_failure = ignore)]
async fn never(noisy: bool, kept: &mut u64) -> u64 {
    let _noisy = Noisy(noisy);
    *kept += 1;
    pending().await
}

static HELD: Mutex<Option<Sender<()>>> = Mutex::new(None);

/// Holds a sender until it is dropped.
#[task]
async fn hang() {
    let _held = HELD.lock().expect("no holder panics").take();
    FLIGHTS[3].join().await;
    pending::<()>().await;
}

/// Blocks the thread of the futures until the calls of a flight are here.
#[task]
async fn block(flight: usize) -> u64 {
    yield_now().await;
    FLIGHTS[flight].watch();
    0
}

#[task]
async fn wait() -> u64 {
    pending().await
}

/// Succeeds when its timeout has passed.
#[task]
async fn late() -> u64 {
    yield_now().await;
    while time_left().is_some_and(|left| !left.is_zero()) {
        thread::yield_now();
    }
    1
}

static DECODED: AtomicU32 = AtomicU32::new(0);

/// An argument whose first copy cannot be decoded, since a file cannot be read.
#[derive(Debug, Clone, serde::Serialize)]
struct Torn(u64);

impl<'de> Deserialize<'de> for Torn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if DECODED.fetch_add(1, Relaxed) == 0 {
            File::open("/no/such/file").map_err(D::Error::custom)?;
        }
        u64::deserialize(from).map(Self)
    }
}

#[task]
async fn take(torn: Torn) -> u64 {
    yield_now().await;
    torn.0
}

#[task(effect)]
async fn knows() -> (bool, Option<u128>) {
    yield_now().await;
    (time_left().is_some(), once_token())
}

#[task(on_failure = fail)]
fn fails() -> Result<(), String> {
    Err("it fails".to_owned())
}

#[task]
async fn makes_calls() -> u64 {
    yield_now().await;
    let data = Data::new(1);
    drop(data);
    1
}

static CHANGES: AtomicU32 = AtomicU32::new(0);

#[task]
async fn changes() -> u32 {
    yield_now().await;
    CHANGES.fetch_add(1, Relaxed)
}

fn table() -> Vec<&'static TaskDef> {
    let account = tasks![account_pay];
    let others = tasks![fly, hold, hang, mix, third_time, panics, never, knows, fails, makes_calls, changes];
    let more = tasks![block, wait, late, take];
    account.into_iter().chain(others).chain(more).collect()
}

fn workflow(workers: usize) -> Workflow {
    let workflow = Workflow::new(table()).expect("no two tasks have one name");
    if workers == 0 { workflow.sequential() } else { workflow.workers(workers) }
}

#[test]
fn async_calls_run_at_once_while_the_only_worker_is_busy() {
    let sum = workflow(1).run(|| {
        hold(0);
        let calls: Vec<_> = (0..200).map(|number| fly(0, number)).collect();
        calls.iter().map(|call| call.get().map(|number| *number)).sum::<Result<u64, Failure>>()
    });
    assert_eq!(sum.expect("all calls succeed"), 19_900);
}

#[test]
fn async_calls_beyond_1024_wait_for_others() {
    let sum = workflow(2).run(|| {
        let calls: Vec<_> = (0..1_500).map(|number| fly(1, number)).collect();
        calls.iter().map(|call| call.get().map(|number| *number)).sum::<Result<u64, Failure>>()
    });
    assert_eq!(sum.expect("all calls succeed"), 1_499 * 1_500 / 2);
    assert_eq!(FLIGHTS[1].most.load(Relaxed), 1_024);
}

#[test]
fn async_task_accesses_data_like_other_tasks() {
    for (workers, checked) in [(0, false), (1, false), (3, true)] {
        let workflow = if checked { workflow(workers).checked() } else { workflow(workers) };
        let ended = workflow.run(|| {
            let (number, list, text) = (Data::new(3), Data::new(vec![1, 2]), Data::new("ab".to_owned()));
            let mut sum = Data::new(100);
            let before = sum.clone();
            let (first, twice) = mix(2, &number, &list, &text, &[number.clone(), before.clone()], &mut sum);
            let mut account = Data::new(Account(*sum.get()?));
            let paid = account.pay(5);
            Ok::<_, Failure>((*before.get()?, *first.get()?, twice.get()?.clone(), *paid.get()?))
        });
        assert_eq!(ended.expect("it succeeds"), (100, 212, "abab".to_owned(), 217), "{workers} workers");
    }
}

#[test]
fn failures_of_async_calls_have_kinds_and_are_retried() {
    for workers in [0, 2] {
        TRIES.store(0, Relaxed);
        let ended = workflow(workers).run(|| {
            let named = third_time("it".to_owned());
            let mut number = Data::new(1);
            panics(&mut number);
            let failure = number.get().expect_err("it panics");
            assert_eq!((failure.kind(), failure.reason()), (FailureKind::Panic, "it panicked: as requested"));
            named.get().map(|name| name.clone())
        });
        assert_eq!(ended.expect("the third attempt succeeds"), "it");
        assert_eq!(TRIES.load(Relaxed), 3);
    }
}

#[test]
fn future_is_dropped_at_timeout_before_the_call_ends() {
    for (workers, noisy) in [(2, false), (0, false), (2, true)] {
        let before = DROPPED.available_permits();
        let ended = workflow(workers).run(|| {
            let mut kept = Data::new(7);
            let made = never::with().timeout(Duration::from_millis(50)).call(noisy, &mut kept);
            let made = *made.get()?;
            assert!(DROPPED.available_permits() > before, "the future exists");
            Ok::<_, Failure>((made, *kept.get()?))
        });
        assert_eq!(ended.expect("the failure is ignored"), (0, 7));
    }
}

#[test]
fn futures_run_while_another_that_blocks_has_exceeded_its_timeout() {
    let soon = Duration::from_millis(50);
    let ended = workflow(1).run(|| {
        let waiting = wait::with().timeout(soon).call();
        let blocked = block::with().timeout(soon).call(4);
        let later = fly(5, 6);
        for call in [waiting, blocked] {
            assert_eq!(call.get().expect_err("its timeout passes").kind(), FailureKind::Timeout);
        }
        later.get()?;
        // The future that blocks ends only now.
        fly(4, 7).get().map(|number| *number)
    });
    assert_eq!(ended.expect("the failures are handled"), 7);
}

#[test]
fn output_of_an_async_call_after_its_timeout_does_not_count() {
    for workers in [0, 2] {
        let ended = workflow(workers).run(|| {
            let late = late::with().timeout(Duration::from_millis(5)).call();
            Ok::<_, Failure>(late.get().expect_err("its timeout has passed").kind())
        });
        assert_eq!(ended.expect("the failure is handled"), FailureKind::Timeout, "{workers} workers");
    }
}

#[test]
fn async_task_knows_its_deadline_and_token() {
    let ended = workflow(2).run(|| {
        let known = knows::with().timeout(FOREVER).call();
        let other = knows();
        Ok::<_, Failure>(([*known.0.get()?, *other.0.get()?], [*known.1.get()?, *other.1.get()?]))
    });
    let (have_deadlines, tokens) = ended.expect("it succeeds");
    assert_eq!(have_deadlines, [true, false]);
    assert!(tokens[0].is_some() && tokens[0] != tokens[1]);
}

#[test]
fn failed_program_drops_running_futures() {
    let (held, dropped) = mpsc::channel();
    *HELD.lock().expect("no holder panics") = Some(held);
    let ended = workflow(2).run(|| {
        hang();
        FLIGHTS[3].watch();
        fails();
        barrier()
    });
    let Err(WorkflowError::Call(failure)) = ended else { panic!("it fails: {ended:?}") };
    assert_eq!(failure.task(), "fails");
    let end = dropped.recv_timeout(Duration::from_secs(60));
    assert_eq!(end, Err(RecvTimeoutError::Disconnected), "the future is dropped");
}

#[test]
fn async_task_that_makes_calls_fails_with_remedy() {
    for workers in [0, 1] {
        let ended = workflow(workers).run(|| makes_calls().get().map(|number| *number));
        let Err(WorkflowError::Call(failure)) = ended else { panic!("it fails: {ended:?}") };
        assert!(failure.reason().contains("or in a task that is not `async`"), "{failure}");
    }
}

#[test]
fn checked_run_detects_impure_async_task() {
    let ended = workflow(2).checked().run(|| changes().get().map(|number| *number));
    let Err(WorkflowError::Call(failure)) = ended else { panic!("it fails: {ended:?}") };
    assert!(failure.reason().contains("output 1 of 1 differs"), "{failure}");
}

#[derive(Debug)]
struct Flying;

impl Program for Flying {
    type Arguments = ();
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run((): &()) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        let calls: Vec<_> = (0..60).map(|number| fly(2, number)).collect();
        Ok(calls.iter().map(|call| call.get().map(|number| *number)).sum::<Result<u64, Failure>>()?)
    }
}

#[derive(Debug)]
struct Taking;

impl Program for Taking {
    type Arguments = ();
    type Output = u64;

    fn tasks() -> Vec<&'static TaskDef> {
        table()
    }

    fn run((): &()) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        Ok(take(Torn(1)).get().map(|number| *number)?)
    }
}

#[test]
fn async_call_whose_argument_has_a_file_error_runs_on_another_node() {
    let report = Main::<Taking>::job(()).nodes(2).run().expect("it runs");
    assert_eq!(Main::<Taking>::returned(&report).expect("it succeeds on the other node"), 1);
    assert_eq!(DECODED.load(Relaxed), 2);
}

#[test]
fn async_calls_on_several_nodes_run_at_once() {
    let report = Main::<Flying>::job(()).nodes(3).run().expect("it runs");
    assert_eq!(Main::<Flying>::returned(&report).expect("it succeeds"), 1_770);
}

//! The cancellation of running calls.

use std::{
    fs,
    future::pending,
    io,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{errno::Errno, sys::signal::kill, unistd::Pid};

use crate::{
    Data, Failure, FailureKind, File, Main, Program, Run, TaskDef, Workflow, group, is_cancelled, task, tasks,
};

/// The longest wait of a test.
const SOON: Duration = Duration::from_secs(60);

/// A number of events, for which a test waits.
struct Events {
    number: Mutex<u32>,
    changed: Condvar,
}

impl Events {
    const fn new() -> Self {
        Self { number: Mutex::new(0), changed: Condvar::new() }
    }

    fn add(&self) {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until this number of events have happened.
    fn wait_for(&self, number: u32) {
        let before = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(before, SOON, |now| *now < number);
        assert!(waited.is_ok_and(|(_, late)| !late.timed_out()), "{number} events do not happen");
    }
}

/// The starts and the ends of the calls of each test.
static STARTS: [Events; 6] = [const { Events::new() }; 6];
static ENDS: [Events; 6] = [const { Events::new() }; 6];

/// Runs until it is cancelled.
#[task(retry = 3)]
fn search(test: usize) -> Result<u64, String> {
    STARTS[test].add();
    let deadline = Instant::now() + SOON;
    while !is_cancelled() {
        if Instant::now() > deadline {
            return Err("it is not cancelled".to_owned());
        }
        thread::yield_now();
    }
    ENDS[test].add();
    Ok(1)
}

/// Waits for a call that runs until it is cancelled.
#[task]
fn search_within(test: usize) -> Result<u64, Failure> {
    search(test).get().map(|found| *found)
}

/// Forwards such a call.
#[task]
fn forward(test: usize) -> Data<u64> {
    search(test)
}

#[task(on_failure = cancel_group)]
fn fail_when_started(test: usize, calls: u32) -> Result<(), String> {
    STARTS[test].wait_for(calls);
    Err("as requested".to_owned())
}

#[task]
fn number(of: u64) -> u64 {
    of
}

static GATE: Mutex<()> = Mutex::new(());

/// Does not notice that it is cancelled.
#[task]
fn deaf(test: usize, number: &mut u64) -> u64 {
    STARTS[test].add();
    drop(GATE.lock());
    *number += 1;
    *number
}

static HELD: Mutex<Option<Sender<()>>> = Mutex::new(None);

/// Holds a sender until it is dropped.
#[task]
async fn hang() {
    let held = HELD.lock().expect("no holder panics").take();
    held.as_ref().map(|held| held.send(()));
    pending::<()>().await;
    drop(held);
}

/// Runs a program that writes its process number, and the one of its child, to a file.
#[task(retry = 1)]
fn run_program(book: PathBuf) -> io::Result<File> {
    let script = "sleep 3600 & echo $$ $! >> \"$1\"; sleep 3600";
    Run::new("sh").word("-c").word(script).word("sh").word(book.display().to_string()).stdout_to("nothing")
}

fn table() -> Vec<&'static TaskDef> {
    tasks![search, search_within, forward, fail_when_started, number, deaf, hang, run_program].to_vec()
}

fn workflow(workers: usize) -> Workflow {
    Workflow::new(table()).expect("no two tasks have one name").workers(workers)
}

/// Returns the first line that is written to a file.
fn first_line(book: &Path) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some((line, _)) = fs::read_to_string(book).unwrap_or_default().split_once('\n') {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "nothing is written");
        thread::sleep(Duration::from_millis(10));
    }
}

fn wait_until_gone(process: &str) {
    let process = Pid::from_raw(process.parse().expect("it is a number"));
    let deadline = Instant::now() + SOON;
    while kill(process, None) != Err(Errno::ESRCH) {
        assert!(Instant::now() < deadline, "{process} is not killed");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn cancelled_task_sees_cancellation_and_is_not_retried() {
    let ended = workflow(2).run(|| {
        let (searches, found) = group(|| [search(0), search(0)]);
        STARTS[0].wait_for(2);
        searches.cancel();
        searches.wait()?;
        for found in found {
            let failure = found.get().expect_err("it is cancelled");
            assert_eq!((failure.kind(), failure.reason()), (FailureKind::Cancelled, "it was cancelled"));
        }
        // The workers are free.
        number(7).get().map(|number| *number)
    });
    assert_eq!(ended.expect("a cancellation is no failure"), 7);
    ENDS[0].wait_for(2);
    assert_eq!(*STARTS[0].number.lock().expect("no holder panics"), 2);
}

#[test]
fn cancelled_task_stops_the_calls_that_it_has_made() {
    let ended = workflow(1).run(|| {
        let (searches, found) = group(|| [search_within(1), forward(1)]);
        STARTS[1].wait_for(1);
        searches.cancel();
        searches.wait()?;
        for found in found {
            assert_eq!(found.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        }
        number(7).get().map(|number| *number)
    });
    assert_eq!(ended.expect("a cancellation is no failure"), 7);
    ENDS[1].wait_for(1);
}

#[test]
fn failure_of_a_call_stops_running_calls_of_its_group() {
    let ended = workflow(3).run(|| {
        let (calls, found) = group(|| {
            let found = [search(2), search(2)];
            fail_when_started(2, 2);
            found
        });
        assert_eq!(calls.wait().expect_err("one has failed").reason(), "as requested");
        for found in found {
            assert_eq!(found.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        }
        Ok::<_, Failure>(())
    });
    ended.expect("the failure is handled");
    ENDS[2].wait_for(2);
}

#[test]
fn output_of_a_task_that_ignores_its_cancellation_does_not_count() {
    let ended = workflow(1).run(|| {
        let closed = GATE.lock().expect("no holder panics");
        let mut before = Data::new(1);
        let (calls, made) = group(|| deaf(3, &mut before));
        STARTS[3].wait_for(1);
        calls.cancel();
        // It has ended for the program.
        assert_eq!(made.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        assert_eq!(before.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        let after = number(7);
        drop(closed);
        after.get().map(|number| *number)
    });
    assert_eq!(ended.expect("a cancellation is no failure"), 7);
}

#[test]
fn future_of_a_cancelled_call_is_dropped() {
    let (held, receiver) = mpsc::channel();
    *HELD.lock().expect("no holder panics") = Some(held);
    let ended = workflow(1).run(|| {
        let (calls, ()) = group(hang);
        receiver.recv_timeout(SOON).expect("it runs");
        calls.cancel();
        calls.wait()?;
        assert_eq!(receiver.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected), "the future is dropped");
        Ok::<_, Failure>(())
    });
    ended.expect("a cancellation is no failure");
}

#[test]
fn program_of_a_cancelled_call_is_killed_with_its_child() {
    let folder = tempfile::tempdir().expect("it can be made");
    let book = folder.path().join("book");
    let ended = workflow(1).run(|| {
        let (calls, file) = group(|| run_program(book.clone()));
        let line = first_line(&book);
        calls.cancel();
        calls.wait()?;
        assert_eq!(file.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        line.split(' ').for_each(wait_until_gone);
        // Its worker is free, and it is not retried.
        number(7).get()?;
        Ok::<_, Failure>(())
    });
    ended.expect("a cancellation is no failure");
    assert_eq!(fs::read_to_string(&book).expect("it is written").lines().count(), 1);
}

static NUMBERED: AtomicU32 = AtomicU32::new(0);

#[task]
fn count() {
    NUMBERED.fetch_add(1, Relaxed);
}

#[derive(Debug)]
struct Searching;

impl Program for Searching {
    type Arguments = ();
    type Output = ();

    fn tasks() -> Vec<&'static TaskDef> {
        [&table()[..], &tasks![count]].concat()
    }

    fn run((): &()) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // On each of the three nodes one runs; others wait there.
        let (searches, found) = group(|| [4; 12].map(search));
        STARTS[4].wait_for(3);
        searches.cancel();
        searches.wait()?;
        for found in found {
            assert_eq!(found.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        }
        let (outer, found) = group(|| [5; 3].map(search_within));
        // The others may be assigned to the same node.
        STARTS[5].wait_for(1);
        outer.cancel();
        outer.wait()?;
        for found in found {
            assert_eq!(found.get().expect_err("it is cancelled").kind(), FailureKind::Cancelled);
        }
        (0..30).for_each(|_| count());
        Ok(())
    }
}

#[test]
fn calls_on_several_nodes_are_stopped() {
    let report = Main::<Searching>::job(()).nodes(3).run().expect("it runs");
    Main::<Searching>::returned(&report).expect("it succeeds");
    ENDS[4].wait_for(3);
    ENDS[5].wait_for(1);
    assert_eq!(NUMBERED.load(Relaxed), 30);
}

//! Calls of `async` tasks in a process that can start no thread or open no file. The limits apply to a whole process, so this
//! test needs its own.

use std::{
    fs,
    future::ready,
    sync::{Barrier, mpsc},
    thread,
    time::Duration,
};

use dataflow_framework::{Failure, Workflow, WorkflowError, task, tasks};
use nix::sys::resource::{
    Resource::{self, RLIMIT_AS, RLIMIT_NOFILE},
    getrlimit, setrlimit,
};

#[task]
async fn number(of: u64) -> u64 {
    ready(of).await
}

static BOTH: Barrier = Barrier::new(2);

/// Ends when both workers have started.
#[task]
fn meet(number: u64) -> u64 {
    BOTH.wait();
    number
}

/// Returns the size of the address space of this process, in bytes.
fn mapped() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("it can be read");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("it is there");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("it is a number");
    kib << 10
}

/// Makes a call while a resource is limited. Returns the reason of its failure.
fn reason_within(resource: Resource, limit: u64) -> String {
    let (soft, hard) = getrlimit(resource).expect("it has a limit");
    setrlimit(resource, limit, hard).expect("it can be reduced");
    let failure = number(1).get().map(|number| *number);
    setrlimit(resource, soft, hard).expect("it can be restored");
    failure.expect_err("it cannot start").reason().to_owned()
}

fn run() -> Result<([String; 2], u64), WorkflowError> {
    Workflow::new(tasks![number, meet]).expect("the tasks have different names").workers(2).run(|| {
        let met = [meet(1), meet(2)];
        assert_eq!(*met[0].get()? + *met[1].get()?, 3);
        // It comes first: no thread has ended whose stack another one could use, and the limit leaves no room for one.
        let without_threads = reason_within(RLIMIT_AS, mapped() + (1 << 20));
        let without_files = reason_within(RLIMIT_NOFILE, 0);
        let after = *number(7).get()?;
        Ok::<_, Failure>(([without_threads, without_files], after))
    })
}

#[test]
fn async_call_that_cannot_start_fails_and_a_later_one_runs() {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(run()));
    let ended = ended.recv_timeout(Duration::from_secs(60)).expect("all calls end");
    let ([without_threads, without_files], after) = ended.expect("the failures are handled");
    assert!(without_threads.contains("cannot start a thread for an `async` task"), "{without_threads}");
    assert!(without_files.contains("Too many open files"), "{without_files}");
    assert_eq!(after, 7);
}

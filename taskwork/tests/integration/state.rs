//! Jobs that keep their state in a directory: suspended, killed, out of space, continued; and refused
//! directories.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, JobError, Outcome, Release, Report, State, Task, report::StateError};
use tempfile::TempDir;

use crate::tree::{Largest, Tree};

fn state(dir: &Path) -> State {
    State::new(dir, Release::new("test", "1.0").unwrap())
}

const DEPTH: u32 = 17;

fn job(dir: &Path) -> Job<Tree> {
    Job::new(Tree::root(), DEPTH).state(state(dir))
}

fn assert_right(report: &Report<Tree>) {
    let (count, largest) = Tree::sequential(DEPTH);
    assert!(report.finished && !report.suspended);
    assert_eq!((report.output, report.var::<Largest>().as_deref()), (count, Some(&largest)));
}

#[test]
fn job_suspended_repeatedly_does_all_work_once() {
    let dir = TempDir::new().unwrap();
    let (mut runs, mut worked) = (0, 0);
    let report = loop {
        let job = job(dir.path()).nodes(1 + runs % 3).workers(1 + runs % 2);
        let stopper = job.stopper();
        // It is stopped after some work, but finally runs to completion.
        let job = job.on_progress(Duration::from_millis(2), move |progress| {
            if progress.figures.worked > 100_000 && runs < 12 {
                stopper.stop();
            }
        });
        let report = job.run().unwrap();
        (runs, worked) = (runs + 1, worked + report.figures.worked);
        assert_ne!(report.finished, report.suspended);
        if report.finished {
            break report;
        }
        assert!(report.output <= worked);
    };
    assert!(runs > 2, "{runs}");
    assert_right(&report);
    assert_eq!(worked, report.output, "no state was visited twice");

    // The next run is answered without work.
    let again = job(dir.path()).run().unwrap();
    assert_right(&again);
    assert_eq!(again.figures.worked, 0);
}

/// Runs until it is stopped.
#[derive(Debug, Serialize, Deserialize)]
struct Endless;

impl Task for Endless {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        while !cx.migrate() {
            cx.worked(1);
            std::thread::yield_now();
        }
        Outcome::Migrate
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn job_is_suspended_at_its_time_limit() {
    let dir = TempDir::new().unwrap();
    for _ in 0..2 {
        let limit = Duration::from_millis(300);
        let started = Instant::now();
        let report = Job::new(Endless, ()).state(state(dir.path()).time_limit(limit)).run().unwrap();
        assert!(report.suspended && !report.finished);
        assert!(report.figures.worked > 0 && started.elapsed() >= limit);
    }
}

fn refused(job: Job<Tree>) -> StateError {
    match job.run() {
        Err(JobError::State(error)) => error,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn directory_with_another_job_is_refused_with_a_reason() {
    let dir = TempDir::new().unwrap();
    let path = dir.path();
    let begun = job(path).workers(1);
    begun.stopper().stop();
    begun.run().unwrap();
    let of = |program: &str, version: &str| {
        let release = Release::new(program, version).unwrap();
        Job::new(Tree::root(), DEPTH).state(State::new(path, release))
    };
    let other_root = Tree { ballast: vec![1], ..Tree::root() };
    let here = |job: Job<Tree>| job.state(state(path));
    let refusals = [
        (of("other", "1.0"), "holds a job of the program test, and this is other"),
        (of("test", "1.1"), "holds a job of test 1.0, and this is version 1.1"),
        (of("test", "1.0-0123456789ab"), "another build of test (1.0; this one is 1.0-0123456789ab)"),
        (here(Job::new(Tree::root(), DEPTH + 1)), "holds another job of test"),
        (here(Job::new(other_root, DEPTH)), "holds another job of test"),
        (here(Job::new(Tree::root(), DEPTH).kind("other")), "holds another job of test"),
        (here(Job::new(Tree::root(), DEPTH).start_value::<Largest>(&7)), "holds another job of test"),
    ];
    for (job, says) in refusals {
        let said = refused(job).to_string();
        assert!(said.contains(says), "{said}");
        assert!(said.contains("use another directory, or delete") && said.contains("tree.redb"), "{said}");
    }
    assert_right(&job(path).run().unwrap());
    let said = refused(of("test", "1.1")).to_string();
    assert!(said.contains("version 1.1"), "a finished job is refused, too: {said}");
}

#[test]
fn unusable_directory_is_refused_with_a_reason() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("tree.redb");
    std::fs::write(&file, "dear diary").unwrap();
    let said = refused(job(dir.path()));
    assert!(matches!(said, StateError::Unusable { .. }), "{said}");
    assert!(said.to_string().contains("tree.redb is not a state of this program"), "{said}");
    let said = refused(job(&file));
    assert!(matches!(said, StateError::Io { .. }), "{said}");
}

#[test]
fn failed_job_reports_its_failure_again() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Faulty;

    impl Task for Faulty {
        type Shared = ();
        type Output = ();
        fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
            // Not requested.
            Outcome::Migrate
        }
        fn split(&mut self, (): &()) -> Option<Self> {
            None
        }
    }

    let dir = TempDir::new().unwrap();
    let run = || Job::new(Faulty, ()).state(state(dir.path())).run().unwrap_err().to_string();
    let first = run();
    let reason = "returned Migrate although nothing asked it to";
    assert!(first.contains(reason) && !first.contains("earlier"), "{first}");
    let second = run();
    assert!(second.contains(reason) && second.contains("in an earlier run; delete"), "{second}");
}

/// Counts to ten; panics at seven while a file exists.
#[derive(Debug, Serialize, Deserialize)]
struct Counting {
    number: u64,
    panics: u64,
}

impl Task for Counting {
    type Shared = PathBuf;
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        while self.number < 10 {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            assert!(self.number != self.panics || !cx.shared().exists(), "{} is too many", self.panics);
            self.number += 1;
            *cx.output() += 1;
            cx.potential_split(self);
        }
        Outcome::Complete
    }

    /// Splits off the part that panics.
    fn split(&mut self, _: &PathBuf) -> Option<Self> {
        (self.panics == 7).then(|| {
            let number = std::mem::replace(&mut self.number, 10);
            Self { number, panics: std::mem::replace(&mut self.panics, 0) }
        })
    }
}

#[test]
fn task_that_panics_repeatedly_is_set_aside_and_retried_by_the_next_run() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("mistake");
    std::fs::write(&file, "").unwrap();
    let run = |nodes| {
        let root = Counting { number: 0, panics: 7 };
        Job::new(root, file.clone()).state(state(&dir.path().join("state"))).nodes(nodes).workers(2).run()
    };
    for nodes in [1, 2] {
        let report = run(nodes).unwrap();
        assert!(!report.finished && !report.suspended);
        let [task] = &report.set_aside[..] else { panic!("{:?}", report.set_aside) };
        assert_eq!((task.crashes, task.reason.as_str()), (5, "7 is too many"));
        assert!(report.output < 10, "{}", report.output);
    }
    std::fs::remove_file(&file).unwrap();
    let report = run(1).unwrap();
    assert!(report.finished && report.set_aside.is_empty());
    assert_eq!(report.output, 10);
}

/// The directory of the process that runs the job.
const DIR: &str = "TASKWORK_TEST_STATE";
/// The size of its root task.
const BALLAST: &str = "TASKWORK_TEST_BALLAST_BYTES";

/// Not a test by itself: the process that runs the job.
#[test]
fn runner() {
    let Some(dir) = env::var_os(DIR) else { return };
    let ballast = vec![1; env::var(BALLAST).unwrap().parse().unwrap()];
    let job = Job::new(Tree { ballast, ..Tree::root() }, DEPTH).state(state(Path::new(&dir)));
    let say = |what: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{what}").and_then(|()| out.flush()).unwrap();
    };
    let job = job.nodes(2).workers(1).on_progress(Duration::from_millis(5), move |progress| {
        if progress.figures.worked > 0 {
            say(format!("worked {}", progress.figures.worked));
        }
    });
    match job.run() {
        Ok(report) => say(format!("found {}", report.output)),
        Err(error) => say(format!("failed: {error}")),
    }
}

const ARGUMENTS: [&str; 3] = ["state::runner", "--exact", "--nocapture"];

fn runner_with(command: &mut Command, dir: &Path, ballast: usize) -> std::process::Child {
    command.env(DIR, dir).env(BALLAST, ballast.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn job_of_a_killed_process_is_continued_by_the_next() {
    let dir = TempDir::new().unwrap();
    for round in 0..6 {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut child = runner_with(command.args(ARGUMENTS), dir.path(), 0);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Waits for more output, or for none.
        let enough = [20, 0, 1, 5, 60, 2][round];
        let seen = lines.by_ref().filter(|line| line.contains("worked")).take(enough).count();
        if seen == enough && enough > 0 {
            let said = Command::new(env::current_exe().unwrap());
            let second = runner_with({ said }.args(ARGUMENTS), dir.path(), 0).wait_with_output().unwrap();
            let said = String::from_utf8(second.stdout).unwrap();
            assert!(said.contains("in use by another process") || said.contains("found"), "{said}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_right(&job(dir.path()).run().unwrap());
}

#[test]
fn file_that_cannot_grow_ends_the_run_and_the_next_continues() {
    const BALLAST_BYTES: usize = 6 << 20;
    let dir = TempDir::new().unwrap();
    // In units of 512 bytes. Without the trap the process would be killed by a signal.
    let script = "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(env::current_exe().unwrap()).args(ARGUMENTS);
    let full = runner_with(&mut command, dir.path(), BALLAST_BYTES).wait_with_output().unwrap();
    let said = String::from_utf8(full.stdout).unwrap();
    assert!(said.contains("failed: ") && said.contains("tree.redb cannot be written: "), "{said}");
    assert!(said.contains("File too large") && said.contains("free disk space"), "{said}");
    let root = Tree { ballast: vec![1; BALLAST_BYTES], ..Tree::root() };
    assert_right(&Job::new(root, DEPTH).state(state(dir.path())).run().unwrap());
}

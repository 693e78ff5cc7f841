//! Jobs within this process: their results, with different numbers of nodes and workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, JobError, Outcome, Task, Variable, Variables};

use crate::tree::{Largest, Tree, hash};

#[test]
fn counts_and_variables_are_exact_on_any_number_of_nodes_and_workers() {
    const DEPTH: u32 = 11;
    let (count, largest) = Tree::sequential(DEPTH);
    for nodes in 1..=4 {
        for workers in 1..=3 {
            let report = Job::new(Tree::root(), DEPTH).nodes(nodes).workers(workers).run().unwrap();
            assert!(report.finished);
            assert_eq!(report.output, count, "{nodes} nodes with {workers} workers");
            assert_eq!(
                report.var::<Largest>().as_deref(),
                Some(&largest),
                "{nodes} nodes with {workers} workers"
            );
            assert_eq!(report.figures.worked, count);
        }
    }
}

/// Completes only when other nodes have run its children: its node has one worker, which is busy with the parent
/// itself.
#[derive(Debug, Serialize, Deserialize)]
enum Parent {
    Waiting { children: u64 },
    Child(u64),
}

/// The number of children that must be stolen.
const CHILDREN: u64 = 5;

impl Task for Parent {
    type Shared = ();
    type Output = u64;

    fn variables(declare: &mut Variables) {
        declare.declare::<Largest>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if let Self::Child(number) = *self {
            *cx.output() += 1;
            cx.set_var::<Largest>(number);
            return Outcome::Complete;
        }
        while cx.get_var::<Largest>() != Some(&CHILDREN) {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            cx.potential_split(self);
            thread::yield_now();
        }
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        let Self::Waiting { children } = self else { return None };
        *children += 1;
        (*children <= CHILDREN).then_some(Self::Child(*children))
    }
}

#[test]
fn nodes_steal_from_each_other_and_hear_of_each_others_variables() {
    let report = Job::new(Parent::Waiting { children: 0 }, ()).nodes(4).workers(1).run().unwrap();
    assert!(report.finished);
    assert_eq!(report.output, CHILDREN);
    assert!(report.figures.steals > 0, "{:?}", report.figures);
    assert!(report.figures.stolen_tasks >= CHILDREN, "{:?}", report.figures);
    assert_eq!((report.figures.tasks, report.figures.splits), (CHILDREN + 1, CHILDREN));
}

#[test]
fn start_value_is_known_before_the_first_task_starts() {
    let job = Job::new(Tree::root(), 3).start_value::<Largest>(&u64::MAX).workers(1);
    assert_eq!(job.run().unwrap().var::<Largest>().as_deref(), Some(&u64::MAX));
}

#[test]
fn settings_of_a_cluster_do_not_affect_a_run_within_the_process() {
    let job = Job::new(Tree::root(), 3).workers(2).priority(3).require("disk=fast".parse().unwrap());
    let report = job.exclusive().nodes(2).run().unwrap();
    assert_eq!(report.output, Tree::sequential(3).0);
}

#[test]
fn counts_are_exact_while_nodes_come_and_go_down_to_none() {
    const DEPTH: u32 = 17;
    let (count, largest) = Tree::sequential(DEPTH);
    for round in 0..12_u64 {
        let mut job = Job::new(Tree::root(), DEPTH).nodes(2).workers(2);
        let scaler = job.scaler();
        let mut turn = 0;
        let job = job.on_progress(Duration::from_millis(20), move |_| {
            turn += 1;
            // Sometimes there is no node at all; the next iteration adds some again.
            let nodes = if turn % 4 == 3 { 0 } else { hash(round * 1_000 + turn) % 5 };
            scaler.scale_to(usize::try_from(nodes).unwrap());
        });
        let report = job.run().unwrap();
        assert_eq!(report.output, count, "round {round}");
        assert_eq!(report.var::<Largest>().as_deref(), Some(&largest), "round {round}");
    }
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
            thread::yield_now();
        }
        Outcome::Migrate
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn stopped_job_report_is_not_finished() {
    for nodes in [1, 3] {
        let seen = Arc::new(AtomicU64::new(0));
        let job = Job::new(Endless, ()).nodes(nodes).workers(2);
        let (stopper, watched) = (job.stopper(), Arc::clone(&seen));
        let job = job.on_progress(Duration::from_millis(5), move |progress| {
            watched.store(progress.figures.worked, Relaxed);
            if progress.figures.worked > 0 {
                stopper.stop();
            }
        });
        let started = Instant::now();
        let report = job.run().unwrap();
        assert!(!report.finished);
        assert!(report.figures.worked >= seen.load(Relaxed) && seen.load(Relaxed) > 0);
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

/// Fails in one of several ways.
#[derive(Debug, Serialize, Deserialize)]
enum Faulty {
    Panics,
    Deserts,
}

impl Task for Faulty {
    type Shared = ();
    type Output = ();

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        match self {
            Self::Panics => panic!("the program's mistake"),
            Self::Deserts => Outcome::Migrate,
        }
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn program_error_fails_the_job_with_its_reason() {
    for (task, says) in [(Faulty::Panics, "the program's mistake"), (Faulty::Deserts, "Migrate")] {
        match Job::new(task, ()).workers(2).run() {
            Err(JobError::Failed { reason }) => assert!(reason.contains(says), "{reason}"),
            other => panic!("expected a failed job, got {other:?}"),
        }
    }
}

/// A value that can be encoded only if it is even.
#[derive(Debug, Deserialize)]
struct Odd(u64);

impl Serialize for Odd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 2 == 1 {
            return Err(serde::ser::Error::custom(format!("{} is odd", self.0)));
        }
        serializer.serialize_u64(self.0)
    }
}

struct OddVariable;

impl Variable for OddVariable {
    type Value = Odd;
    const NAME: &'static str = "odd";
    fn improves(new: &Odd, old: &Odd) -> bool {
        new.0 > old.0
    }
}

/// Finds a solution that cannot be sent to other nodes.
#[derive(Debug, Serialize, Deserialize)]
struct Silent;

impl Task for Silent {
    type Shared = ();
    type Output = u64;

    fn variables(declare: &mut Variables) {
        declare.declare::<OddVariable>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        cx.set_var::<OddVariable>(Odd(7));
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn variable_that_cannot_be_encoded_fails_the_job() {
    match Job::new(Silent, ()).workers(1).run() {
        Err(JobError::Failed { reason }) => assert!(reason.contains("7 is odd"), "{reason}"),
        other => panic!("expected a failed job, got {other:?}"),
    }
}

#[test]
fn zero_nodes_or_workers_are_refused() {
    for job in
        [Job::new(Endless, ()).nodes(0), Job::new(Endless, ()).workers(0), Job::new(Endless, ()).nodes(1_000)]
    {
        let error = job.run().unwrap_err();
        assert!(matches!(error, JobError::Count { .. }), "{error}");
    }
}

//! The program's work on workers without a task.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Hooks, Job, Outcome, Task, Variable, Variables};

/// The progress of a job.
struct Stage;

impl Variable for Stage {
    type Value = u64;
    const NAME: &'static str = "stage";

    fn improves(new: &u64, old: &u64) -> bool {
        new > old
    }
}

/// An idle worker has started its own work.
const BEGUN: u64 = 1;
/// It has stopped that for a task.
const LEFT: u64 = 2;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The number of times that an idle worker was asked to stop, in the jobs of each test.
static STOPPED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A task that waits until an idle worker has started its own work, gives it a task, and waits until that has
/// started, too.
#[derive(Serialize, Deserialize)]
struct Disturbs {
    is_child: bool,
}

impl Disturbs {
    const ROOT: Self = Self { is_child: false };
}

impl Task for Disturbs {
    /// The number of the test.
    type Shared = usize;
    type Output = u64;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().idle(|idle| {
        idle.set_var::<Stage>(idle.get_var::<Stage>().map_or(BEGUN, |stage| *stage));
        let until = Instant::now() + TIME_LIMIT;
        while !idle.stops() && Instant::now() < until {
            thread::yield_now();
        }
        assert!(idle.stops(), "it remains true");
        STOPPED[*idle.shared()].fetch_add(1, Relaxed);
        Some(Duration::ZERO)
    });

    fn variables(declare: &mut Variables) {
        declare.declare::<Stage>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        *cx.output() += 1;
        if self.is_child {
            cx.set_var::<Stage>(LEFT);
            return Outcome::Complete;
        }
        let until = Instant::now() + TIME_LIMIT;
        loop {
            if cx.migrate() {
                *cx.output() -= 1;
                return Outcome::Migrate;
            }
            match cx.get_var::<Stage>() {
                Some(&LEFT) => return Outcome::Complete,
                Some(_) => cx.potential_split(self),
                None => {}
            }
            assert!(Instant::now() < until, "no worker is idle, or one does not stop its own work");
            thread::yield_now();
        }
    }

    fn split(&mut self, _: &usize) -> Option<Self> {
        Some(Self { is_child: true })
    }
}

#[test]
fn idle_worker_stops_its_own_work_for_a_task_of_its_node() {
    let report = Job::new(Disturbs::ROOT, 0).workers(2).run().unwrap();
    assert!(report.output >= 2, "the root and what was split off");
    assert!(STOPPED[0].load(Relaxed) >= 1);
}

#[test]
fn idle_node_steals_during_its_worker_own_work() {
    let report = Job::new(Disturbs::ROOT, 1).nodes(2).workers(1).run().unwrap();
    assert!(report.output >= 2, "the root and what was stolen");
    assert!(STOPPED[1].load(Relaxed) >= 1);
}

/// A task that waits until the program has panicked elsewhere.
#[derive(Debug, Serialize, Deserialize)]
struct Waits;

impl Task for Waits {
    type Shared = ();
    type Output = u64;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().idle(|_| panic!("an idle worker of the test"));

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let until = Instant::now() + TIME_LIMIT;
        while !cx.migrate() {
            assert!(Instant::now() < until, "the job continues although the program has panicked");
            thread::yield_now();
        }
        Outcome::Migrate
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn idle_worker_panic_fails_the_job() {
    let failed = Job::new(Waits, ()).workers(2).run();
    let said = failed.unwrap_err().to_string();
    assert!(said.contains("Hooks::idle") && said.contains("an idle worker of the test"), "{said}");
}

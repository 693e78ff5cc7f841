//! Tasks that spawn others and wait: for spawned tasks, on several nodes, and for external events.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, JobError, NodeId, Outcome, Task, Waker};

/// Adds up the numbers of a range by halving it, phase by phase: each phase starts after the previous one is complete.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sum {
    from: u64,
    to: u64,
    /// The phase and the number of phases, for the whole range; `None` for parts.
    phase: u64,
    phases: u64,
    waits: bool,
}

/// The added numbers of all phases, and the nodes that added them: all are in this process.
static ADDED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
static NODES: Mutex<BTreeSet<NodeId>> = Mutex::new(BTreeSet::new());

const PHASES: u64 = 3;
const NUMBERS: u64 = 1 << 9;

impl Sum {
    /// Checks that everything was added up to this phase.
    fn check(&self, phase: u64) {
        let added = ADDED.lock().unwrap();
        assert!(
            (self.from..self.to).all(|number| added.contains(&(phase, number))),
            "{self:?} continued too early"
        );
    }

    fn halves(&self) -> [Self; 2] {
        let middle = u64::midpoint(self.from, self.to);
        let half = |from, to| Self { from, to, phases: 0, waits: false, ..self.clone() };
        [half(self.from, middle), half(middle, self.to)]
    }
}

impl Task for Sum {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if std::mem::take(&mut self.waits) {
            self.check(self.phase);
            self.phase += 1;
            if self.phase >= self.phases {
                return Outcome::Complete;
            }
        }
        if self.to - self.from > 4 {
            self.halves().into_iter().for_each(|half| cx.spawn(half));
            self.waits = true;
            return Outcome::Wait;
        }
        while self.from < self.to {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            // Gives other nodes time to steal.
            thread::sleep(Duration::from_micros(200));
            assert!(ADDED.lock().unwrap().insert((self.phase, self.from)), "{self:?} is done twice");
            *cx.output() += self.from;
            self.from += 1;
        }
        NODES.lock().unwrap().insert(cx.node());
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn phases_of_spawned_tasks_follow_each_other_on_four_nodes() {
    let root = Sum { from: 0, to: NUMBERS, phase: 0, phases: PHASES, waits: false };
    let report = Job::new(root, ()).nodes(4).workers(2).run().unwrap();
    assert_eq!(report.output, PHASES * NUMBERS * (NUMBERS - 1) / 2);
    assert!(NODES.lock().unwrap().len() > 1, "all was done on one node");
}

/// Whether the second of two tasks has run, and the waker of the first one.
static RUNG: AtomicBool = AtomicBool::new(false);
static DOORBELL: Mutex<Option<Waker>> = Mutex::new(None);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Two tasks, of which the first spawns the second and waits for it, on a single worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Pair {
    Root,
    Waits,
    Rings,
}

impl Task for Pair {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        match self {
            Self::Root => {
                cx.spawn(Self::Rings);
                cx.spawn(Self::Waits);
            }
            Self::Waits => {
                CALLS.fetch_add(1, Relaxed);
                // Registered before the check, so that no event is missed.
                *DOORBELL.lock().unwrap() = Some(cx.waker());
                if !RUNG.load(Relaxed) {
                    return Outcome::Wait;
                }
                *cx.output() += 1;
            }
            Self::Rings => {
                // Neither a task nor a thread of the runtime.
                thread::spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    RUNG.store(true, Relaxed);
                    loop {
                        match DOORBELL.lock().unwrap().take() {
                            Some(waker) => return waker.wake(),
                            None => thread::yield_now(),
                        }
                    }
                });
                *cx.output() += 10;
            }
        }
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn task_that_waits_for_an_external_event_frees_its_worker() {
    let report = Job::new(Pair::Root, ()).workers(1).run().unwrap();
    assert_eq!(report.output, 11);
    assert!(CALLS.load(Relaxed) >= 2, "it has waited");
}

/// A task that waits although nothing will ever happen.
#[derive(Debug, Serialize, Deserialize)]
struct Forgetful;

impl Task for Forgetful {
    type Shared = ();
    type Output = ();

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        Outcome::Wait
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn job_with_a_task_that_waits_for_nothing_fails() {
    let error = Job::new(Forgetful, ()).workers(1).run().unwrap_err();
    let JobError::Failed { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("returned Wait, but nothing can end that"), "{reason}");
}

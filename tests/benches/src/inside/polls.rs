//! The cost of a task's check for requests, while there are none.

use std::{
    hint,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, Outcome, Task, Variable, Variables};

use crate::{
    measure::Sample,
    row::{Row, Target},
};

const ASKED: u32 = 100_000_000;

/// The measurements of a run. They are not outputs, because those belong to the job's result.
static TOOK: Mutex<Vec<(Duration, Duration)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(Duration, Duration)>> {
    TOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Best;

impl Variable for Best {
    type Value = u64;
    const NAME: &'static str = "best";

    fn improves(new: &u64, old: &u64) -> bool {
        new < old
    }
}

#[derive(Serialize, Deserialize)]
struct Asks;

impl Task for Asks {
    type Shared = ();
    type Output = u64;

    fn variables(declare: &mut Variables) {
        declare.declare::<Best>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        cx.set_var::<Best>(1);
        let started = Instant::now();
        for _ in 0..ASKED {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            cx.potential_split(self);
            // As in a search: nothing better can be found if the incumbent is already optimal.
            if cx.get_var::<Best>().is_some_and(|best| *best == 0) {
                return Outcome::Complete;
            }
        }
        let asked = started.elapsed();
        let started = Instant::now();
        for _ in 0..ASKED {
            hint::black_box(cx.has_requests());
        }
        lock().push((asked, started.elapsed()));
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

/// Runs the benchmark.
///
/// # Errors
/// If a job fails.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    for _ in 0..rounds {
        Job::new(Asks, ()).workers(1).run()?;
    }
    let took = std::mem::take(&mut *lock());
    let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(ASKED);
    let all = Sample::of(took.iter().map(|(all, _)| each(*all)));
    let one = Sample::of(took.iter().map(|(_, one)| each(*one)));
    Ok(vec![
        Row::new("migrate, potential_split and get_var, together", "ns", Target::AtMost(2.0), all),
        Row::new("has_requests", "ns", Target::Told, one),
    ])
}

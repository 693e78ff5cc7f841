//! The programs of simulated workflows: random sequences of calls and waits over some variables, determined
//! by a seed. The same steps are executed by the framework (`program.rs`), and sequentially on plain values
//! (`reference.rs`).

mod program;
mod reference;
mod tasks;

use std::fmt;

use rand::{Rng as _, rngs::SmallRng, seq::IndexedRandom as _};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    program::{FAILURE, Flow},
    tasks::{ENDLESS, forget_tries},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    /// The number of variables, all of which the program creates at its start, and reads at its end.
    variables: usize,
    steps: Vec<Step>,
    /// Whether the program fails at its end.
    fails: bool,
}

/// A step of a program. Variables are given by their numbers; unless stated otherwise, a variable that is not
/// updated is replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Step {
    /// The program provides a value.
    Bring { to: usize, seed: u64, bytes: usize },
    /// A call creates a value from the program's last read.
    Make { to: usize, seed: u64, bytes: usize },
    /// A call adds one variable to another.
    Add { on: usize, by: usize, priority: i32 },
    /// A call creates one value from two.
    Both { to: usize, of: [usize; 2] },
    /// A call creates one value from many.
    Gather { to: usize, of: Vec<usize> },
    /// A call creates two values from one.
    Parts { of: usize, to: [usize; 2] },
    /// The program keeps a snapshot.
    Copy { of: usize, to: usize },
    /// Calls merge many into one.
    Reduce { to: usize, of: Vec<usize> },
    /// Calls add up many values in any order: as a reduction, or one after another.
    Sum { to: usize, of: Vec<usize> },
    /// A call updates a variable, unless it fails.
    Try { on: usize },
    /// As `Try`, and it creates another value; its failure is ignored.
    TryOrNot { on: usize, to: usize },
    /// A call creates one value from another, and fails the first times.
    Flaky { of: usize, to: usize },
    /// A call creates one value from another, unless it panics.
    Panic { of: usize, to: usize },
    /// The program reads a variable.
    Read { of: usize },
    /// The program reads and changes a variable.
    Change { on: usize, by: u64 },
    /// The program does nothing for a while.
    Pause { ms: u64 },
    /// The program waits for all calls so far.
    Barrier,
    /// The program makes a chain of calls and calls that never end by themselves, and cancels them.
    Cancelled { seed: u64, calls: usize },
    /// The program makes a call for each of some variables, and waits for these calls.
    Group { on: Vec<usize> },
}

/// The maximum size of a value, in bytes: more than a message takes.
const BYTES_MAX: usize = 600 << 10;

impl Recipe {
    pub(crate) fn draw(random: &mut SmallRng) -> Self {
        let variables = random.random_range(2..=8);
        let count = random.random_range(5..=60);
        // Some programs hardly ever wait; others always do.
        let reads = random.random_range(0..30);
        let fails = random.random_range(0..10);
        let draw = |_| match random.random_range(0..100) {
            at if at < reads => waiting(random, variables),
            at if at < reads + fails => failing(random, variables),
            _ => computing(random, variables),
        };
        let steps = (0..count).map(draw).collect();
        // One in twelve, without a draw that would change all other plans.
        Self { variables, steps, fails: count % 12 == 7 }
    }

    /// Returns the approximate number of its calls.
    pub(crate) fn calls(&self) -> usize {
        let of = |step: &Step| match step {
            Step::Reduce { of, .. } | Step::Sum { of, .. } | Step::Group { on: of } => of.len(),
            Step::Cancelled { calls, .. } => calls + 1,
            _ => 1,
        };
        self.variables + self.steps.iter().map(of).sum::<usize>()
    }

    /// Returns whether the program fails at its end.
    pub(crate) fn fails(&self) -> bool {
        self.fails
    }

    /// Returns its reads in order: `None` for failed ones.
    pub(crate) fn expected(&self) -> Vec<Option<u64>> {
        reference::run(self)
    }
}

/// Draws a step that makes calls.
fn computing(random: &mut SmallRng, variables: usize) -> Step {
    let mut any = || random.random_range(0..variables);
    let (to, of, other) = (any(), any(), any());
    let some: Vec<_> = (0..of + 2).map(|_| any()).collect();
    let bytes = if random.random_range(0..12) == 0 { BYTES_MAX } else { 40 };
    let (seed, bytes) = (random.random(), random.random_range(0..bytes));
    match random.random_range(0..20) {
        0 => Step::Bring { to, seed, bytes },
        1..4 => Step::Make { to, seed, bytes },
        4..10 => Step::Add { on: to, by: of, priority: [0, 0, 0, 5][random.random_range(0..4)] },
        10..13 => Step::Both { to, of: [of, other] },
        13 => Step::Gather { to, of: some },
        14 => Step::Parts { of, to: [to, other] },
        15..17 => Step::Copy { of, to },
        17 if to % 2 == 0 => Step::Reduce { to, of: some },
        17 => Step::Sum { to, of: some },
        18 => Step::Flaky { of, to },
        _ => Step::Cancelled { seed, calls: of + 1 },
    }
}

/// Draws a step in which a call may fail.
fn failing(random: &mut SmallRng, variables: usize) -> Step {
    let (of, to) = (random.random_range(0..variables), random.random_range(0..variables));
    match random.random_range(0..4) {
        0 => Step::Try { on: of },
        1 | 2 => Step::TryOrNot { on: of, to },
        _ => Step::Panic { of, to },
    }
}

/// Draws a step in which the program waits.
fn waiting(random: &mut SmallRng, variables: usize) -> Step {
    let of = random.random_range(0..variables);
    match random.random_range(0..10) {
        0..5 => Step::Read { of },
        5 | 6 => Step::Change { on: of, by: random.random() },
        7 => Step::Pause { ms: [1, 50, 400, 1_500].choose(random).copied().unwrap_or(1) },
        8 => Step::Barrier,
        _ => Step::Group { on: (0..=of).collect() },
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a workflow of {} variables and {} steps", self.variables, self.steps.len())
    }
}

//! Runs of many seeds, on all processors.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    invariants::i9_history,
    plan::{Fault, Plan, Rates, Without},
    run::{self, Outcome},
    shares::SharesSeen,
    workload::{self, Shape},
};

/// The options of a campaign.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The seeds.
    pub seeds: Range<u64>,
    /// The number of nodes at the start of a cluster; by default it depends on the seed, 3 to 12.
    pub nodes: Option<usize>,
    /// The time after which no further seed is started.
    pub time: Option<Duration>,
    /// Whether to continue after a failed seed.
    pub keep_going: bool,
    /// Run only seeds whose plans are of these kinds, separated by commas.
    pub kind: Option<String>,
}

/// A failed seed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The kind of its plan.
    pub kind: String,
    /// The violations, in the order in which they were detected.
    pub violations: Vec<String>,
}

/// The results of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The number of seeds run.
    pub seeds: u64,
    /// The failed seeds, in order.
    pub failures: Vec<Failure>,
    /// The number of events in all runs: messages, requests, answers, faults.
    pub events: u64,
    /// The number of states visited.
    pub states: u64,
    /// The number of attempts of all jobs.
    pub attempts: u64,
    /// The virtual time, in milliseconds.
    pub virtual_ms: u64,
    /// The shares of jobs that differ in their weights.
    pub shares: SharesSeen,
    /// Real time, in seconds.
    pub seconds: f64,
}

/// The results of one run.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The plan, in words.
    pub plan: String,
    /// The violations.
    pub violations: Vec<String>,
    /// The trace of all events, one line each, if requested.
    pub trace: Vec<String>,
    /// A fingerprint of the history; equal for equal histories.
    pub fingerprint: u64,
    /// The time at which the job was over, in virtual milliseconds.
    pub over_ms: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// The shares of jobs that differ in their weights.
    pub shares: SharesSeen,
}

/// Returns the kind of a seed's plan, in lower case.
pub fn kind(seed: u64) -> String {
    format!("{:?}", Plan::new(seed, None).kind).to_lowercase()
}

/// Runs one seed without a part of its plan. `without_faults` are indices into the plan's list of faults.
pub fn replay(
    seed: u64,
    nodes: Option<usize>,
    without_faults: &BTreeSet<usize>,
    without_rates: bool,
    keep_trace: bool,
) -> Replay {
    let without = Without { faults: without_faults.clone(), rates: without_rates };
    let plan = Plan::new(seed, nodes).without(&without);
    Replay::of(&plan, run::run(&plan, keep_trace))
}

impl Replay {
    fn of(plan: &Plan, outcome: Outcome) -> Self {
        let violations = outcome.violations.iter().map(ToString::to_string).collect();
        let mut seen = SharesSeen::default();
        let Outcome { trace, fingerprint, over_ms, attempts, shares, .. } = outcome;
        if let Some(shares) = shares {
            seen.add(shares);
        }
        Self { plan: plan.to_string(), violations, trace, fingerprint, over_ms, attempts, shares: seen }
    }
}

/// Runs a plan. Some plans are run twice and must then produce the same history (I9).
fn run_one(plan: &Plan) -> Outcome {
    let mut outcome = run::run(plan, false);
    if plan.seed.is_multiple_of(TWICE_IN) {
        let again = run::run(plan, false).fingerprint;
        outcome.violations.extend(i9_history::check(outcome.fingerprint, again, outcome.over_ms));
    }
    outcome
}

/// One seed in this many is run twice.
const TWICE_IN: u64 = 16;

/// Searches the tree T1 of Unbalanced Tree Search on eight nodes, of which some leave, some join, and one
/// dies. Returns the tree's size according to a sequential loop, and the results of the run, in which the
/// job's own count is compared with it.
pub fn uts_t1(seed: u64) -> (u64, Replay) {
    let shape = Shape::Uts { seed: 19, mean: 4.0, depth: 10 };
    let states = workload::states(&shape);
    let faults = vec![
        (300, Fault::Drain),
        (500, Fault::Join),
        (700, Fault::Kill),
        (2_500, Fault::Join),
        (3_000, Fault::Drain),
        (3_200, Fault::ServersAway { ms: 300 }),
    ];
    let (slice_ms, slice_states) = (1, 200);
    let drawn = Plan::new(seed, Some(8));
    let plan = Plan { workers: 2, shape, slice_ms, slice_states, rates: Rates::default(), faults, ..drawn };
    (states, Replay::of(&plan, run::run(&plan, false)))
}

/// Runs all seeds of a campaign. `progress` is called periodically with the tally.
pub fn run(campaign: &Campaign, progress: &(dyn Fn(&Tally) + Sync)) -> Tally {
    let started = Instant::now();
    let next = AtomicU64::new(campaign.seeds.start);
    let enough = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    let late = campaign.time.is_some_and(|time| started.elapsed() >= time);
                    if seed >= campaign.seeds.end || late || enough.load(Relaxed) {
                        return;
                    }
                    let plan = Plan::new(seed, campaign.nodes);
                    let kind = format!("{:?}", plan.kind);
                    let is_wanted = |kinds: &String| {
                        kinds.split(',').any(|wanted| wanted.trim().eq_ignore_ascii_case(&kind))
                    };
                    if !campaign.kind.as_ref().is_none_or(is_wanted) {
                        continue;
                    }
                    let outcome = run_one(&plan);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.add(&plan, &outcome);
                    tally.seconds = started.elapsed().as_secs_f64();
                    if !tally.failures.is_empty() && !campaign.keep_going {
                        enough.store(true, Relaxed);
                    }
                    progress(&tally);
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.failures.sort_by_key(|failure| failure.seed);
    tally
}

impl Tally {
    fn add(&mut self, plan: &Plan, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.counts.events;
        self.states += outcome.counts.states;
        self.attempts += u64::from(outcome.attempts);
        self.virtual_ms += outcome.over_ms;
        if let Some(shares) = outcome.shares {
            self.shares.add(shares);
        }
        if !outcome.violations.is_empty() {
            let violations = outcome.violations.iter().map(ToString::to_string).collect();
            let kind = format!("{:?}", plan.kind);
            self.failures.push(Failure { seed: plan.seed, kind, violations });
        }
    }
}

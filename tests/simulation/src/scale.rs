//! Measurements of scaling: clusters of ten to a thousand nodes without faults, some whose size doubles
//! during the job, and some that lose nodes repeatedly.
//!
//! The figures refer to virtual time. A message takes a millisecond, a request to the servers one in each
//! direction; the duration of a state is such that every node has about the same work, whatever their number.

use std::collections::BTreeSet;

use crate::{
    plan::{Fault, Kind, Plan, Rates},
    run::{self, Outcome},
    workload::{self, Shape},
};

/// The work of each node, in virtual milliseconds: the duration of the job without any overhead.
const WORK_MS: u64 = 20_000;
/// The time at which the second half of the nodes joins, in virtual milliseconds, where the number doubles.
const DOUBLED_AT_MS: u64 = 5_000;

/// The number of nodes up to which the invariants are checked in each run.
const CHECKED_NODES_MAX: usize = 200;

/// The work of each node where nodes are lost, in virtual milliseconds: long enough for several losses.
const LOSSY_WORK_MS: u64 = 60_000;

/// The measurements for one number of nodes.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The number of nodes, with one worker each.
    pub nodes: usize,
    /// The number of states in the tree.
    pub states: u64,
    /// The time from the submission to the result, in virtual milliseconds.
    pub took_ms: u64,
    /// The duration of the work, divided by the time available to the workers.
    pub efficiency: f64,
    /// The number of grants that carried tasks, per node.
    pub steals: f64,
    /// Reads from the servers per second, of all nodes together.
    pub reads_per_s: f64,
    /// Writes to the servers per second, including multis.
    pub writes_per_s: f64,
    /// Messages between nodes, per node and second.
    pub messages_per_s: f64,
    /// The time until nine in ten of the nodes that joined the running job were working, in virtual
    /// milliseconds, where the number doubled.
    pub absorbed_ms: u64,
}

/// The measurements for one number of nodes, of which one is repeatedly lost and replaced.
#[derive(Debug, Clone, Copy)]
pub struct Losses {
    /// The number of nodes, with one worker each.
    pub nodes: usize,
    /// The number of nodes that were lost.
    pub lost: u64,
    /// Without losses.
    pub steady: Share,
    /// With losses.
    pub lossy: Share,
}

/// The performance and the cost of a run.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The time from the submission to the result, in virtual milliseconds.
    pub took_ms: u64,
    /// The duration of the work, divided by the time available to the workers.
    pub efficiency: f64,
    /// Writes to the servers per second, including multis.
    pub writes_per_s: f64,
}

/// Measures for one number of nodes, of which one is lost every this many seconds, and replaced by a new one
/// at the same moment.
///
/// # Panics
/// If an invariant is broken in a run.
pub fn measure_losses(nodes: usize, seed: u64, every_s: u64) -> Losses {
    let steady = plan(nodes, seed, LOSSY_WORK_MS, Vec::new());
    // The job ends before the last loss, unless it takes twice the time.
    let last_ms = 2 * LOSSY_WORK_MS;
    let moments = (1..=last_ms / 1000 / every_s).map(|number| 1000 * every_s * number);
    let faults: Vec<_> = moments.flat_map(|at| [(at, Fault::Kill), (at, Fault::Join)]).collect();
    let lossy = Plan { calm_ms: last_ms + 1, ..plan(nodes, seed, LOSSY_WORK_MS, faults) };
    let share = |plan: &Plan| {
        let outcome = run::run(plan, false);
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        assert!(outcome.attempts == 1, "{} attempts", outcome.attempts);
        Share {
            took_ms: outcome.over_ms,
            efficiency: work_ms(plan) / (nodes as f64 * outcome.over_ms as f64),
            writes_per_s: outcome.counts.writes as f64 * 1000.0 / outcome.over_ms as f64,
        }
    };
    let (steady, lossy) = (share(&steady), share(&lossy));
    Losses { nodes, lost: lossy.took_ms / (1000 * every_s), steady, lossy }
}

/// Measures for one number of nodes.
///
/// # Panics
/// If an invariant is broken in a run.
pub fn measure(nodes: usize, seed: u64) -> Point {
    let plan = |faults| plan(nodes, seed, WORK_MS, faults);
    let steady = play(&plan(Vec::new()));
    let seconds = steady.over_ms as f64 / 1000.0;
    let half = nodes.div_ceil(2);
    let doubling = vec![(DOUBLED_AT_MS, Fault::Join); nodes - half];
    let doubled = play(&Plan { nodes: half, ..plan(doubling) });
    assert!(steady.violations.is_empty() && doubled.violations.is_empty(), "{:?}", steady.violations);
    let plan = plan(Vec::new());
    let began: Vec<u64> = doubled.first_work.iter().filter(|at| **at >= DOUBLED_AT_MS).copied().collect();
    let most = ((nodes - half) * 9).div_ceil(10);
    let absorbed = began.get(most.saturating_sub(1)).map_or(0, |at| at - DOUBLED_AT_MS);
    Point {
        nodes,
        states: workload::states(&plan.shape),
        took_ms: steady.over_ms,
        efficiency: work_ms(&plan) / (nodes as f64 * steady.over_ms as f64),
        steals: steady.counts.grants as f64 / nodes as f64,
        reads_per_s: steady.counts.reads as f64 / seconds,
        writes_per_s: steady.counts.writes as f64 / seconds,
        messages_per_s: steady.counts.messages as f64 / nodes as f64 / seconds,
        absorbed_ms: absorbed,
    }
}

/// Runs a plan; small clusters with all checks.
fn play(plan: &Plan) -> Outcome {
    let most = plan.nodes + plan.faults.len();
    if most <= CHECKED_NODES_MAX { run::run(plan, false) } else { run::run_unchecked(plan) }
}

/// Returns the duration of the work for a single worker, in virtual milliseconds.
fn work_ms(plan: &Plan) -> f64 {
    workload::states(&plan.shape) as f64 * plan.slice_ms as f64 / plan.slice_states as f64
}

fn plan(nodes: usize, seed: u64, node_work_ms: u64, faults: Vec<(u64, Fault)>) -> Plan {
    // Slices of ten milliseconds.
    let wanted = nodes as u64 * node_work_ms / 10;
    let (shape, states) = tree(wanted, seed);
    let slice_states = usize::try_from(states.div_ceil(wanted)).unwrap_or(usize::MAX);
    let slices = states / slice_states as u64;
    Plan {
        seed,
        kind: Kind::Quiet,
        nodes,
        workers: 1,
        shape,
        limits: taskwork::Limits::default(),
        slice_ms: (nodes as u64 * node_work_ms / slices).max(1),
        slice_states,
        rates: Rates::default(),
        faults,
        calm_ms: 0,
        newcomers: 0,
        attempts_max: 1_000,
        later: Vec::new(),
        others: 0,
        labelled: 0,
        retries: 0,
        added: Vec::new(),
    }
}

/// Returns the smallest of some random trees that has at least this many states.
fn tree(wanted: u64, seed: u64) -> (Shape, u64) {
    let mut tried = BTreeSet::new();
    for depth in 6.. {
        let shape = Shape::Random { seed, mean: 3, depth };
        let states = workload::states(&shape);
        tried.insert(states);
        if states >= wanted {
            return (shape, states);
        }
        assert!(tried.len() < 40, "no tree is large enough");
    }
    unreachable!("depths do not end")
}

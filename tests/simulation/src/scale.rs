//! Measurements of scaling: clusters of ten to a thousand nodes without faults, and some whose size doubles
//! during the job.
//!
//! The figures refer to virtual time. A message takes a millisecond, a request to the servers one in each
//! direction; the duration of a state is such that every node has about the same work, whatever their number.

use std::collections::BTreeSet;

use crate::{
    plan::{Fault, Kind, Plan, Rates},
    run,
    workload::{self, Shape},
};

/// The work of each node, in virtual milliseconds: the duration of the job without any overhead.
const WORK_MS: u64 = 20_000;
/// The time at which the second half of the nodes joins, in virtual milliseconds, where the number doubles.
const DOUBLED_AT_MS: u64 = 5_000;

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

/// Measures for one number of nodes.
///
/// # Panics
/// If an invariant is broken in a run.
pub fn measure(nodes: usize, seed: u64) -> Point {
    let steady = run::run(&plan(nodes, seed, Vec::new()), false);
    let seconds = steady.over_ms as f64 / 1000.0;
    let half = nodes.div_ceil(2);
    let doubling = vec![(DOUBLED_AT_MS, Fault::Join); nodes - half];
    let doubled = run::run(&Plan { nodes: half, ..plan(nodes, seed, doubling) }, false);
    assert!(steady.violations.is_empty() && doubled.violations.is_empty(), "{:?}", steady.violations);
    let plan = plan(nodes, seed, Vec::new());
    let states = workload::states(&plan.shape);
    let work_ms = states as f64 * plan.slice_ms as f64 / plan.slice_states as f64;
    let began: Vec<u64> = doubled.first_work.iter().filter(|at| **at >= DOUBLED_AT_MS).copied().collect();
    let most = ((nodes - half) * 9).div_ceil(10);
    let absorbed = began.get(most.saturating_sub(1)).map_or(0, |at| at - DOUBLED_AT_MS);
    Point {
        nodes,
        states,
        took_ms: steady.over_ms,
        efficiency: work_ms / (nodes as f64 * steady.over_ms as f64),
        steals: steady.counts.grants as f64 / nodes as f64,
        reads_per_s: steady.counts.reads as f64 / seconds,
        writes_per_s: steady.counts.writes as f64 / seconds,
        messages_per_s: steady.counts.messages as f64 / nodes as f64 / seconds,
        absorbed_ms: absorbed,
    }
}

fn plan(nodes: usize, seed: u64, faults: Vec<(u64, Fault)>) -> Plan {
    // Slices of ten milliseconds.
    let wanted = nodes as u64 * WORK_MS / 10;
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
        slice_ms: (nodes as u64 * WORK_MS / slices).max(1),
        slice_states,
        rates: Rates::default(),
        faults,
        calm_ms: 0,
        newcomers: 0,
        attempts_max: 1_000,
        later: Vec::new(),
        others: 0,
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

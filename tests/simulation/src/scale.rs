//! How the runtime scales: clusters of ten to a thousand nodes in which nothing goes wrong, and some that
//! double while they work.
//!
//! The figures are of virtual time. A message takes a millisecond, a request to the servers takes one there
//! and one back; a state takes so long that every node has about the same to do, whatever their number.

use std::collections::BTreeSet;

use crate::{
    plan::{Fault, Kind, Plan, Rates},
    run,
    workload::{self, Shape},
};

/// How long the work of each node is, in virtual milliseconds: what the job would take if nothing was ever
/// lost.
const WORK_MS: u64 = 20_000;
/// When the second half of the nodes joins, where one does.
const DOUBLED_AT_MS: u64 = 5_000;

/// What was measured for one number of nodes.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// How many nodes, of one worker each.
    pub nodes: usize,
    /// The states of the tree.
    pub states: u64,
    /// From the submission to the result, in virtual milliseconds.
    pub took_ms: u64,
    /// The time that the work takes, over the time that the workers had.
    pub efficiency: f64,
    /// Grants that carried tasks, by node.
    pub steals: f64,
    /// Requests to the servers in a second, by all nodes together.
    pub reads_per_s: f64,
    /// Writes to the servers in a second, multis included.
    pub writes_per_s: f64,
    /// Messages between nodes, by node and second.
    pub messages_per_s: f64,
    /// How long it took until nine in ten of the nodes that joined a running job were at work, in virtual
    /// milliseconds, when their number doubled.
    pub absorbed_ms: u64,
}

/// Measures for one number of nodes.
///
/// # Panics
/// If an invariant is broken on the way.
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

/// The smallest of some random trees that has at least so many states.
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

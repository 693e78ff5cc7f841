//! Long runs without faults, to check their leftovers: hundreds of jobs in a row, or a thousand nodes that
//! join and leave.

use crate::{
    plan::{Fault, Kind, LaterJob, Plan, Program, Rates},
    run,
    workload::Shape,
};

/// The objects that remain when all work is done, before the last nodes leave.
#[derive(Debug, Clone)]
pub struct Leftovers {
    /// The number of znodes.
    pub znodes: usize,
    /// The number of watches that the nodes hold, including silenced ones.
    pub watches: usize,
    /// The number of members.
    pub members: usize,
    /// The number of pending messages, requests and answers.
    pub under_way: usize,
    /// The violations.
    pub violations: Vec<String>,
}

/// Runs this many small jobs one after another, all submitted at the start.
pub fn jobs_in_a_row(jobs: usize) -> Leftovers {
    let later = |number: usize| LaterJob {
        at_ms: number as u64,
        shape: Shape::Random { seed: number as u64, mean: 2, depth: 3 },
        share: zk::job::Share::default(),
        program: Program::This,
    };
    let plan = Plan { later: (1..jobs).map(later).collect(), ..plan(3, Vec::new(), 3) };
    leftovers(&plan)
}

/// Runs one job that this many nodes join and leave.
pub fn joins_and_leaves(count: usize) -> Leftovers {
    let pair = |number: u64| [(20 * number, Fault::Join), (20 * number + 10, Fault::Drain)];
    leftovers(&plan(4, (0..count as u64).flat_map(pair).collect(), 8))
}

fn plan(nodes: usize, faults: Vec<(u64, Fault)>, depth: u32) -> Plan {
    Plan {
        seed: 7,
        kind: Kind::Quiet,
        nodes,
        workers: 1,
        shape: Shape::Random { seed: 7, mean: 3, depth },
        limits: taskwork::Limits::default(),
        slice_ms: 10,
        slice_states: 1,
        rates: Rates::default(),
        calm_ms: faults.last().map_or(0, |&(at, _)| at + 1),
        faults,
        newcomers: 0,
        attempts_max: 1,
        later: Vec::new(),
        others: 0,
        labelled: 0,
        retries: 0,
        added: Vec::new(),
    }
}

fn leftovers(plan: &Plan) -> Leftovers {
    let outcome = run::run(plan, false);
    let violations = outcome.violations.iter().map(ToString::to_string).collect();
    let run::Census { znodes, watches, members, under_way } = outcome.census;
    Leftovers { znodes, watches, members, under_way, violations }
}

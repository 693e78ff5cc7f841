//! Long runs in which nothing goes wrong, to see what they leave behind: hundreds of jobs in a row, a
//! thousand nodes that come and go.

use crate::{
    plan::{Fault, Kind, LaterJob, Plan, Program, Rates},
    run,
    workload::Shape,
};

/// What there is when everything is done, before the last nodes leave.
#[derive(Debug, Clone)]
pub struct Leftovers {
    /// Znodes in all.
    pub znodes: usize,
    /// Watches that the nodes hold, those included that are silent.
    pub watches: usize,
    /// Nodes that are members.
    pub members: usize,
    /// Messages, requests and answers under way.
    pub under_way: usize,
    /// What went wrong.
    pub violations: Vec<String>,
}

/// So many small jobs one after another, all of which wait from the beginning.
pub fn jobs_in_a_row(jobs: usize) -> Leftovers {
    let later = |number: usize| LaterJob {
        at_ms: number as u64,
        shape: Shape::Random { seed: number as u64, mean: 2, depth: 3 },
        program: Program::This,
    };
    let plan = Plan { later: (1..jobs).map(later).collect(), ..plan(3, Vec::new(), 3) };
    leftovers(&plan)
}

/// So many nodes join one job, and as many leave it.
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
    }
}

fn leftovers(plan: &Plan) -> Leftovers {
    let outcome = run::run(plan, false);
    let violations = outcome.violations.iter().map(ToString::to_string).collect();
    let run::Census { znodes, watches, members, under_way } = outcome.census;
    Leftovers { znodes, watches, members, under_way, violations }
}

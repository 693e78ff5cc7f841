//! Nodes that join a job and leave it again: the experiment of the paper's figures 6 and 7 (Kehrer and
//! Blochinger, "TASKWORK", CLOSER 2019), on node processes of one machine.
//!
//! Ten nodes work on a job. At t1 others are started, at t2 they are asked to leave, and the ten complete the
//! job. It takes as long as the paper's job on ten nodes, so that the changes in speedup can be compared. Its
//! states only wait, so that two processors suffice for fifty nodes.
//!
//! Several clusters run concurrently, each with its own ZooKeeper, since otherwise a round would take half an
//! hour. Only one of them at a time has more than its ten nodes.

pub mod change;
pub mod deadline;
mod job;
mod lanes;
pub mod plot;
mod random;
mod show;
mod stage;
mod trace;

use std::sync::Mutex;

use anyhow::{Context as _, Result};

pub use self::show::Measured;
use self::{
    job::Size,
    random::Survived,
    stage::{Growth, Run, Stage},
};

/// The number of permanent nodes.
const NODES: usize = 10;
/// The numbers of nodes that are added.
const ADDED: [usize; 4] = [10, 20, 30, 40];
/// The times for which they are added, in seconds.
const PHASES_S: [u32; 4] = [2, 5, 10, 15];
/// The number of runs with nodes that join and are lost at random.
const RANDOM_RUNS: u64 = 4;
/// The number of concurrent clusters.
const LANES: usize = 6;

/// The settings to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The number of measurements of each setting.
    pub rounds: usize,
    /// Whether to measure only the smallest and the largest growth, for the longest time.
    pub quick: bool,
}

impl Plan {
    fn growths(self) -> Vec<Growth> {
        let mut growths = Vec::new();
        for phase_s in PHASES_S {
            growths.extend(ADDED.map(|added| Growth { added, phase_s }));
        }
        let ends = [ADDED[0], ADDED[3]];
        growths.retain(|growth| !self.quick || growth.phase_s == PHASES_S[3] && ends.contains(&growth.added));
        growths
    }
}

/// Runs the experiment.
///
/// # Errors
/// If a count is wrong, or a step takes too long.
pub fn run(plan: Plan) -> Result<Measured> {
    let growths = plan.growths();
    let mut work: Vec<(String, Option<Growth>)> = Vec::new();
    for round in 1..=plan.rounds {
        let name = |what: String| format!("round {round} of {}: {what}", plan.rounds);
        // The longest work is first, so that all clusters end a round at about the same time.
        work.push((name(format!("{NODES} nodes")), None));
        work.extend(growths.iter().map(|&growth| (name(growth.to_string()), Some(growth))));
    }
    let turn = Mutex::new(());
    let runs = lanes::run(LANES, &work, Stage::new, |stage, (name, growth)| {
        let run = stage.run(*growth, &turn).with_context(|| format!("{name} failed"))?;
        eprintln!("  {name}: {:.2} s", run.seconds);
        Ok(run)
    })?;
    let mut alone = Vec::new();
    let mut grown: Vec<(Growth, Vec<Run>)> = growths.iter().map(|&growth| (growth, Vec::new())).collect();
    for ((_, setting), run) in work.iter().zip(runs) {
        match grown.iter_mut().find(|(growth, _)| Some(*growth) == *setting) {
            Some((_, runs)) => runs.push(run),
            None => alone.push(run),
        }
    }
    let random = if plan.quick { Vec::new() } else { random_runs()? };
    Ok(Measured { alone, grown, random, states: Size::LONG.states() })
}

fn random_runs() -> Result<Vec<Survived>> {
    let seeds: Vec<u64> = (1..=RANDOM_RUNS).collect();
    lanes::run(
        LANES,
        &seeds,
        || Ok(()),
        |(), &seed| {
            let survived = random::run(seed).with_context(|| format!("the run with seed {seed} failed"))?;
            eprintln!("  at random, seed {seed}: {:.2} s", survived.seconds);
            Ok(survived)
        },
    )
}

//! Small jobs, one after another, on few nodes and on many: the overhead of a job.

use anyhow::{Context as _, Result};
use bnb_problems::uts::Uts;

use super::{start, uts};
use crate::{
    measure::Sample,
    reference::uts::sequential,
    row::{Row, Target},
};

/// The number of jobs submitted to each cluster.
const JOBS: usize = 100;
/// The depth at which the tree T1 is cut off: some microseconds of work.
const DEPTH: u32 = 2;

/// Runs the benchmark.
///
/// # Errors
/// If a count differs from that of the loop.
pub fn run() -> Result<Vec<Row>> {
    let tree = Uts::named("T1").and_then(|tree| tree.to_depth(DEPTH)).context("the tree is known")?;
    let states = sequential(&tree);
    let mut rows = Vec::new();
    for (nodes, target) in [(2, Target::AtMost(30.0)), (40, Target::Told)] {
        let cluster = start("uts", nodes)?;
        let mut times = Vec::new();
        for _ in 0..JOBS {
            times.push(1e3 * uts(&cluster, "T1", states, &["--depth", &DEPTH.to_string()])?.seconds);
        }
        let what = format!("a small job on {nodes} node processes, from its submission to its end");
        rows.push(Row::new(what, "ms", target, Sample::of(times)));
    }
    Ok(rows)
}

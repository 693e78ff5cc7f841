//! The memory that a node uses when idle and when working.

use std::{thread, time::Duration};

use anyhow::Result;

use super::start;
use crate::{
    measure::Sample,
    row::{Row, Target},
};

/// The interval at which the memory is measured.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the benchmark.
///
/// # Errors
/// If the job fails.
pub fn run() -> Result<Vec<Row>> {
    let cluster = start("uts", 2)?;
    let now = || -> Result<f64> {
        let of = cluster.nodes.iter().map(|node| Ok(node.memory_kib()? as f64 / 1024.0));
        Ok(of.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max))
    };
    let idle = now()?;
    let mut job = cluster.begin("uts", &["submit", "T3L", "--wait", "--quiet"])?;
    let mut running: f64 = 0.0;
    while !job.has_ended()? {
        running = running.max(now()?);
        thread::sleep(LOOK_EVERY);
    }
    job.end()?;
    let row = |what, most, mib| Row::new(what, "MiB", Target::AtMost(most), Sample::of([mib]));
    Ok(vec![
        row("memory of a node that waits", 20.0, idle),
        row("memory of a node at work on UTS T3L, the most", 40.0, running),
    ])
}

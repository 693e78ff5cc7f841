//! The time from a job's last task to its end.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use taskwork_tests::cluster::program;

use super::start;
use crate::{
    measure::Sample,
    row::{Row, Target},
};

/// Runs the benchmark.
///
/// # Errors
/// If a job fails.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let cluster = start("ends", 2)?;
    for _ in 0..4 * rounds {
        let said = Command::new(program("ends")?).args(["solve", "--quiet", "--json"]).output()?;
        ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        here.push(late(&serde_json::from_slice(&said.stdout)?)?);
        there.push(late(&cluster.json("ends", &["submit", "--wait", "--quiet"])?)?);
    }
    let row = |what: &str, most, ms| {
        let what = format!("from the end of the last task to the result, {what}");
        Row::new(what, "ms", Target::AtMost(most), Sample::of(ms))
    };
    Ok(vec![row("embedded", 1.0, here), row("2 node processes over ZooKeeper", 20.0, there)])
}

fn late(said: &serde_json::Value) -> Result<f64> {
    said["late_ms"].as_f64().context("the delay is missing")
}

//! Sixty node processes on states that take time, but no processor: the overhead of stealing, joining and
//! accounting.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bnb_problems::uts::Uts;

use super::{start, uts};
use crate::{
    measure::Sample,
    reference::uts::sequential,
    row::{Row, Target},
};

const NODES: usize = 60;
/// The duration of a state: much longer than sixty processes need to take turns on the available processors.
const STATE_US: u64 = 10_000;
/// The depth at which the tree T1 is cut off.
const DEPTH: u32 = 8;

/// Runs the benchmark.
///
/// # Errors
/// If the count differs from that of the loop.
pub fn run() -> Result<Vec<Row>> {
    // A state takes as long as the operating system actually sleeps, which may be longer than requested.
    let started = Instant::now();
    for _ in 0..200 {
        thread::sleep(Duration::from_micros(STATE_US));
    }
    let state = started.elapsed().as_secs_f64() / 200.0;
    let tree = Uts::named("T1").and_then(|tree| tree.to_depth(DEPTH)).context("the tree is known")?;
    let states = sequential(&tree);
    let cluster = start("uts", NODES)?;
    let more = ["--depth", &DEPTH.to_string(), "--wait-us", &STATE_US.to_string()];
    let done = uts(&cluster, "T1", states, &more)?;
    let efficiency = states as f64 * state / (NODES as f64 * done.seconds);
    let steals = done.figures.steals as f64 / NODES as f64;
    let row = |what: &str, unit, target, value| {
        Row::new(format!("60 node processes, states of 10 ms, {what}"), unit, target, Sample::of([value]))
    };
    Ok(vec![
        row("efficiency from the submission to the result", "", Target::AtLeast(0.95), efficiency),
        row("the whole job", "s", Target::Told, done.seconds),
        row("steals by node", "", Target::Told, steals),
    ])
}

//! UTS on a few node processes: speed, the duration of steals, and the requests to `ZooKeeper`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bnb_problems::uts::Uts;

use super::{start, uts};
use crate::{
    measure::Sample,
    reference::uts::sequential,
    row::{Row, Target},
};

const T1: u64 = 4_130_071;
const T1L: u64 = 102_181_082;
const T3L: u64 = 111_345_631;

/// Runs the benchmark.
///
/// # Errors
/// If a count is not the published one.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let tree = Uts::named("T1L").context("the tree is known")?;
    let (mut speedups, mut short, mut half, mut most) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let two = start("uts", 2)?;
    for _ in 0..rounds {
        let started = Instant::now();
        ensure!(sequential(&tree) == T1L, "the loop counts wrongly");
        let alone = started.elapsed().as_secs_f64();
        speedups.push(alone / uts(&two, "T1L", T1L, &[])?.seconds);
        short.push(uts(&two, "T1", T1, &[])?.seconds);
        let times = uts(&two, "T3L", T3L, &[])?.figures.steal_times;
        let us = |time: Option<Duration>| time.context("nothing was stolen").map(|t| t.as_secs_f64() * 1e6);
        half.push(us(times.quantile(0.5))?);
        most.push(us(times.quantile(0.99))?);
    }
    drop(two);
    let four = start("uts", 4)?;
    let (mut transactions, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let figures = uts(&four, "T3L", T3L, &[])?.figures;
        tasks.push(figures.tasks as f64);
        transactions.push(1000.0 * figures.transactions as f64 / figures.tasks as f64);
    }
    let two = "2 node processes over ZooKeeper and QUIC";
    Ok(vec![
        Row::new(
            format!("UTS T1L, {two} ÷ sequential loop"),
            "",
            Target::AtLeast(1.88),
            Sample::of(speedups),
        ),
        Row::new(
            format!("UTS T1, {two}, from the submission to the result"),
            "s",
            Target::AtMost(0.25),
            Sample::of(short),
        ),
        Row::new(
            "steal, from the request to the running task, median",
            "µs",
            Target::AtMost(150.0),
            Sample::of(half),
        ),
        Row::new("steal, the slowest in a hundred", "µs", Target::AtMost(2000.0), Sample::of(most)),
        Row::new(
            "UTS T3L, 4 node processes, transactions by 1,000 tasks",
            "",
            Target::AtMost(20.0),
            Sample::of(transactions),
        ),
        Row::new("UTS T3L, 4 node processes, tasks", "", Target::Told, Sample::of(tasks)),
    ])
}

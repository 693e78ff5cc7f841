//! Small jobs, one after another, on few nodes and on many: the overhead of a job. And next to a long job:
//! the time until a job gets a worker.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bnb_problems::uts::Uts;

use super::{PATIENCE, start, uts};
use crate::{
    measure::Sample,
    reference::uts::sequential,
    row::{Row, Target},
};

/// The number of jobs submitted to each cluster.
const JOBS: usize = 100;
/// The depth at which the tree T1 is cut off: some microseconds of work.
const DEPTH: u32 = 2;
/// A tree that takes minutes.
const LONG: &str = "T1XL";

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
    rows.extend(beside_a_long_one()?);
    Ok(rows)
}

/// Measures the time from the submission of a small job to its first task, on nodes all of whose workers have tasks of
/// another job.
fn beside_a_long_one() -> Result<[Row; 2]> {
    let cluster = start("uts", 2)?;
    let long = cluster.json("uts", &["submit", LONG])?;
    let long = long["job"].as_str().context("no job")?;
    let worked =
        || Ok::<_, anyhow::Error>(cluster.json("taskwork", &["job", long])?["figures"]["worked"].as_u64());
    let deadline = Instant::now() + PATIENCE;
    while worked()?.is_none_or(|worked| worked == 0) {
        ensure!(Instant::now() < deadline, "the long job does not start");
        thread::sleep(Duration::from_millis(100));
    }
    let mut times = Vec::new();
    for _ in 0..JOBS {
        let small = cluster.json("uts", &["submit", "T1", "--depth", &DEPTH.to_string()])?;
        let small = small["job"].as_str().context("no job")?;
        ensure!(cluster.run("taskwork", &["wait", small, "--json"])?.code == 0, "a small job has failed");
        times.push(until_first_task(&cluster.json("taskwork", &["job", small])?)?);
    }
    ensure!(cluster.run("taskwork", &["cancel", long])?.code == 0, "the long job cannot be cancelled");
    times.sort_by(f64::total_cmp);
    let slowest = times[JOBS * 99 / 100];
    let what = "from the submission of a job to its first task, 2 node processes at work on another";
    Ok([
        Row::new(what, "ms", Target::AtMost(100.0), Sample::of(times)),
        Row::new(
            format!("{what}, the slowest in a hundred"),
            "ms",
            Target::AtMost(100.0),
            Sample::of([slowest]),
        ),
    ])
}

/// Returns the milliseconds from a job's submission to the first task on any node.
fn until_first_task(job: &serde_json::Value) -> Result<f64> {
    let at = |kind: &str| {
        let events = job["timeline"].as_array().into_iter().flatten();
        events.filter(|event| event["kind"] == kind).filter_map(|event| event["at_ms"].as_u64()).min()
    };
    let (submitted, first) = at("submitted").zip(at("first_task")).context("the timeline is not complete")?;
    Ok(first.saturating_sub(submitted) as f64)
}

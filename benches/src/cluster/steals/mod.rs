//! The duration of each step of a steal, from the logs of both nodes: UTS on two node processes that share a
//! clock.

use anyhow::{Result, ensure};
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use self::steps::{STAGES, Steal, steals};
use super::uts;
use crate::{
    measure::Sample,
    row::{Row, Target},
};

mod steps;

const T3L: u64 = 111_345_631;
/// The share of the steals that are examined as the slowest.
const SLOW: usize = 100;

/// Runs UTS this many times, and follows each steal through the logs of both nodes.
///
/// # Errors
/// If a count is not the published one, or the logs show no steal.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut cluster = Cluster::start(&Setup::standalone())?;
    let log = ["--log", "info,taskwork::steals=trace", "--log-format", "json"];
    cluster.start_nodes("uts", 2, &[&["--workers", "1"], log.as_slice()].concat())?;
    for _ in 0..rounds {
        uts(&cluster, "T3L", T3L, &[])?;
    }
    let logs = [cluster.log(0), cluster.log(1)];
    drop(cluster);
    let mut all = steals(&logs[0], &logs[1])?;
    all.extend(steals(&logs[1], &logs[0])?);
    ensure!(!all.is_empty(), "the nodes have logged no steal");
    all.sort_by(|a, b| a.total_us().total_cmp(&b.total_us()));
    let slow = &all[all.len() - all.len().div_ceil(SLOW)..];
    let of = |steals: &[Steal], number: usize| {
        let times: Vec<f64> = steals.iter().filter_map(|steal| steal.stages_us[number]).collect();
        (!times.is_empty()).then(|| Sample::of(times))
    };
    let mut rows = vec![
        Row::new("steals", "", Target::Told, Sample::of([all.len() as f64])),
        Row::new("a steal", "µs", Target::Told, Sample::of(all.iter().map(Steal::total_us))),
        Row::new(
            "the slowest in a hundred",
            "µs",
            Target::Told,
            Sample::of(slow.iter().map(Steal::total_us)),
        ),
        Row::new("the fastest of these", "µs", Target::AtMost(1000.0), Sample::of([slow[0].total_us()])),
    ];
    for (number, stage) in STAGES.iter().enumerate() {
        let both = [(&all[..], "all"), (slow, "the slowest")];
        for (sample, whose) in both.iter().filter_map(|(steals, whose)| Some((of(steals, number)?, whose))) {
            rows.push(Row::new(format!("{stage}: {whose}"), "µs", Target::Told, sample));
        }
    }
    Ok(rows)
}

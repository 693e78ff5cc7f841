//! The same jobs on nodes that write their holdings, and on nodes that do not: alternately, on the same
//! ZooKeeper, by the same program.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{cluster::Cluster, data};
use zk_server::Setup;

use super::progress;
use crate::{
    cluster::PATIENCE,
    measure::Sample,
    row::{Row, Target},
};

/// The number of pairs in each round: jobs of a few seconds need many to resolve one percent.
const PAIRS: usize = 2;

/// The names of the clusters, with the write intervals of their nodes in milliseconds.
const WITH: (&str, &str) = ("with", "1000");
const WITHOUT: (&str, &str) = ("without", "0");

/// A job with its result.
struct Measured {
    program: &'static str,
    /// The argument of `submit`, a file if there is one of that name.
    instance: &'static str,
    /// The name and value of its result.
    answer: (&'static str, u64),
    /// The name of the number of states that were visited.
    states: &'static str,
}

const JOBS: [Measured; 3] = [
    Measured { program: "uts", instance: "T1L", answer: ("nodes", 102_181_082), states: "nodes" },
    Measured { program: "uts", instance: "T3L", answer: ("nodes", 111_345_631), states: "nodes" },
    Measured {
        program: "maxclique",
        instance: "clique/brock400_4.clq",
        answer: ("vertices", 33),
        states: "states",
    },
];

/// Runs the comparison on two and on four processes with one worker each.
///
/// # Errors
/// If an answer is wrong.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in [2, 4] {
        for job in &JOBS {
            if job.program != "maxclique" || data::folder().is_some() {
                rows.push(compare(job, nodes, rounds)?);
            }
        }
    }
    Ok(rows)
}

fn compare(job: &Measured, nodes: usize, rounds: usize) -> Result<Row> {
    let mut cluster = Cluster::start(&Setup::standalone())?;
    for (name, interval_ms) in [WITH, WITHOUT] {
        let node = [job.program, "--ledger-interval-ms", interval_ms, "--cluster", name];
        cluster.start_nodes("limited", nodes, &node)?;
    }
    let what = format!("{}, {nodes} processes", job.instance);
    let mut ratios = Vec::new();
    let pairs = rounds * PAIRS;
    // The first pair does not count.
    for pair in 0..=pairs {
        let measure = |(name, _)| job.states_by_second(&cluster, name);
        // The second of a pair finds warmer caches.
        let (with, without) = if pair % 2 == 0 {
            let with = measure(WITH)?;
            (with, measure(WITHOUT)?)
        } else {
            let without = measure(WITHOUT)?;
            (measure(WITH)?, without)
        };
        if pair > 0 {
            ratios.push(with / without);
            progress(&what, pair - 1, pairs, with / without);
        }
    }
    let what = format!("{what}, states by second, with ÷ without");
    Ok(Row::new(what, "", Target::AtLeast(0.98), Sample::of(ratios)))
}

impl Measured {
    fn states_by_second(&self, cluster: &Cluster, name: &str) -> Result<f64> {
        let file = data::folder().map(|folder| folder.join(self.instance)).filter(|file| file.is_file());
        let instance = file.as_deref().map_or(Some(self.instance), |file| file.to_str());
        let instance = instance.context("a path that is not UTF-8")?;
        let job = ["submit", instance, "--any-build", "--cluster", name, "--wait", "--quiet", "--json"];
        let said = cluster.begin(self.program, &job)?.end_within(PATIENCE)?;
        ensure!(said.code == 0, "{} has failed: {said:?}\n{}", self.program, cluster.logs());
        let said: Value = serde_json::from_str(&said.out).context("the program printed no JSON")?;
        let (found, answer) = self.answer;
        ensure!(said[found] == answer, "{} has {answer} {found}: {said}", self.instance);
        let number = |name: &str| said[name].as_f64().with_context(|| format!("no {name}: {said}"));
        Ok(number(self.states)? / number("seconds")?)
    }
}

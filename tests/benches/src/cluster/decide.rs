//! The time until every node stops when a solution meets the target.

use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{cluster::Cluster, data};
use zk_server::Setup;

use super::PATIENCE;
use crate::{
    measure::Sample,
    row::{Row, Target},
};

const NODES: usize = 8;

/// Measures the time from the moment at which a node has found a clique of 33 vertices to the end of the last
/// task on any node. Both are logged, with the single clock of this machine.
///
/// # Errors
/// If a job fails, or the graph is missing.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let folder = data::folder().context("no published instances")?;
    let graph = folder.join("clique/brock400_4.clq");
    let graph = graph.to_str().context("a path that is not UTF-8")?;
    let (mut late, mut stopped) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut cluster = Cluster::start(&Setup::standalone())?;
        cluster.environment.push(("TASKWORK_LOG".to_owned(), "info,bnb_framework=debug".to_owned()));
        cluster.start_nodes("maxclique", NODES, &["--workers", "1", "--log-format", "json"])?;
        let job = cluster.begin(
            "maxclique",
            &["submit", graph, "--target", "33", "--heuristics", "0", "--wait", "--json"],
        )?;
        let said = job.end_within(PATIENCE)?;
        ensure!(said.code == 0, "maxclique has failed: {}", said.err);
        let said: Value = serde_json::from_str(&said.out).context("maxclique printed no JSON")?;
        ensure!(said["end"] == "target" && said["vertices"] == 33, "{said}");
        let (mut found, mut last, mut nodes) = (None, None, 0);
        for node in 0..NODES {
            let lines = cluster.log(node);
            let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut ends = false;
            for line in lines {
                let fields = &line["fields"];
                let at = line["timestamp"].as_str().and_then(|at| humantime::parse_rfc3339(at).ok());
                if fields["message"] == "a better solution" && fields["cost"] == "33" {
                    found = at.min(found.or(at));
                } else if fields["message"] == "a task ends before its end" {
                    (last, ends) = (last.max(at), true);
                }
            }
            nodes += u64::from(ends);
        }
        let found: SystemTime = found.context("no node logged that it was found")?;
        let last = last.context("no node logged that it stopped")?;
        late.push(last.duration_since(found).unwrap_or_default().as_secs_f64() * 1e3);
        stopped.push(nodes as f64);
    }
    Ok(vec![
        Row::new(
            format!(
                "from a solution that meets the target to the end of the last task, {NODES} node processes"
            ),
            "ms",
            Target::AtMost(50.0),
            Sample::of(late),
        ),
        Row::new(format!("of {NODES} nodes were at work then"), "", Target::Told, Sample::of(stopped)),
    ])
}

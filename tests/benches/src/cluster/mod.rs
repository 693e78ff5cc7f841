//! Node processes over a real `ZooKeeper` and QUIC, on this machine.

pub mod decide;
pub mod jobs;
pub mod memory;
pub mod nodes;
pub mod termination;
pub mod waits;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use taskwork::report::Figures;
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

/// Starts a server, and this many nodes of a program with one worker each.
fn start(program: &str, nodes: usize) -> Result<Cluster> {
    let mut cluster = Cluster::start(&Setup::standalone())?;
    cluster.start_nodes(program, nodes, &["--workers", "1"])?;
    Ok(cluster)
}

/// Maximum time for a job.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The measurements of a job on a cluster.
pub(crate) struct Done {
    pub(crate) seconds: f64,
    pub(crate) figures: Figures,
}

/// Runs UTS on a cluster, and checks the count.
pub(crate) fn uts(cluster: &Cluster, tree: &str, nodes: u64, more: &[&str]) -> Result<Done> {
    let job = cluster.begin("uts", &[&["submit", tree, "--wait", "--quiet", "--json"], more].concat())?;
    let said = job.end_within(PATIENCE)?;
    ensure!(said.code == 0, "uts has failed: {}", said.err);
    let said: serde_json::Value = serde_json::from_str(&said.out).context("uts printed no JSON")?;
    let counted = said["nodes"].as_u64().unwrap_or(0);
    ensure!(counted == nodes, "{tree} has {nodes} nodes, but {counted} were counted");
    let figures = serde_json::from_value(said["figures"].clone()).context("no figures")?;
    Ok(Done { seconds: said["seconds"].as_f64().context("no time")?, figures })
}

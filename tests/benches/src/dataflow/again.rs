//! The time until a program whose node was lost continues: it makes all its calls again, none of which runs
//! again.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use super::shapes::HAVE_ENDED;
use crate::{
    cluster::PATIENCE,
    measure::Sample,
    row::{Row, Target},
};

/// The number of calls that have completed before the node is lost.
const CALLS: usize = 100_000;
/// The time after which a node without a sign of life is lost.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Measures the time from the loss of a program's node until the program continues where it was, minus the
/// session timeout.
pub(super) fn run(rounds: usize) -> Result<Row> {
    let seconds = (0..rounds).map(|_| once()).collect::<Result<Vec<_>>>()?;
    let what = "until a program whose node is lost has made 100,000 calls again, beyond the session timeout";
    Ok(Row::new(what, "s", Target::AtMost(1.0), Sample::of(seconds)))
}

fn once() -> Result<f64> {
    let mut cluster = Cluster::start(&Setup::standalone())?;
    let timeout = SESSION_TIMEOUT.as_secs().to_string();
    cluster.start_nodes("shapes", 2, &["--workers", "1", "--zk-session-timeout", &timeout])?;
    // The last call takes longer than the whole measurement.
    let arguments = ["submit", "again", &CALLS.to_string(), "--wait-us", "600000000", "--quiet"];
    let submitted = cluster.run("shapes", &arguments)?;
    ensure!(submitted.code == 0, "shapes was not submitted: {}", submitted.err);
    let coordinator = wait_for_either(&cluster).context("the calls do not complete")?;
    cluster.kill_nodes(&[coordinator])?;
    let lost = Instant::now();
    cluster.wait_for_log(1 - coordinator, HAVE_ENDED)?;
    Ok(lost.elapsed().saturating_sub(SESSION_TIMEOUT).as_secs_f64())
}

/// Waits until the calls have completed, and returns the node on which the program runs.
fn wait_for_either(cluster: &Cluster) -> Result<usize> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(coordinator) = (0..2).find(|node| cluster.log(*node).contains(HAVE_ENDED)) {
            return Ok(coordinator);
        }
        ensure!(Instant::now() < deadline, "no node logged {HAVE_ENDED:?}:\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

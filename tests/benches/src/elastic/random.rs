//! A job whose nodes join, leave and are killed at random, determined by a seed.

use std::time::{Duration, Instant};

use anyhow::Result;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use super::{
    NODES,
    job::{Job, Size},
};

/// The arguments of a node. The work of a lost one is continued after the session timeout.
const NODE: [&str; 5] = ["--workers", "1", "--any-build", "--zk-session-timeout", "2"];
/// The minimum and maximum number of nodes.
const LEAST: usize = 4;
const MOST: usize = 20;
/// The time between two changes, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 200..1_500;

/// The events of a job.
pub(super) struct Survived {
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) states: u64,
    /// The nodes that joined after the submission.
    pub(super) joined: usize,
    /// The nodes that left when asked to.
    pub(super) left: usize,
    /// The nodes that were killed.
    pub(super) killed: usize,
    /// The number of states that were visited more than once.
    pub(super) again: u64,
    /// The sum of the nodes' time in the job.
    pub(super) nodes_s: f64,
}

/// The nodes of a cluster, and the start time of each.
struct Crowd {
    cluster: Cluster,
    here: Vec<(usize, Instant)>,
    /// The sum of the time of departed nodes.
    gone: Duration,
}

impl Crowd {
    fn join(&mut self) -> Result<()> {
        let now = Instant::now();
        self.here.push((self.cluster.start_node("walk", &NODE)?, now));
        Ok(())
    }

    /// Sends one of the nodes a signal that ends it.
    fn end(&mut self, place: usize, signal: &str) -> Result<()> {
        let (node, since) = self.here.swap_remove(place);
        // A node that is still starting has no signal handler yet.
        self.cluster.wait_for_log(node, "the node is ready")?;
        self.cluster.nodes[node].signal(signal)?;
        self.gone += since.elapsed();
        Ok(())
    }
}

/// Runs the job, and checks the number of its states.
pub(super) fn run(seed: u64) -> Result<Survived> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut cluster = Cluster::start(&Setup::standalone())?;
    cluster.start_nodes("walk", NODES, &NODE)?;
    let submitted = Instant::now();
    let mut job = Job::submit(&cluster, Size::SHORT, 0)?;
    let here = (0..NODES).map(|node| (node, submitted)).collect();
    let mut crowd = Crowd { cluster, here, gone: Duration::ZERO };
    let (mut joined, mut left, mut killed) = (0, 0, 0);
    while !job.has_ended_by(Instant::now() + Duration::from_millis(random.random_range(PAUSE_MS)))? {
        let place = random.random_range(0..crowd.here.len());
        let choice = random.random_range(0..4);
        if crowd.here.len() <= LEAST || (choice < 2 && crowd.here.len() < MOST) {
            crowd.join()?;
            joined += 1;
        } else if choice % 2 == 0 {
            crowd.end(place, "TERM")?;
            left += 1;
        } else {
            crowd.end(place, "KILL")?;
            killed += 1;
        }
    }
    let remaining: Duration = crowd.here.iter().map(|(_, since)| since.elapsed()).sum();
    let nodes_s = crowd.gone + remaining;
    let ended = job.end(&crowd.cluster)?;
    Ok(Survived {
        seed,
        seconds: ended.seconds,
        states: Size::SHORT.states(),
        joined,
        left,
        killed,
        again: ended.again,
        nodes_s: nodes_s.as_secs_f64(),
    })
}

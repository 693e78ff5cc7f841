//! Nodes that are killed in the middle of a job: the delay of its end, and the amount of repeated work.
//!
//! The states of the job only take time, so that four processes have the speed of four machines. Each process
//! counts its visited states in a file, so that repeated work is known exactly, regardless of which is
//! killed.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, Running},
    data::is_long,
};
use zk_server::Setup;

use super::progress;
use crate::{
    cluster::PATIENCE,
    measure::Sample,
    row::{Row, Target},
    walk::{Walk, visits},
};

const NODES: usize = 4;
/// The depth of the tree: 31,672 states.
const DEPTH: u32 = 12;
/// ZooKeeper's session timeout, in seconds.
const SESSION_S: f64 = 2.0;
/// The arguments of a node, with that timeout.
const NODE: [&str; 4] = ["--workers", "1", "--zk-session-timeout", "2"];
/// When nodes are killed, as shares of the undisturbed job.
const MOMENTS: [f64; 3] = [0.2, 0.5, 0.8];
/// The increase of the kill time from round to round, in seconds, to hit different times since the last
/// write.
const LATER_S: f64 = 0.35;
/// The maximum work of a lost node since its last write: the interval, and 0.1 s for a write.
const REDONE_S: f64 = 1.1;
/// The same if all are lost, including tasks given to each other.
const REDONE_BY_ALL_S: f64 = 2.0;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns the approximate duration of the undisturbed job, in seconds: longer with `TASKWORK_LONG=1`.
pub fn job_s() -> f64 {
    if is_long() { 60.0 } else { 20.0 }
}

/// A cluster, on which the job runs repeatedly.
struct Stage {
    cluster: Cluster,
    /// The running nodes.
    here: Vec<usize>,
    /// The number of jobs so far.
    jobs: usize,
    states: u64,
}

/// One run of the job.
struct Done {
    /// The time from the submission of the job to its end.
    seconds: f64,
    /// The time from its submission to the kill. The start of the command that submits it counts as well.
    killed_at: f64,
    /// The number of states that were visited more than once.
    again: f64,
}

/// The measurements when nodes are killed.
#[derive(Default)]
struct Killed {
    /// (Time − session timeout) ÷ undisturbed on those that remain.
    ratios: Vec<f64>,
    /// Time ÷ undisturbed on those that remain.
    whole: Vec<f64>,
    /// The work done again, in seconds of each lost node.
    again: Vec<f64>,
}

/// Runs the measurement.
///
/// # Errors
/// If a count is wrong.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut stage = Stage::new()?;
    let mut undisturbed = Vec::new();
    let mut one: [Killed; MOMENTS.len()] = Default::default();
    let mut all = Killed::default();
    for round in 0..rounds {
        let alone = stage.run(None)?;
        undisturbed.push(alone.seconds);
        progress("undisturbed, seconds", round, rounds, alone.seconds);
        // States per second of each node. At the beginning and the end nodes are idle, so the actual rate is
        // higher.
        let rate = stage.states as f64 / (NODES as f64 * alone.seconds);
        let later_s = LATER_S * round as f64;
        let left = |at: f64, nodes: usize| (alone.seconds - at) * NODES as f64 / nodes as f64;
        for (moment, killed) in MOMENTS.iter().zip(&mut one) {
            let done = stage.run(Some((moment * alone.seconds + later_s, 1)))?;
            killed.note(&done, done.killed_at + left(done.killed_at, NODES - 1), rate);
            progress(&format!("one killed at {moment:.1}, seconds"), round, rounds, done.seconds);
        }
        let done = stage.run(Some((alone.seconds / 2.0 + later_s, NODES)))?;
        all.note(&done, alone.seconds, rate * NODES as f64);
        progress("all killed, seconds", round, rounds, done.seconds);
    }
    let job = format!("job of {:.0} s, {NODES} nodes", job_s());
    let mut rows = vec![Row::new(job.clone(), "s", Target::Told, Sample::of(undisturbed))];
    for (moment, killed) in MOMENTS.iter().zip(one) {
        let what = format!("{job}, 1 killed at {:.0} %", 100.0 * moment);
        rows.extend(killed.rows(&what, Target::AtMost(1.05), REDONE_S));
    }
    rows.extend(all.rows(&format!("{job}, all killed at 50 %, 4 new"), Target::Told, REDONE_BY_ALL_S));
    Ok(rows)
}

impl Killed {
    /// Records a run, given its duration if no work had to be repeated, and the rate of all lost nodes.
    fn note(&mut self, done: &Done, expected_s: f64, lost_rate: f64) {
        self.ratios.push((done.seconds - SESSION_S) / expected_s);
        self.whole.push(done.seconds / expected_s);
        self.again.push(done.again / lost_rate);
    }

    fn rows(self, what: &str, ratio: Target, again_s: f64) -> [Row; 3] {
        let row = |text: &str, unit, target, values| {
            Row::new(format!("{what}: {text}"), unit, target, Sample::of(values))
        };
        let less = format!("(time − session timeout of {SESSION_S:.0} s) ÷ undisturbed on those left");
        [
            row(&less, "", ratio, self.ratios),
            row("time ÷ undisturbed on those left", "", Target::Told, self.whole),
            row("done again by each lost node", "s", Target::AtMost(again_s), self.again),
        ]
    }
}

impl Stage {
    fn new() -> Result<Self> {
        let mut cluster = Cluster::start(&Setup::standalone())?;
        cluster.start_nodes("walk", NODES, &NODE)?;
        Ok(Self { cluster, here: (0..NODES).collect(), jobs: 0, states: Walk::states(DEPTH) })
    }

    /// Runs the job. After this many seconds, this many nodes are killed at the same moment; if none remain,
    /// as many are started.
    fn run(&mut self, kill: Option<(f64, usize)>) -> Result<Done> {
        let folder = self.cluster.folder().join(format!("visits-{}", self.jobs));
        fs::create_dir(&folder).context("no folder for the visits")?;
        self.jobs += 1;
        let (depth, state_us) = (DEPTH.to_string(), self.state_us().to_string());
        let visited = folder.to_str().context("a path that is not UTF-8")?;
        let job = ["--depth", &depth, "--state-us", &state_us, "--visits", visited];
        let started = Instant::now();
        let job = [&["submit"], &job[..], &["--wait", "--quiet", "--json"]].concat();
        let mut job = self.cluster.begin("walk", &job)?;
        let mut killed_at = 0.0;
        if let Some((after_s, nodes)) = kill {
            wait_until(&mut job, started + Duration::from_secs_f64(after_s))?;
            // Rotate through the nodes, including the leader.
            let mut lost: Vec<usize> = self.here.clone();
            lost.rotate_left(self.jobs % NODES);
            lost.truncate(nodes);
            killed_at = started.elapsed().as_secs_f64();
            self.cluster.kill_nodes(&lost)?;
            self.here.retain(|node| !lost.contains(node));
            if self.here.is_empty() {
                self.fill_up()?;
            }
        }
        let deadline = started + PATIENCE;
        while !job.has_ended()? {
            ensure!(Instant::now() < deadline, "the job does not end:\n{}", self.cluster.logs());
            thread::sleep(LOOK_EVERY);
        }
        let said = job.end()?;
        ensure!(said.code == 0, "walk has failed: {said:?}\n{}", self.cluster.logs());
        let said: Value = serde_json::from_str(&said.out).context("walk printed no JSON")?;
        ensure!(said["states"] == self.states, "{} states, not {}", said["states"], self.states);
        let again = visits(&folder)? as f64 - self.states as f64;
        let seconds = said["seconds"].as_f64().context("no time")?;
        self.fill_up()?;
        Ok(Done { seconds, killed_at, again })
    }

    fn state_us(&self) -> u64 {
        let us = 1e6 * job_s() * NODES as f64 / self.states as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
        let us = us as u64;
        us
    }

    /// Starts nodes until there are as many as at the beginning.
    fn fill_up(&mut self) -> Result<()> {
        let missing = NODES - self.here.len();
        let first = self.cluster.nodes.len();
        self.cluster.start_nodes("walk", missing, &NODE)?;
        self.here.extend(first..first + missing);
        Ok(())
    }
}

/// Waits while a job runs.
fn wait_until(job: &mut Running, moment: Instant) -> Result<()> {
    while Instant::now() < moment {
        ensure!(!job.has_ended()?, "the job has ended before anything could be killed: {}", job.errors());
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

//! A cluster of ten nodes on which the job runs repeatedly, each time with other nodes that join and leave.

use std::{
    fmt, fs,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use super::{
    NODES,
    job::{Job, Size},
    trace,
};
use crate::walk::{now_us, parts};

/// The arguments of a node. With `--any-build` it does not read its whole program file at the start, which
/// takes most of the processor time if the file has debug information: 80 ms for 144 MB.
const NODE: [&str; 5] = ["--workers", "1", "--any-build", "--log-format", "json"];
/// The time from the submission to the moment at which nodes are added.
const BEFORE: Duration = Duration::from_secs(5);
/// The time for which the load of the processors is measured when nodes are added.
const WATCHED: Duration = Duration::from_secs(1);

/// Nodes that are added for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) added: usize,
    /// The time for which they take part, in seconds.
    pub(super) phase_s: u32,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} nodes for {} s", self.added, self.phase_s)
    }
}

pub(super) struct Run {
    /// The time from the submission of the job to its end.
    pub(super) seconds: f64,
    /// The time from the start of the first added process to the signal to leave, in seconds.
    pub(super) phase_s: f64,
    /// The nodes that were added.
    pub(super) joined: Vec<Joined>,
    /// The share of the processors' time that was used, by all processes, in the first second of the growth.
    pub(super) busy: f64,
    /// The number of states that were visited more than once.
    pub(super) again: u64,
    /// The number of nodes at work, from each moment on.
    pub(super) at_work: Vec<(f64, usize)>,
}

/// The events of an added node. Times are in seconds since the first of them was started.
pub(super) struct Joined {
    /// Its process was started.
    pub(super) started: f64,
    /// It was a member of the cluster.
    pub(super) member: Option<f64>,
    /// It started its first task.
    pub(super) first: Option<f64>,
    /// It was no longer a member.
    pub(super) left: Option<f64>,
}

/// A cluster for several consecutive runs.
pub(super) struct Stage {
    cluster: Cluster,
    jobs: usize,
}

impl Stage {
    pub(super) fn new() -> Result<Self> {
        let mut cluster = Cluster::start(&Setup::standalone())?;
        cluster.start_nodes("walk", NODES, &NODE)?;
        Ok(Self { cluster, jobs: 0 })
    }

    /// Runs the job. Nodes are added only while the cluster has the turn.
    pub(super) fn run(&mut self, growth: Option<Growth>, turn: &Mutex<()>) -> Result<Run> {
        let held = growth.map(|_| turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.jobs += 1;
        let mut job = Job::submit(&self.cluster, Size::LONG, self.jobs)?;
        let grown = growth.map(|growth| self.grow(&mut job, growth)).transpose()?;
        drop(held);
        let (folder, submitted_us) = (job.folder.clone(), job.submitted_us);
        let ended = job.end(&self.cluster)?;
        let parts = parts(&folder)?;
        let at_work = trace::at_work(parts.values(), submitted_us);
        let (mut joined, mut phase_s, mut busy) = (Vec::new(), 0.0, 0.0);
        if let Some(grown) = grown {
            (phase_s, busy) = (grown.phase_s, grown.busy);
            for &(node, started_us) in &grown.nodes {
                let since = |us: u64| (us as f64 - grown.began_us as f64) / 1e6;
                let part = parts.get(&self.cluster.nodes[node].id());
                joined.push(Joined {
                    started: since(started_us),
                    member: self.logged(node, "the node is ready").map(since),
                    first: part.map(|part| since(part.first_us)),
                    left: self.logged(node, "the node has left").map(since),
                });
            }
        }
        Ok(Run { seconds: ended.seconds, phase_s, joined, busy, again: ended.again, at_work })
    }

    /// Starts nodes while a job runs, and later asks them to leave.
    fn grow(&mut self, job: &mut Job, growth: Growth) -> Result<Grown> {
        job.wait_until(Instant::now() + BEFORE)?;
        let (began, began_us, before) = (Instant::now(), now_us(), processors()?);
        let mut nodes = Vec::new();
        for _ in 0..growth.added {
            let started_us = now_us();
            nodes.push((self.cluster.start_node("walk", &NODE)?, started_us));
        }
        job.wait_until(began + WATCHED)?;
        let after = processors()?;
        job.wait_until(began + Duration::from_secs(growth.phase_s.into()))?;
        let added: Vec<usize> = nodes.iter().map(|(node, _)| *node).collect();
        self.cluster.signal_nodes(&added, "TERM")?;
        let phase_s = began.elapsed().as_secs_f64();
        for node in added {
            let status = self.cluster.nodes[node].wait()?;
            ensure!(status.success(), "a node has left with {status}:\n{}", self.cluster.log(node));
        }
        ensure!(!job.has_ended()?, "the job has ended before the nodes had left");
        let (used, all) = (after.0 - before.0, after.1 - before.1);
        Ok(Grown { nodes, began_us, phase_s, busy: used / all })
    }

    /// Returns the time when a node logged a message.
    fn logged(&self, node: usize, message: &str) -> Option<u64> {
        let log = self.cluster.log(node);
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.into_iter().find(|line| line["fields"]["message"] == message)?;
        let at: SystemTime = humantime::parse_rfc3339(line["timestamp"].as_str()?).ok()?;
        u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
    }
}

struct Grown {
    /// The added nodes, and the start time of each.
    nodes: Vec<(usize, u64)>,
    began_us: u64,
    phase_s: f64,
    busy: f64,
}

/// Returns the busy time of the processors, and their total time, in the system's units.
fn processors() -> Result<(f64, f64)> {
    let stat = fs::read_to_string("/proc/stat").context("the load of the processors is unknown")?;
    let line = stat.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; the following columns are contained in these.
    let times: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|it| it.parse().ok()).collect();
    ensure!(times.len() == 8, "/proc/stat starts with {line:?}");
    let all: f64 = times.iter().sum();
    Ok((all - times[3] - times[4], all))
}

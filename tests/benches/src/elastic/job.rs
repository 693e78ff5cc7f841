//! A job whose states only wait, and the check of its result.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::cluster::{Cluster, Running};

use crate::{
    cluster::PATIENCE,
    walk::{Walk, now_us, parts, visits},
};

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The amount of waiting in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    depth: u32,
    state_us: u32,
}

impl Size {
    /// 78,801 states of 14.8 ms: with the wake-up time about 1,170 s, as long as the paper's job on one node.
    pub(super) const LONG: Self = Self { depth: 13, state_us: 14_750 };
    /// 31,672 states, about 470 s on one node.
    pub(super) const SHORT: Self = Self { depth: 12, state_us: 14_750 };

    pub(super) fn states(self) -> u64 {
        Walk::states(self.depth)
    }
}

pub(super) struct Job {
    running: Running,
    /// The folder in which each process records its work.
    pub(super) folder: PathBuf,
    /// The start time of the submitting command, in microseconds of the machine's clock.
    pub(super) submitted_us: u64,
    submitted: Instant,
    states: u64,
}

pub(super) struct Ended {
    /// The time from the submission to the result.
    pub(super) seconds: f64,
    /// The number of states that were visited more than once.
    pub(super) again: u64,
}

impl Job {
    /// Submits a job, and waits until a first task is at work.
    pub(super) fn submit(cluster: &Cluster, size: Size, number: usize) -> Result<Self> {
        let folder = cluster.folder().join(format!("visits-{number}"));
        fs::create_dir(&folder).context("no folder for the visits")?;
        let (depth, state_us) = (size.depth.to_string(), size.state_us.to_string());
        let visited = folder.to_str().context("a path that is not UTF-8")?;
        let job = ["submit", "--any-build", "--depth", &depth, "--state-us", &state_us, "--visits", visited];
        let (submitted, submitted_us) = (Instant::now(), now_us());
        let running = cluster.begin("walk", &[&job[..], &["--wait", "--quiet", "--json"]].concat())?;
        let mut job = Self { running, folder, submitted_us, submitted, states: size.states() };
        while parts(&job.folder)?.is_empty() {
            job.wait_until(Instant::now() + LOOK_EVERY)?;
        }
        Ok(job)
    }

    /// Waits until a moment, before which the job must not end.
    pub(super) fn wait_until(&mut self, moment: Instant) -> Result<()> {
        ensure!(!self.has_ended_by(moment)?, "the job ended too early: {}", self.running.errors());
        Ok(())
    }

    /// Waits until the job has ended, or until a moment. Returns whether it has ended.
    pub(super) fn has_ended_by(&mut self, moment: Instant) -> Result<bool> {
        while Instant::now() < moment && !self.has_ended()? {
            ensure!(self.submitted.elapsed() < PATIENCE, "the job takes too long");
            thread::sleep(LOOK_EVERY);
        }
        self.has_ended()
    }

    pub(super) fn has_ended(&mut self) -> Result<bool> {
        self.running.has_ended()
    }

    /// Waits for the end of the job, and checks the number of states.
    pub(super) fn end(self, cluster: &Cluster) -> Result<Ended> {
        let said = self.running.end_within(PATIENCE)?;
        ensure!(said.code == 0, "walk has failed: {said:?}\n{}", cluster.logs());
        let said: Value = serde_json::from_str(&said.out).context("walk printed no JSON")?;
        ensure!(said["states"] == self.states, "{} states, not {}", said["states"], self.states);
        let again = visits(&self.folder)?.checked_sub(self.states);
        let again = again.context("fewer states were visited than counted")?;
        Ok(Ended { seconds: said["seconds"].as_f64().context("no time")?, again })
    }
}

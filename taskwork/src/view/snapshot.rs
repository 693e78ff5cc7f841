//! A cluster at one moment, as people see it, and what has changed since another moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use zk::{Latencies, Requests, figures::NodeFigures, job::JobRecord, membership::Member};

use super::{
    cost::{Costs, CostsDelta, JobCost},
    frozen::Frozen,
    series::{Series, SeriesDelta},
    stage::Stage,
    tracked::Changes,
};
use crate::figures::Figures;

/// The maximum number of events of the cluster that are kept.
pub const MOMENTS_MAX: usize = 1_000;

/// A cluster at one moment. What is not known is absent, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of the tick after which it was so.
    pub seq: u64,
    /// The cluster as a whole.
    pub cluster: ClusterNow,
    /// The members, by their names.
    pub members: BTreeMap<String, Frozen<MemberNow>>,
    /// The jobs, by their ids.
    pub jobs: BTreeMap<String, JobNow>,
    /// The latest events, in the order in which they were seen, at most [`MOMENTS_MAX`].
    pub moments: Vec<Moment>,
    /// What cannot be read, by the paths of the znodes.
    pub warnings: BTreeMap<String, String>,
    /// What nodes have cost since this was observed; a few seconds older than the rest.
    #[serde(default)]
    pub costs: Costs,
}

/// A cluster as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterNow {
    /// The time of the latest tick, in milliseconds since 1970 by the observer's clock.
    pub at_ms: u64,
    /// Since when ZooKeeper has not answered, if it does not: what is known is as old as that.
    pub silent_since_ms: Option<u64>,
    /// The number of nodes that have become members while this was observed, and those that were members before.
    pub nodes_joined: u64,
    /// The number of nodes that have gone, and had left their jobs cleanly.
    pub nodes_left: u64,
    /// The number of nodes that have gone and had not.
    pub nodes_lost: u64,
    /// The number of events that were seen.
    pub events: u64,
    /// The number of times that ZooKeeper did not answer any more.
    pub outages: u64,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberNow {
    /// What it says of itself; `None` if that cannot be read.
    pub member: Option<Frozen<Member>>,
    /// Since when it was seen, in milliseconds since 1970 by the observer's clock.
    pub since_ms: u64,
    /// The jobs that it leads.
    pub leads: Vec<String>,
    /// Whether it was asked to leave.
    pub draining: bool,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobNow {
    /// The job as a whole.
    pub about: Frozen<JobAbout>,
    /// The nodes that have worked on it, by their names. Those of jobs that have been over for long are forgotten.
    pub nodes: BTreeMap<String, Frozen<NodeNow>>,
    /// The job over time, as far as it was observed.
    pub series: Series,
}

/// A job as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobAbout {
    /// Its stage.
    pub stage: Stage,
    /// Its record; `None` if it cannot be read.
    pub record: Option<Frozen<JobRecord>>,
    /// What is missing if no node takes it.
    pub missing: Option<String>,
    /// Whether any node has reported; otherwise the figures, requests and latencies are unknown.
    #[serde(default)]
    pub reported: bool,
    /// The node that leads it.
    pub leader: Option<String>,
    /// What its nodes have done, together.
    pub figures: Figures,
    /// The requests that this has cost ZooKeeper.
    pub requests: Requests,
    /// How long these took, as far as the nodes report it.
    pub latencies: Latencies,
    /// The pools of the nodes at work, together; `None` if none reports it.
    pub pool: Option<PoolSum>,
    /// The number of nodes at work that have reported.
    pub nodes_at_work: u32,
    /// The share of the whole that is done.
    pub share: Option<f64>,
    /// The best that is known.
    pub best: Option<f64>,
    /// Nothing better than this can be found any more.
    pub bound: Option<f64>,
    /// The distance of the best from the bound, as a share of the best.
    pub gap: Option<f64>,
    /// The time until its end if it goes on as it did, in seconds.
    pub eta_seconds: Option<f64>,
    /// The number of tasks that run, are queued, wait or are parked.
    pub open_tasks: Option<u64>,
    /// The number of tasks in the global task list.
    pub listed_tasks: Option<u32>,
    /// The number of parked tasks.
    pub parked_tasks: Option<u32>,
    /// The tasks that it goes on without: the number of nodes that failed with each, and what was said last.
    pub set_aside: BTreeMap<String, (u32, String)>,
    /// The names of nodes that were lost in its present attempt.
    pub lost: Vec<String>,
    /// What its companion shows.
    pub sight: Option<Frozen<serde_json::Value>>,
    /// What it has cost; `None` if no node has reported on it.
    #[serde(default)]
    pub cost: Option<JobCost>,
}

/// The pools of several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolSum {
    /// The number of workers.
    pub workers: u32,
    /// Those of them that have a task.
    pub busy: u32,
    /// The number of queued tasks.
    pub queued: u32,
    /// The number of tasks that wait.
    pub waiting: u32,
    /// The number of workers without a task for which none is queued.
    pub hungry: u32,
}

/// A node's part in a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeNow {
    /// What has become of it.
    pub state: NodeState,
    /// What it has last reported.
    pub report: Frozen<NodeFigures<Figures>>,
}

/// What has become of a node that works or worked on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// It is a member.
    Member,
    /// It is gone.
    Left,
    /// It went without a clean leave: in the job's last attempt, or so that the job had to begin another one.
    Lost,
}

/// An event of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Moment {
    /// The tick after which it was known.
    pub seq: u64,
    /// When it was seen, in milliseconds since 1970 by the observer's clock.
    pub at_ms: u64,
    /// What has happened.
    pub what: MomentKind,
    /// To which node or job.
    pub name: String,
}

/// What has happened in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MomentKind {
    /// A node has become a member.
    Joined,
    /// A node has gone, and had left its jobs cleanly.
    Left,
    /// A node has gone, and had not.
    Lost,
    /// A job has begun to run.
    JobRuns,
    /// A job is over.
    JobOver,
}

/// What has changed in a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delta {
    /// The tick since which.
    pub since: u64,
    /// The tick until which.
    pub seq: u64,
    /// The cluster as a whole.
    pub cluster: ClusterNow,
    /// The members.
    pub members: Changes<Frozen<MemberNow>>,
    /// The jobs that are gone.
    pub jobs_gone: Vec<String>,
    /// The jobs that are new, or have changed.
    pub jobs: BTreeMap<String, JobDelta>,
    /// The events that are new.
    pub moments: Vec<Moment>,
    /// What cannot be read, if that has changed.
    pub warnings: Option<BTreeMap<String, String>>,
    /// What nodes have cost, if that has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<CostsDelta>,
}

/// What has changed in a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobDelta {
    /// The job as a whole, if it has changed, without its record and what its companion shows.
    pub about: Option<Frozen<JobAbout>>,
    /// Its record, if that has changed: it is larger than the rest, and seldom another.
    #[serde(default, deserialize_with = "told", skip_serializing_if = "Option::is_none")]
    pub record: Option<Option<Frozen<JobRecord>>>,
    /// What its companion shows, if that has changed.
    #[serde(default, deserialize_with = "told", skip_serializing_if = "Option::is_none")]
    pub sight: Option<Option<Frozen<serde_json::Value>>>,
    /// Its nodes.
    pub nodes: Changes<Frozen<NodeNow>>,
    /// The job over time, if there is more of it.
    pub series: Option<SeriesDelta>,
}

/// Reads something that is told: `null` says that there is none, and what is absent is as it was.
fn told<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Snapshot {
    /// Makes it the later one that a change leads to. The change must be one since this snapshot.
    pub fn apply(&mut self, delta: Delta) {
        (self.seq, self.cluster) = (delta.seq, delta.cluster);
        delta.members.apply(&mut self.members);
        for job in &delta.jobs_gone {
            self.jobs.remove(job);
        }
        for (id, change) in delta.jobs {
            let job = self.jobs.entry(id).or_default();
            if let Some(about) = change.about {
                let record = change.record.unwrap_or_else(|| job.about.record.clone());
                let sight = change.sight.unwrap_or_else(|| job.about.sight.clone());
                job.about = Frozen::new(JobAbout { record, sight, ..(*about).clone() });
            }
            change.nodes.apply(&mut job.nodes);
            if let Some(series) = change.series {
                job.series.apply(series);
            }
        }
        self.moments.extend(delta.moments);
        let surplus = self.moments.len().saturating_sub(MOMENTS_MAX);
        self.moments.drain(..surplus);
        if let Some(warnings) = delta.warnings {
            self.warnings = warnings;
        }
        if let Some(costs) = delta.costs {
            self.costs.apply(costs);
        }
    }
}

impl Default for JobAbout {
    fn default() -> Self {
        Self {
            stage: Stage::Unreadable,
            record: None,
            missing: None,
            reported: false,
            leader: None,
            figures: Figures::default(),
            requests: Requests::default(),
            latencies: Latencies::default(),
            pool: None,
            nodes_at_work: 0,
            share: None,
            best: None,
            bound: None,
            gap: None,
            eta_seconds: None,
            open_tasks: None,
            listed_tasks: None,
            parked_tasks: None,
            set_aside: BTreeMap::new(),
            lost: Vec::new(),
            sight: None,
            cost: None,
        }
    }
}

impl NodeState {
    /// Returns the state in a word.
    pub fn text(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Left => "left",
            Self::Lost => "lost",
        }
    }
}

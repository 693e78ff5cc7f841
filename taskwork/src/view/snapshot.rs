//! The state of a cluster at one moment, for display, and its changes since another moment.

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
use crate::{display::JobDisplay, figures::Figures};

/// The maximum number of events of the cluster that are kept.
pub const MOMENTS_MAX: usize = 1_000;

/// The state of a cluster at one moment. Unknown values are absent, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of the tick of this state.
    pub seq: u64,
    /// The cluster as a whole.
    pub cluster: ClusterNow,
    /// The members, by their names.
    pub members: BTreeMap<String, Frozen<MemberNow>>,
    /// The jobs, by their ids.
    pub jobs: BTreeMap<String, JobNow>,
    /// The latest events, in the order of observation, at most [`MOMENTS_MAX`].
    pub moments: Vec<Moment>,
    /// The errors of unreadable znodes, by their paths.
    pub warnings: BTreeMap<String, String>,
    /// The costs of nodes since the start of the observation; up to 10 s older than the rest.
    #[serde(default)]
    pub costs: Costs,
    /// The workers of all members over time, and those with a task.
    #[serde(default)]
    pub workers: Series,
}

/// A cluster as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterNow {
    /// The time of the latest tick, in milliseconds since 1970 by the observer's clock.
    pub at_ms: u64,
    /// The start of the current outage of ZooKeeper, if there is one: the state is as old as that.
    pub silent_since_ms: Option<u64>,
    /// The number of nodes that have joined during the observation.
    pub nodes_joined: u64,
    /// The number of nodes that have gone after leaving their jobs cleanly.
    pub nodes_left: u64,
    /// The number of nodes that have gone without leaving cleanly.
    pub nodes_lost: u64,
    /// The number of observed events.
    pub events: u64,
    /// The number of outages of ZooKeeper.
    pub outages: u64,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberNow {
    /// Its record; `None` if that cannot be read.
    pub member: Option<Frozen<Member>>,
    /// The time at which it was first seen, in milliseconds since 1970 by the observer's clock.
    pub since_ms: u64,
    /// The jobs that it leads.
    pub leads: Vec<String>,
    /// Whether it was asked to leave.
    pub draining: bool,
    /// Whether it is cordoned: it starts no job and takes no tasks.
    #[serde(default)]
    pub cordoned: bool,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobNow {
    /// The job as a whole.
    pub about: Frozen<JobAbout>,
    /// The nodes that have worked on it, by their names. Forgotten for jobs that were over long ago.
    pub nodes: BTreeMap<String, Frozen<NodeNow>>,
    /// The history of the job during the observation.
    pub series: Series,
}

/// The estimated remaining time of a job, in seconds. 8 of 10 jobs end between the least and the most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Eta {
    /// A tenth of the jobs end earlier.
    pub least_seconds: f64,
    /// Half of the jobs end earlier.
    pub likely_seconds: f64,
    /// A tenth of the jobs end later.
    pub most_seconds: f64,
}

/// A job as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobAbout {
    /// Its stage.
    pub stage: Stage,
    /// Its record; `None` if it cannot be read.
    pub record: Option<Frozen<JobRecord>>,
    /// The missing requirement, if no node takes the job.
    pub missing: Option<String>,
    /// Whether any node has reported; otherwise the figures, requests and latencies are unknown.
    #[serde(default)]
    pub reported: bool,
    /// The node that leads it.
    pub leader: Option<String>,
    /// The sums of its nodes' figures.
    pub figures: Figures,
    /// The number of its requests to ZooKeeper.
    pub requests: Requests,
    /// The latencies of these requests, for the nodes that report them.
    pub latencies: Latencies,
    /// The sums over the pools of the nodes at work; `None` if no node reports its pool.
    pub pool: Option<PoolSum>,
    /// The number of nodes at work that have reported.
    pub nodes_at_work: u32,
    /// The share of the whole job that is done.
    pub share: Option<f64>,
    /// The best known value.
    pub best: Option<f64>,
    /// The bound: nothing better than this can be found.
    pub bound: Option<f64>,
    /// The distance of the best from the bound, as a share of the best.
    pub gap: Option<f64>,
    /// The estimated remaining time at the observed speed.
    pub eta: Option<Eta>,
    /// The number of tasks that run, are queued, wait or are parked.
    pub open_tasks: Option<u64>,
    /// The number of tasks in the global task list.
    pub listed_tasks: Option<u32>,
    /// The number of parked tasks.
    pub parked_tasks: Option<u32>,
    /// The tasks that were set aside, each with the number of nodes that failed with it, and the last reason.
    pub set_aside: BTreeMap<String, (u32, String)>,
    /// The names of nodes that were lost in its current attempt.
    pub lost: Vec<String>,
    /// The display that its companion provides.
    pub display: Option<Frozen<JobDisplay>>,
    /// Its costs; `None` if no node has reported on it.
    #[serde(default)]
    pub cost: Option<JobCost>,
}

/// The sums over the pools of several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolSum {
    /// The number of workers.
    pub workers: u32,
    /// The number of workers with a task.
    pub busy: u32,
    /// The number of queued tasks.
    pub queued: u32,
    /// The number of waiting tasks.
    pub waiting: u32,
    /// The number of workers without a task for which none is queued.
    pub hungry: u32,
}

/// A node's part in a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeNow {
    /// The state of the node.
    pub state: NodeState,
    /// Its last report.
    pub report: Frozen<NodeFigures<Figures>>,
}

/// The state of a node that works or worked on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// It is a member.
    Member,
    /// It is gone.
    Left,
    /// It went without a clean leave: in the job's last attempt, or in an earlier one that its loss ended.
    Lost,
}

/// An event of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Moment {
    /// The tick at which it became known.
    pub seq: u64,
    /// The time of its observation, in milliseconds since 1970 by the observer's clock.
    pub at_ms: u64,
    /// The kind of event.
    pub what: MomentKind,
    /// The node or job.
    pub name: String,
    /// The record of a node that has gone, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Frozen<Member>>,
}

/// The kinds of events of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MomentKind {
    /// A node has become a member.
    Joined,
    /// A node has gone after leaving its jobs cleanly.
    Left,
    /// A node has gone without leaving cleanly.
    Lost,
    /// A job has started to run.
    JobRuns,
    /// A job is over.
    JobOver,
    /// A user has changed the weight or the priority of a job.
    JobShare,
    /// A node has been cordoned.
    Cordoned,
    /// A node has been uncordoned.
    Uncordoned,
    /// No server of `ZooKeeper` answers the observer.
    ServersAway,
    /// A server answers again.
    ServersBack,
}

/// The changes of a cluster between two ticks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delta {
    /// The tick of the previous state.
    pub since: u64,
    /// The tick of the new state.
    pub seq: u64,
    /// The cluster as a whole.
    pub cluster: ClusterNow,
    /// The members.
    pub members: Changes<Frozen<MemberNow>>,
    /// The removed jobs.
    pub jobs_gone: Vec<String>,
    /// The new and changed jobs.
    pub jobs: BTreeMap<String, JobDelta>,
    /// The new events.
    pub moments: Vec<Moment>,
    /// The errors of unreadable znodes, if they have changed.
    pub warnings: Option<BTreeMap<String, String>>,
    /// The costs of nodes, if they have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<CostsDelta>,
    /// The new points of the workers over time, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<SeriesDelta>,
}

/// The changes of a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobDelta {
    /// The job's summary, if it has changed, without its record and its companion's display.
    pub about: Option<Frozen<JobAbout>>,
    /// Its record, if that has changed: it is larger than the rest, and changes rarely.
    #[serde(default, deserialize_with = "changed", skip_serializing_if = "Option::is_none")]
    pub record: Option<Option<Frozen<JobRecord>>>,
    /// The display that its companion provides, if that has changed.
    #[serde(default, deserialize_with = "changed", skip_serializing_if = "Option::is_none")]
    pub display: Option<Option<Frozen<JobDisplay>>>,
    /// Its nodes.
    pub nodes: Changes<Frozen<NodeNow>>,
    /// The new points of the job's history, if any.
    pub series: Option<SeriesDelta>,
}

/// Reads a changed value: `null` means that there is none any longer, and an absent field that it is unchanged.
fn changed<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Snapshot {
    /// Applies a delta, which must start at this snapshot.
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
                let display = change.display.unwrap_or_else(|| job.about.display.clone());
                job.about = Frozen::new(JobAbout { record, display, ..(*about).clone() });
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
        if let Some(workers) = delta.workers {
            self.workers.apply(workers);
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
            eta: None,
            open_tasks: None,
            listed_tasks: None,
            parked_tasks: None,
            set_aside: BTreeMap::new(),
            lost: Vec::new(),
            display: None,
            cost: None,
        }
    }
}

impl NodeState {
    /// Returns the name of the state.
    pub fn text(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Left => "left",
            Self::Lost => "lost",
        }
    }
}

//! A job as observed: from a query of a cluster, or from records.

use serde_json::{Value, json};
use taskwork::{
    JobId,
    client::records::EventKind,
    view::{JobNow, Moment, MomentKind, NodeState, Snapshot},
};
use taskwork_cli::Failure;

use super::{joining::Observed, remarks};
use crate::{
    connection::Connection,
    web::detail::{self, concerns},
};

/// The maximum number of events of the cluster that are shown.
const MOMENTS_MAX: usize = 1_000;

/// A job as observed.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    /// The name of the cluster, or of the records.
    pub(crate) source: String,
    /// The last state of the cluster, with the events that concern the job.
    pub(crate) snapshot: Snapshot,
    /// Sentences about missing or misleading data.
    pub(crate) remarks: Vec<String>,
    /// Better solutions: time, value and node, as far as they are known.
    pub(crate) improvements: Vec<Value>,
}

impl Seen {
    /// Queries a cluster for a job.
    ///
    /// # Errors
    /// If the job does not exist, or ZooKeeper was unavailable for too long.
    pub(crate) async fn in_cluster(connection: &Connection, id: &JobId) -> Result<Self, Failure> {
        let mut snapshot = connection.client.look_at(id).await?;
        let id = id.as_str().to_owned();
        snapshot.jobs.retain(|job, _| *job == id);
        let told =
            snapshot.jobs.get(&id).map(|job| (told(&id, job), improved(job), remarks::of_cluster(job)));
        let (moments, improvements, remarks) = told.unwrap_or_default();
        // A query sees one moment: the history is that of the nodes' events.
        snapshot.moments = moments;
        Ok(Self {
            id,
            source: format!("/taskwork/{}", connection.client.cluster_name()),
            snapshot,
            remarks,
            improvements,
        })
    }

    /// Returns a recorded job.
    pub(super) fn recorded(id: &str, source: String, mut snapshot: Snapshot, observed: &Observed) -> Self {
        let (mut improvements, mut remarks) = (Vec::new(), Vec::new());
        if let Some(job) = snapshot.jobs.get(id) {
            snapshot.moments.retain(|moment| concerns(moment, id, job));
            let surplus = snapshot.moments.len().saturating_sub(MOMENTS_MAX);
            snapshot.moments.drain(..surplus);
            improvements = detail::improvements(job);
            remarks = remarks::of_record(id, job, &snapshot.moments, observed);
        }
        Self { id: id.to_owned(), source, snapshot, remarks, improvements }
    }

    pub(crate) fn job(&self) -> Option<&JobNow> {
        self.snapshot.jobs.get(&self.id)
    }

    /// Returns the name of the job, or its id if it has none.
    pub(crate) fn name(&self) -> &str {
        let record = self.job().and_then(|job| job.about.record.as_deref());
        record.map(|record| record.name.as_str()).filter(|name| !name.is_empty()).unwrap_or(&self.id)
    }

    /// Returns the names of nodes that were seen to be lost. The znodes of a finished job no longer have them.
    pub(crate) fn lost_nodes(&self) -> impl Iterator<Item = &str> {
        let lost = self.snapshot.moments.iter().filter(|moment| moment.what == MomentKind::Lost);
        lost.map(|moment| moment.name.as_str())
    }

    /// Returns when nodes started to work on the job, by the observer's clock, or by their own if it was not observed.
    /// `None` if the start was not observed.
    pub(crate) fn began_ms(&self) -> Option<u64> {
        let runs = |moment: &&Moment| moment.what == MomentKind::JobRuns && moment.name == self.id;
        self.snapshot.moments.iter().find(runs).map(|moment| moment.at_ms)
    }
}

/// Returns the events that nodes report, by their own clocks.
fn told(id: &str, job: &JobNow) -> Vec<Moment> {
    let mut told: Vec<(u64, &str, &str)> = Vec::new();
    let lost = job.about.record.iter().flat_map(|record| &record.lost);
    told.extend(lost.clone().map(|lost| (lost.at_ms, "lost", lost.node.as_str())));
    let first = |kind: EventKind| {
        let events = job.nodes.values().flat_map(|node| &node.report.timeline);
        events.filter(|event| event.kind == kind).map(|event| event.at_ms).min()
    };
    told.extend(first(EventKind::TakesPart).map(|at_ms| (at_ms, "job_runs", id)));
    let over = job.about.record.as_ref().and_then(|record| record.finished_ms);
    told.extend(over.map(|at_ms| (at_ms, "job_over", id)));
    for (name, node) in &job.nodes {
        let of = |kinds: &[EventKind]| {
            let mut events = node.report.timeline.iter().filter(|event| kinds.contains(&event.kind));
            events.next().map(|event| event.at_ms)
        };
        told.extend(
            of(&[EventKind::TakesPart, EventKind::Joined]).map(|at_ms| (at_ms, "joined", name.as_str())),
        );
        told.extend(of(&[EventKind::Left, EventKind::Abandoned]).map(|at_ms| (at_ms, "left", name.as_str())));
        let is_named = || lost.clone().any(|lost| lost.node == *name);
        if node.state == NodeState::Lost && !is_named() {
            // The time of its last report.
            told.push((node.report.at_ms, "lost", name));
        }
    }
    told.sort_unstable();
    let surplus = told.len().saturating_sub(MOMENTS_MAX);
    let told: Vec<Value> = told[surplus..]
        .iter()
        .map(|(at_ms, what, name)| json!({ "seq": 0, "at_ms": at_ms, "what": what, "name": name }))
        .collect();
    serde_json::from_value(told.into()).unwrap_or_default()
}

/// Returns the times at which nodes report a better solution; they do not report its value.
fn improved(job: &JobNow) -> Vec<Value> {
    let mut found: Vec<(u64, &str)> = Vec::new();
    for (name, node) in &job.nodes {
        let events = node.report.timeline.iter().filter(|event| event.kind == EventKind::Improved);
        found.extend(events.map(|event| (event.at_ms, name.as_str())));
    }
    found.sort_unstable();
    let surplus = found.len().saturating_sub(MOMENTS_MAX);
    found[surplus..]
        .iter()
        .map(|(at_ms, node)| json!({ "at_ms": at_ms, "value": null, "node": node }))
        .collect()
}

//! A cluster at one moment.

use std::collections::BTreeMap;

use serde_json::json;
use zk::{
    ClusterPaths, Store, election, figures,
    job::{self, JobRecord, JobState},
    membership::{self, Member},
};

use crate::{figures::Figures, shell::clock::unix_ms};

/// A cluster at one moment, read in one go.
#[derive(Debug)]
pub(super) struct Overview {
    pub(super) members: Vec<Member>,
    /// What each leader's nodes run, and the leader.
    pub(super) leaders: Vec<(String, String)>,
    /// Nodes that were asked to leave.
    pub(super) draining: Vec<String>,
    pub(super) jobs: Vec<(String, zk::Result<JobRecord>)>,
    /// When it was read, in milliseconds since 1970 by this machine's clock.
    pub(super) at_ms: u64,
}

/// How long a submission may take, in milliseconds, before its submitter is taken to be gone. Nothing is lost by a mistake, or by
/// clocks that differ: a submitter whose record was removed before it was a job begins anew.
const SUBMISSION_MS_MAX: u64 = 10 * 60 * 1000;

/// How a job stands, as an operator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Submitting,
    /// It was not submitted to its end, and its submitter is gone.
    Abandoned,
    /// At work.
    Running,
    /// Behind another job of its program.
    Queued,
    /// No node runs its program and version.
    NoNodes,
    /// Put aside by an operator.
    Suspended,
    Done,
    Failed,
    Cancelled,
    /// It cannot be read.
    Unreadable,
}

impl Stage {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Submitting => "submitting",
            Self::Abandoned => "abandoned",
            Self::Running => "running",
            Self::Queued => "queued",
            Self::NoNodes => "waits for nodes",
            Self::Suspended => "suspended",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unreadable => "unreadable",
        }
    }
}

/// How many of the last jobs are looked at although they are over: what their tasks do not let go of may matter still.
const LAST_JOBS: usize = 3;

impl Overview {
    /// Of each node the task that does not stop although it was asked to long ago, with its job.
    ///
    /// # Errors
    /// Whatever the store refuses.
    pub(super) async fn silent(
        &self,
        store: &dyn Store,
        cluster: &ClusterPaths,
    ) -> zk::Result<BTreeMap<String, String>> {
        let mut silent = BTreeMap::new();
        let last = self.jobs.len().saturating_sub(LAST_JOBS);
        for (place, (id, record)) in self.jobs.iter().enumerate() {
            if place < last && !record.as_ref().is_ok_and(|record| !record.state.is_over()) {
                continue;
            }
            for (node, said) in figures::read::<Figures>(store, cluster, id).await? {
                if let Some(first) = said.silent.first().filter(|_| !said.last) {
                    silent.insert(node, format!("task {} of job {id}", first.task));
                }
            }
        }
        silent.retain(|node, _| self.members.iter().any(|member| member.node == *node));
        Ok(silent)
    }

    pub(super) async fn read(store: &dyn Store, cluster: &ClusterPaths) -> zk::Result<Self> {
        Ok(Self {
            members: membership::list(store, cluster).await?,
            leaders: election::leaders(store, cluster).await?,
            draining: store.children(&cluster.drains()).await?,
            jobs: job::list(store, cluster).await?,
            at_ms: unix_ms(),
        })
    }

    pub(super) fn leads(&self, node: &str) -> bool {
        self.leaders.iter().any(|(_, leader)| leader == node)
    }

    pub(super) fn drains(&self, node: &str) -> bool {
        self.draining.iter().any(|draining| draining == node)
    }

    /// Whether there are nodes for a job.
    pub(super) fn has_nodes(&self, record: &JobRecord) -> bool {
        let runs = |member: &Member| {
            member.program == record.program && member.program_version == record.program_version
        };
        self.members.iter().any(runs)
    }

    /// Each job with its stage, in the order of submission.
    pub(super) fn stages(&self) -> Vec<(&str, Stage, Option<&JobRecord>)> {
        let mut busy: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        let mut stages = Vec::new();
        for (id, record) in &self.jobs {
            let Ok(record) = record else {
                stages.push((id.as_str(), Stage::Unreadable, None));
                continue;
            };
            let stage = match record.state {
                JobState::Submitting
                    if self.at_ms.saturating_sub(record.submitted_ms) > SUBMISSION_MS_MAX =>
                {
                    Stage::Abandoned
                }
                JobState::Submitting => Stage::Submitting,
                JobState::Suspended => Stage::Suspended,
                JobState::Done => Stage::Done,
                JobState::Failed => Stage::Failed,
                JobState::Cancelled => Stage::Cancelled,
                _ => {
                    let first = busy.entry((&record.program, &record.program_version)).or_insert(id);
                    match (*first == id, self.has_nodes(record)) {
                        (true, true) => Stage::Running,
                        (true, false) => Stage::NoNodes,
                        (false, _) => Stage::Queued,
                    }
                }
            };
            stages.push((id.as_str(), stage, Some(record)));
        }
        stages
    }

    /// A member as an object.
    pub(super) fn member_json(&self, member: &Member) -> serde_json::Value {
        json!({
            "node": member.node,
            "program": member.program,
            "version": member.program_version,
            "workers": member.workers,
            "address": member.address.map(|address| address.to_string()),
            "started_ms": member.started_ms,
            "leads": self.leads(&member.node),
            "draining": self.drains(&member.node),
        })
    }
}

/// A job as an object.
pub(super) fn job_json(id: &str, stage: Stage, record: Option<&JobRecord>) -> serde_json::Value {
    let Some(record) = record else { return json!({ "job": id, "state": stage.text() }) };
    json!({
        "job": id,
        "state": stage.text(),
        "program": record.program,
        "version": record.program_version,
        "kind": record.kind,
        "name": record.name,
        "submitter": record.submitter,
        "submitted_ms": record.submitted_ms,
        "finished_ms": record.finished_ms,
        "attempt": record.attempt,
        "attempts_max": record.attempts_max,
        "reason": record.reason,
        "lost": record.lost,
    })
}

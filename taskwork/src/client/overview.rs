//! A cluster at one moment: its members, its leaders, its jobs and how each stands.

use std::collections::BTreeMap;

use zk::{
    ClusterPaths, Store, election, figures,
    job::{self, JobRecord, JobState},
    membership::{self, Member},
};

use crate::{figures::Figures, shell::clock::unix_ms};

/// A cluster at one moment, read in one go.
#[derive(Debug)]
#[non_exhaustive]
pub struct Overview {
    /// The nodes.
    pub members: Vec<Member>,
    /// The programs that have a leader, as `program@version`, and the name of its node.
    pub leaders: Vec<(String, String)>,
    /// The names of nodes that were asked to leave.
    pub draining: Vec<String>,
    /// The jobs in the order of their submission.
    pub jobs: Vec<JobEntry>,
    /// When it was read, in milliseconds since 1970 by this machine's clock.
    pub at_ms: u64,
}

/// A job in an [`Overview`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobEntry {
    /// Its id.
    pub id: String,
    /// How it stands.
    pub stage: Stage,
    /// What is recorded of it; `None` if that cannot be read.
    pub record: Option<JobRecord>,
}

/// How a job stands, as an operator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Its data is being written.
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
    /// It has a result.
    Done,
    /// It has failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its record cannot be read.
    Unreadable,
}

/// How long a submission may take, in milliseconds, before its submitter is taken to be gone. Nothing is lost
/// by a mistake, or by clocks that differ: a submitter whose record was removed before it was a job begins
/// anew.
const SUBMISSION_MS_MAX: u64 = 10 * 60 * 1000;

/// How many of the last jobs are looked at although they are over: what their tasks do not let go of may
/// matter still.
const LAST_JOBS: usize = 3;

impl Stage {
    /// A word or two for people and scripts.
    pub fn text(self) -> &'static str {
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

    /// Whether the job may still produce something.
    pub fn is_open(self) -> bool {
        self < Self::Done
    }
}

impl Overview {
    pub(crate) async fn read(store: &dyn Store, cluster: &ClusterPaths) -> zk::Result<Self> {
        let members = membership::list(store, cluster).await?;
        let leaders = election::leaders(store, cluster).await?;
        let draining = store.children(&cluster.drains()).await?;
        let jobs = job::list(store, cluster).await?;
        let at_ms = unix_ms();
        let jobs = entries(jobs, &members, at_ms);
        Ok(Self { members, leaders, draining, jobs, at_ms })
    }

    /// Returns the task of each node that does not stop although it was asked to long ago, with its job.
    pub(crate) async fn unstoppable(
        &self,
        store: &dyn Store,
        cluster: &ClusterPaths,
    ) -> zk::Result<BTreeMap<String, String>> {
        let mut unstoppable = BTreeMap::new();
        let last = self.jobs.len().saturating_sub(LAST_JOBS);
        for (place, JobEntry { id, record, .. }) in self.jobs.iter().enumerate() {
            if place < last && record.as_ref().is_none_or(|record| record.state.is_over()) {
                continue;
            }
            for (node, said) in figures::read::<Figures>(store, cluster, id).await? {
                if let Some(first) = said.silent.first().filter(|_| !said.last) {
                    unstoppable.insert(node, format!("task {} of job {id}", first.task));
                }
            }
        }
        unstoppable.retain(|node, _| self.members.iter().any(|member| member.node == *node));
        Ok(unstoppable)
    }

    /// Returns the entry of a job.
    pub fn job(&self, id: &str) -> Option<&JobEntry> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// Whether a node leads the nodes that run the same program as it does.
    pub fn leads(&self, node: &str) -> bool {
        self.leaders.iter().any(|(_, leader)| leader == node)
    }

    /// Whether a node was asked to leave.
    pub fn drains(&self, node: &str) -> bool {
        self.draining.iter().any(|draining| draining == node)
    }
}

/// The jobs with their stages, in the order of submission.
fn entries(jobs: Vec<(String, zk::Result<JobRecord>)>, members: &[Member], at_ms: u64) -> Vec<JobEntry> {
    let mut busy: BTreeMap<(String, String), String> = BTreeMap::new();
    let entry = |(id, record): (String, zk::Result<JobRecord>)| {
        let Ok(record) = record else { return JobEntry { id, stage: Stage::Unreadable, record: None } };
        let stage = match record.state {
            JobState::Submitting if at_ms.saturating_sub(record.submitted_ms) > SUBMISSION_MS_MAX => {
                Stage::Abandoned
            }
            JobState::Submitting => Stage::Submitting,
            JobState::Suspended => Stage::Suspended,
            JobState::Done => Stage::Done,
            JobState::Failed => Stage::Failed,
            JobState::Cancelled => Stage::Cancelled,
            _ => {
                let program = (record.program.clone(), record.program_version.clone());
                let first = busy.entry(program).or_insert_with(|| id.clone());
                match (*first == id, has_nodes(members, &record)) {
                    (true, true) => Stage::Running,
                    (true, false) => Stage::NoNodes,
                    (false, _) => Stage::Queued,
                }
            }
        };
        JobEntry { id, stage, record: Some(record) }
    };
    jobs.into_iter().map(entry).collect()
}

/// Whether there are nodes for a job.
fn has_nodes(members: &[Member], record: &JobRecord) -> bool {
    let runs = |member: &Member| {
        member.program == record.program && member.program_version == record.program_version
    };
    members.iter().any(runs)
}

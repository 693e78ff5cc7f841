//! Jobs: their records, and how they are submitted, retried and closed.
//!
//! ```text
//!   Submitting ─▶ Running ─▶ Done          the list is empty: the leader writes the result
//!             ▲     │  ▲ ├─▶ Incomplete    the same, but tasks were set aside; a retry makes it Running
//!             ▲     │  ▲ └─▶ Failed        the program is at fault, or too many attempts have ended
//!             │     │  │ └─▶ Cancelled     a user stopped it
//!             ▼     └──┘ an unprotected node was lost: another attempt
//!         Suspended                        its tasks are parked until a user resumes it
//! ```
mod brought;
mod end;
mod lead;
mod open;
mod release;
mod retry;
pub mod share;
mod submit;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

pub(crate) use self::end::remove;
pub use self::{
    brought::BroughtProgram,
    end::{cancel, fail, forget, resume, suspend},
    lead::{
        Closing, LeadError, NewAttempt, Outcome, SHOWN_BYTES_MAX, close, lost, new_attempt, outputs, result,
    },
    open::{Added, ROOTS_MAX, add, finish, settle},
    release::release,
    retry::{Retried, retry},
    share::{NewShare, Share, ShareChange, set_share},
    submit::{NewJob, Submission, submit},
};
use crate::{
    chunks,
    error::{Error, Result},
    labels::Labels,
    paths::ClusterPaths,
    record,
    store::{CreateMode, OneShot, Op, Store, Version, seen},
};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// Its data is being written.
    Submitting,
    /// Nodes may work on it.
    Running,
    /// Suspended: its tasks are parked, and its nodes work on other jobs.
    Suspended,
    /// Complete, with a result.
    Done,
    /// Complete except for tasks that were set aside, with a result without them.
    Incomplete,
    /// It cannot be completed; the record states why.
    Failed,
    /// Stopped by a user.
    Cancelled,
}

impl JobState {
    /// Returns whether the job has ended permanently.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Incomplete | Self::Failed | Self::Cancelled)
    }

    /// Returns whether nodes may work on the job.
    pub fn is_running(self) -> bool {
        self == Self::Running
    }

    /// Returns whether the [share](Share) of the job can be changed: its submitter does not write it, and nodes will use it.
    pub fn accepts_share(self) -> bool {
        matches!(self, Self::Running | Self::Suspended)
    }
}

/// The record of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The program that runs it.
    pub program: String,
    /// The program's version.
    pub program_version: String,
    /// The type of its tasks, one of those that the program has.
    pub kind: String,
    /// The name of that type in the program's source; empty if it is not known.
    #[serde(default)]
    pub task_type: String,
    /// The submitter's name for it.
    pub name: String,
    /// The user who submitted it.
    pub submitter: String,
    /// A key that identifies the submission if it may be retried.
    #[serde(default)]
    pub key: String,
    /// The state of the job.
    pub state: JobState,
    /// The current attempt, from 1.
    pub attempt: u32,
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// The number of nodes in a row that may be lost with a task before it is set aside, 0 for any number.
    #[serde(default)]
    pub crashes_max: u32,
    /// The labels that a node must have to work on it.
    #[serde(default)]
    pub require: Labels,
    /// The jobs that must be done before nodes work on it.
    #[serde(default)]
    pub after: Vec<String>,
    /// Whether root tasks may be added while it runs, until that is [finished](finish).
    #[serde(default)]
    pub stays_open: bool,
    /// Its share of the nodes.
    #[serde(default)]
    pub share: Share,
    /// The latest changes of its share since its submission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_changes: Vec<ShareChange>,
    /// The id of the root task.
    pub root: String,
    /// The number of chunks of the shared data.
    pub shared_chunks: usize,
    /// The name by which nodes fetch the shared data from each other; empty if each reads the chunks.
    #[serde(default)]
    pub shared_name: String,
    /// The member that has provided the shared data, if that is too large to be stored here: then only
    /// members have it. Empty if it is stored.
    #[serde(default)]
    pub shared_from: String,
    /// The program, if it travels with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought: Option<BroughtProgram>,
    /// When it was submitted, in milliseconds since 1970 by the submitter's clock.
    pub submitted_ms: u64,
    /// The size of its result, in bytes; 0 without one.
    #[serde(default)]
    pub result_bytes: u64,
    /// When it ended, by the clock of the process that ended it.
    pub finished_ms: Option<u64>,
    /// When it was suspended, if it is, by the clock of the process that did it.
    #[serde(default)]
    pub suspended_since_ms: Option<u64>,
    /// The total time of its earlier suspensions, in milliseconds.
    #[serde(default)]
    pub suspended_ms: u64,
    /// Why it failed or was cancelled, if it did.
    pub reason: Option<String>,
    /// The latest retry, if there was one.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// The lost nodes, each with the attempt that it ended.
    pub lost: Vec<Lost>,
}

impl JobRecord {
    /// Returns the total time for which it was suspended, in milliseconds, up to a time.
    pub fn suspended_until(&self, now_ms: u64) -> u64 {
        let present = self.suspended_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        self.suspended_ms.saturating_add(present)
    }

    /// Adds a present suspension, which ends now, to the earlier ones.
    fn end_suspension(&mut self, now_ms: u64) {
        self.suspended_ms = self.suspended_until(now_ms);
        self.suspended_since_ms = None;
    }
}

/// A retry of the tasks that were set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Identifies it.
    pub key: String,
    /// The number of tasks.
    pub tasks: usize,
}

/// A node that disappeared without a clean leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The node.
    pub node: String,
    /// The attempt that its loss ended.
    pub attempt: u32,
    /// When the leader detected the loss, in milliseconds since 1970 by the leader's clock.
    pub at_ms: u64,
}

/// Reads a job's record.
///
/// # Errors
/// Any error from the store; [`Error::Garbled`] if the znode does not hold a record.
pub async fn read(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<(JobRecord, Version)> {
    let path = cluster.job(job).record();
    let (content, stat) = store.get(&path).await?;
    Ok((record::read(&path, &content)?, stat.version))
}

/// Decodes a job's record, from the content of its znode.
///
/// # Errors
/// [`Error::Garbled`] if the content is not a record.
pub fn decode(path: &str, content: &[u8]) -> Result<JobRecord> {
    record::read(path, content)
}

/// Reads a job's shared data.
///
/// # Errors
/// Any error from the store.
pub async fn shared(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<Vec<u8>> {
    let (record, _) = read(store, cluster, job).await?;
    let mut shared = Vec::new();
    shared_chunks(store, cluster, job, &record, |chunk| shared.extend(chunk)).await?;
    Ok(shared)
}

/// Reads a job's shared data, and passes on one chunk after another.
///
/// # Errors
/// As [`shared`].
pub async fn shared_chunks(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    record: &JobRecord,
    take: impl FnMut(Vec<u8>),
) -> Result<()> {
    let paths = cluster.job(job);
    chunks::read_each(store, |k| paths.shared_chunk(k), record.shared_chunks, take).await
}

/// A watch on the record of a job.
pub struct JobWatch {
    store: Arc<dyn Store>,
    path: String,
    changed: Option<OneShot>,
}

impl JobWatch {
    /// Creates a watch on a job.
    ///
    /// # Errors
    /// None at present; another store may have to send a request here.
    #[allow(clippy::unused_async, reason = "every watch is opened in the same way")]
    pub async fn open(store: Arc<dyn Store>, cluster: &ClusterPaths, job: &str) -> Result<Self> {
        Ok(Self { store, path: cluster.job(job).record(), changed: None })
    }

    /// Returns the current record at first, and then the record after each change. Changes in quick
    /// succession may be skipped.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future may cause a record to be returned twice, but loses none.
    pub async fn next(&mut self) -> Result<JobRecord> {
        if let Some(changed) = &mut self.changed {
            let event = changed.await;
            self.changed = None;
            seen(&*self.store, &event)?;
        }
        let (content, _, changed) = self.store.get_and_watch(&self.path).await?;
        self.changed = Some(changed);
        record::read(&self.path, &content)
    }
}

/// Returns every job with its record, in the order of submission; for an unreadable record the error.
///
/// # Errors
/// Any error from the store.
pub async fn list(store: &dyn Store, cluster: &ClusterPaths) -> Result<Vec<(String, Result<JobRecord>)>> {
    let names = store.children(&cluster.jobs()).await?;
    let asked: Vec<_> = names.iter().map(|name| store.get(&cluster.job(name).record())).collect();
    let mut jobs = Vec::new();
    for (name, answer) in names.into_iter().zip(asked) {
        match answer.await {
            Ok((content, _)) => {
                let record = record::read(&cluster.job(&name).record(), &content);
                jobs.push((name, record));
            }
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(jobs)
}

fn create(path: String, data: &[u8]) -> Op {
    Op::Create { path, data: data.to_vec(), mode: CreateMode::Persistent }
}

impl fmt::Debug for JobWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWatch").field("path", &self.path).finish_non_exhaustive()
    }
}

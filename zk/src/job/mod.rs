//! Jobs: their records, how they are submitted, tried again, closed.
//!
//! ```text
//!   Submitting ─▶ Running ─▶ Done          the list is empty: the leader writes the result
//!             ▲     │  ▲ └─▶ Failed        the program is at fault, or too many nodes were lost
//!             │     │  │ └─▶ Cancelled     somebody stopped it
//!             ▼     └──┘ a node was lost: another attempt
//!         Suspended                        its tasks are parked until somebody resumes it
//! ```
mod end;
mod lead;
mod submit;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

pub(crate) use self::end::remove;
pub use self::{
    end::{cancel, fail, forget, resume, suspend},
    lead::{
        Closing, LeadError, NewAttempt, Outcome, SHOWN_BYTES_MAX, close, lost, new_attempt, outputs, result,
    },
    submit::{NewJob, Submission, submit},
};
use crate::{
    chunks,
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, OneShot, Op, Store, Version, seen},
};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// Its data is being written.
    Submitting,
    /// At work.
    Running,
    /// Put aside: its tasks are parked, and nodes take the next job.
    Suspended,
    /// Complete, with a result.
    Done,
    /// It cannot be completed; the record says why.
    Failed,
    /// Stopped by somebody.
    Cancelled,
}

impl JobState {
    /// Whether nothing will happen to the job any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Whether nodes may work on it.
    pub fn is_running(self) -> bool {
        self == Self::Running
    }
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The program it is for.
    pub program: String,
    /// The program's version.
    pub program_version: String,
    /// Which of the program's types of task it is made of.
    pub kind: String,
    /// What its submitter calls it.
    pub name: String,
    /// Who submitted it.
    pub submitter: String,
    /// What tells its submission from every other, if it may be tried again.
    #[serde(default)]
    pub key: String,
    /// Where it stands.
    pub state: JobState,
    /// The current attempt, from 1.
    pub attempt: u32,
    /// How many attempts there may be.
    pub attempts_max: u32,
    /// The id of the root task.
    pub root: String,
    /// Chunks of the shared data.
    pub shared_chunks: usize,
    /// When it was submitted, in milliseconds since 1970 by the submitter's clock.
    pub submitted_ms: u64,
    /// When it ended, by the clock of whoever ended it.
    pub finished_ms: Option<u64>,
    /// Why it failed or was cancelled.
    pub reason: Option<String>,
    /// The nodes that were lost, and in which attempt.
    pub lost: Vec<Lost>,
}

/// A node that went without leaving cleanly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The node.
    pub node: String,
    /// The attempt that it ended.
    pub attempt: u32,
    /// When the leader noticed, in milliseconds since 1970 by the leader's clock.
    pub at_ms: u64,
}

/// Reads a job's record.
///
/// # Errors
/// Whatever the store refuses; [`Error::Garbled`] if there is no record in the znode.
pub async fn read(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<(JobRecord, Version)> {
    let path = cluster.job(job).record();
    let (content, stat) = store.get(&path).await?;
    Ok((record::read(&path, &content)?, stat.version))
}

/// Reads a job's shared data.
///
/// # Errors
/// Whatever the store refuses.
pub async fn shared(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<Vec<u8>> {
    let (record, _) = read(store, cluster, job).await?;
    let paths = cluster.job(job);
    chunks::read(store, |k| paths.shared_chunk(k), record.shared_chunks).await
}

/// The record of a job as it changes.
pub struct JobWatch {
    store: Arc<dyn Store>,
    path: String,
    changed: Option<OneShot>,
}

impl JobWatch {
    /// Begins to watch a job.
    ///
    /// # Errors
    /// None at present; a store that has to ask may have some.
    #[allow(clippy::unused_async, reason = "every watch is opened in the same way")]
    pub async fn open(store: Arc<dyn Store>, cluster: &ClusterPaths, job: &str) -> Result<Self> {
        Ok(Self { store, path: cluster.job(job).record(), changed: None })
    }

    /// The record as it is, and then after each change. Changes that follow each other closely may be passed
    /// over.
    ///
    /// # Errors
    /// Whatever the store refuses; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future may let a record be told twice, and loses none.
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

/// Every job with its record, in the order of submission. What cannot be read is given as the error it is.
///
/// # Errors
/// Whatever the store refuses.
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

//! The operations reserved for the leader: it detects lost nodes, starts new attempts and closes jobs. Each
//! write carries its fence.

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use super::{JobRecord, JobState, Lost, create, end::shortened, read, submit::attempt};
use crate::{
    blob, chunks,
    election::Fence,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths, JobPaths},
    record,
    store::{Op, Store, Version},
};

/// Why a leader's write did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum LeadError {
    /// The fence failed: another node leads.
    #[error("another node leads now")]
    Deposed,
    /// The store refused the write. After a [transient](Error::is_transient) error the leader reads the
    /// record again.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The outcome of closing a job.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// The job is done; the result is written.
    Closed,
    /// The job was already over.
    AlreadyOver,
    /// Another attempt has started, or the record has changed: read it again.
    NotCurrent,
}

/// The outcome of starting another attempt.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewAttempt {
    /// This attempt has started.
    Started(u32),
    /// There were too many attempts; the job has failed.
    GaveUp,
    /// Another process has started one, or ended the job: read the record again.
    NotCurrent,
}

/// Returns the nodes that enrolled in an attempt, are no longer members and did not leave cleanly: their
/// tasks are lost.
///
/// # Errors
/// Any error from the store.
pub async fn lost(store: &dyn Store, cluster: &ClusterPaths, attempt: &AttemptPaths) -> Result<Vec<String>> {
    store.sync(&attempt.base()).await?;
    // The order matters. A node becomes a member before it enrols, so every enrolled node was a member then.
    // It ends its membership after it has left cleanly, so for a node missing from the members, the record of its
    // clean leave, if any, is visible afterwards.
    let took_part = store.children(&attempt.outputs()).await?;
    let members = store.children(&cluster.members()).await?;
    let left = store.children(&attempt.left()).await?;
    Ok(took_part.into_iter().filter(|node| !members.contains(node) && !left.contains(node)).collect())
}

/// Returns the output of each node's committed tasks.
///
/// # Errors
/// Any error from the store.
pub async fn outputs(store: &dyn Store, attempt: &AttemptPaths) -> Result<Vec<(String, Vec<u8>)>> {
    let nodes = store.children(&attempt.outputs()).await?;
    let paths: Vec<String> = nodes.iter().map(|node| attempt.output(node)).collect();
    // All outputs are requested before the first answer is awaited.
    let asked: Vec<_> = paths.iter().map(|path| store.get(path)).collect();
    let mut outputs = Vec::new();
    for ((node, path), answer) in nodes.into_iter().zip(&paths).zip(asked) {
        let (content, _) = answer.await?;
        let output = match blob::get(store, path, &content).await {
            // Nodes may still write: the same output, but in other chunks.
            Err(missing @ Error::NoNode { .. }) => blob::read(store, path).await?.ok_or(missing)?.1,
            output => output?,
        };
        outputs.push((node, output));
    }
    Ok(outputs)
}

/// The location of a result's chunks.
#[derive(Debug, Serialize, Deserialize)]
struct ResultRecord {
    attempt: u32,
    chunks: usize,
    /// A form for users without the program.
    shown: serde_json::Value,
}

/// The product of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The result, encoded for the program.
    pub result: Vec<u8>,
    /// The same for users without the program, if it fits into a znode; null otherwise.
    pub shown: serde_json::Value,
    /// The reason if the result means that the program has failed.
    pub failure: Option<String>,
    /// The reason why the result is incomplete, if tasks were set aside.
    pub incomplete: Option<String>,
}

/// The maximum size of the human-readable part of a result, in bytes of JSON.
pub const SHOWN_BYTES_MAX: usize = 256 << 10;

/// Closes a job with its result, if this attempt is the current one.
///
/// # Errors
/// See [`LeadError`].
pub async fn close(
    store: &dyn Store,
    fence: &Fence,
    cluster: &ClusterPaths,
    job: &str,
    attempt: u32,
    outcome: &Outcome,
    now_ms: u64,
) -> std::result::Result<Closing, LeadError> {
    let (mut record, version) = read(store, cluster, job).await?;
    if record.state.is_over() {
        return Ok(Closing::AlreadyOver);
    }
    if record.attempt != attempt || !record.state.is_running() {
        return Ok(Closing::NotCurrent);
    }
    let (paths, attempt_paths) = (cluster.job(job), cluster.job(job).attempt(attempt));
    (record.state, record.reason) = match (&outcome.failure, &outcome.incomplete) {
        (Some(reason), _) => (JobState::Failed, Some(shortened(reason))),
        (None, Some(reason)) => (JobState::Incomplete, Some(reason.clone())),
        (None, None) => (JobState::Done, None),
    };
    record.finished_ms = Some(now_ms);
    record.result_bytes = outcome.result.len() as u64;
    let fits = outcome.shown.to_string().len() <= SHOWN_BYTES_MAX;
    let shown = if fits { outcome.shown.clone() } else { serde_json::Value::Null };
    let result = |chunks| create(paths.result(), &record::write(&ResultRecord { attempt, chunks, shown }));
    let folder = attempt_paths.result_chunks();
    // A small result is written in the same multi, unless an earlier try has left chunks.
    let written = store.exists(&folder).await?.is_some();
    let ops = if !written && outcome.result.len() <= SMALL_RESULT_BYTES_MAX {
        vec![create(folder, b""), create(attempt_paths.result_chunk(0), &outcome.result), result(1)]
    } else {
        let chunk = |k| attempt_paths.result_chunk(k);
        let writing = chunks::write(store, &folder, chunk, &outcome.result, Some(fence.check()));
        let chunks = match writing.await {
            Err(Error::Multi { index: 0, cause }) if matches!(*cause, Error::NoNode { .. }) => {
                return Err(LeadError::Deposed);
            }
            other => other?,
        };
        vec![result(chunks)]
    };
    let closed = led(store, fence, &paths, &record, version, ops).await?;
    Ok(if closed { Closing::Closed } else { Closing::NotCurrent })
}

/// The largest result that is written in the same multi as the job's record, in bytes.
const SMALL_RESULT_BYTES_MAX: usize = 128 << 10;

/// Returns the result of a job that is done, is incomplete, or has failed by its result.
///
/// # Errors
/// Any error from the store.
pub async fn result(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<Outcome> {
    let paths = cluster.job(job);
    let (content, _) = store.get(&paths.result()).await?;
    let ResultRecord { attempt, chunks, shown } = record::read(&paths.result(), &content)?;
    let attempt = paths.attempt(attempt);
    let result = chunks::read(store, |k| attempt.result_chunk(k), chunks).await?;
    let (record, _) = read(store, cluster, job).await?;
    let reason_in = |state| record.reason.clone().filter(|_| record.state == state);
    let (failure, incomplete) = (reason_in(JobState::Failed), reason_in(JobState::Incomplete));
    Ok(Outcome { result, shown, failure, incomplete })
}

/// Starts another attempt after nodes were lost, or fails the job if there were too many.
///
/// # Errors
/// See [`LeadError`].
pub async fn new_attempt(
    store: &dyn Store,
    fence: &Fence,
    cluster: &ClusterPaths,
    job: &str,
    ended: u32,
    lost: &[String],
    now_ms: u64,
) -> std::result::Result<NewAttempt, LeadError> {
    let (mut record, version) = read(store, cluster, job).await?;
    if record.attempt != ended || !record.state.is_running() {
        return Ok(NewAttempt::NotCurrent);
    }
    let paths = cluster.job(job);
    record.lost.extend(lost.iter().map(|node| Lost { node: node.clone(), attempt: ended, at_ms: now_ms }));
    // The record must fit into its znode however many nodes come and go.
    let surplus = record.lost.len().saturating_sub(LOST_MAX);
    record.lost.drain(..surplus);
    if record.attempt >= record.attempts_max {
        record.state = JobState::Failed;
        record.finished_ms = Some(now_ms);
        record.reason =
            Some(format!("{} attempts were ended by lost nodes; the last: {}", ended, lost.join(", ")));
        let failed = led(store, fence, &paths, &record, version, []).await?;
        return Ok(if failed { NewAttempt::GaveUp } else { NewAttempt::NotCurrent });
    }
    record.attempt += 1;
    let (root, _) = store.get(&paths.root()).await?;
    let tasks = [(record.root.as_str(), root.as_slice())];
    let next = attempt(&paths.attempt(record.attempt), record.stays_open, tasks);
    let begun = led(store, fence, &paths, &record, version, next).await?;
    Ok(if begun { NewAttempt::Started(record.attempt) } else { NewAttempt::NotCurrent })
}

/// The maximum number of lost nodes in a record: the most recent ones.
const LOST_MAX: usize = 256;

/// Writes the record as the leader, together with `more`. Returns false if the record has changed since it
/// was read.
async fn led(
    store: &dyn Store,
    fence: &Fence,
    paths: &JobPaths,
    record: &JobRecord,
    version: Version,
    more: impl IntoIterator<Item = Op>,
) -> std::result::Result<bool, LeadError> {
    let mut ops = vec![
        fence.check(),
        Op::Set { path: paths.record(), data: record::write(record), version: Some(version) },
    ];
    ops.extend(more);
    match store.multi(ops).await {
        Ok(_) => Ok(true),
        Err(Error::Multi { index: 0, cause }) if matches!(*cause, Error::NoNode { .. }) => {
            Err(LeadError::Deposed)
        }
        Err(Error::Multi { index: 1, cause }) if matches!(*cause, Error::BadVersion { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

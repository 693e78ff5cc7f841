//! What only the leader does: it judges who is lost, begins another attempt, closes the job. Each write
//! carries its fence.

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use super::{JobRecord, JobState, Lost, create, read, submit::attempt};
use crate::{
    blob, chunks,
    election::Fence,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths, JobPaths},
    record,
    store::{Op, Store, Version},
};

/// Why a leader's write was not done.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum LeadError {
    /// The fence failed: another node leads.
    #[error("another node leads now")]
    Deposed,
    /// The store refused it. After a [transient](Error::is_transient) error the leader looks at the record
    /// again.
    #[error(transparent)]
    Store(#[from] Error),
}

/// What became of closing a job.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// It is done; the result is written.
    Closed,
    /// It was over before.
    AlreadyOver,
    /// Another attempt has begun, or the record has changed: to be looked at again.
    NotCurrent,
}

/// What became of beginning another attempt.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewAttempt {
    /// This one has begun.
    Started(u32),
    /// There were too many; the job has failed.
    GaveUp,
    /// Somebody else has begun one, or ended the job: to be looked at again.
    NotCurrent,
}

/// The nodes that took part in an attempt, are members no more and did not leave cleanly: what they held is
/// lost.
///
/// # Errors
/// Whatever the store refuses.
pub async fn lost(store: &dyn Store, cluster: &ClusterPaths, attempt: &AttemptPaths) -> Result<Vec<String>> {
    store.sync(&attempt.base()).await?;
    // The order matters. A node is a member before it takes part, so whoever took part was a member then; and
    // it leaves in one multi with its last word, so whoever is seen to be no member has its last word, if
    // any, to be seen after.
    let took_part = store.children(&attempt.outputs()).await?;
    let members = store.children(&cluster.members()).await?;
    let left = store.children(&attempt.left()).await?;
    Ok(took_part.into_iter().filter(|node| !members.contains(node) && !left.contains(node)).collect())
}

/// What each node's committed tasks have produced.
///
/// # Errors
/// Whatever the store refuses.
pub async fn outputs(store: &dyn Store, attempt: &AttemptPaths) -> Result<Vec<(String, Vec<u8>)>> {
    let nodes = store.children(&attempt.outputs()).await?;
    let paths: Vec<String> = nodes.iter().map(|node| attempt.output(node)).collect();
    // All are asked for before the first answer is awaited.
    let asked: Vec<_> = paths.iter().map(|path| store.get(path)).collect();
    let mut outputs = Vec::new();
    for ((node, path), answer) in nodes.into_iter().zip(&paths).zip(asked) {
        let (content, _) = answer.await?;
        outputs.push((node, blob::get(store, path, &content).await?));
    }
    Ok(outputs)
}

/// Where the chunks of a result are.
#[derive(Debug, Serialize, Deserialize)]
struct ResultRecord {
    attempt: u32,
    chunks: usize,
    /// For people who do not have the program.
    shown: serde_json::Value,
}

/// What a job has produced.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// For the program.
    pub result: Vec<u8>,
    /// The same for people who do not have the program, as far as that fits into a znode; null otherwise.
    pub shown: serde_json::Value,
}

/// How large the part of a result may be that is for people, in bytes of JSON.
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
    record.state = JobState::Done;
    record.finished_ms = Some(now_ms);
    let fits = outcome.shown.to_string().len() <= SHOWN_BYTES_MAX;
    let shown = if fits { outcome.shown.clone() } else { serde_json::Value::Null };
    let result = |chunks| create(paths.result(), &record::write(&ResultRecord { attempt, chunks, shown }));
    let folder = attempt_paths.result_chunks();
    // A small one goes with the record, unless an earlier try has left something there.
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

/// How large a result may be that is written with the record that the job is done, in bytes.
const SMALL_RESULT_BYTES_MAX: usize = 128 << 10;

/// The result of a job that is done.
///
/// # Errors
/// Whatever the store refuses.
pub async fn result(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<Outcome> {
    let paths = cluster.job(job);
    let (content, _) = store.get(&paths.result()).await?;
    let ResultRecord { attempt, chunks, shown } = record::read(&paths.result(), &content)?;
    let attempt = paths.attempt(attempt);
    let result = chunks::read(store, |k| attempt.result_chunk(k), chunks).await?;
    Ok(Outcome { result, shown })
}

/// Begins another attempt after nodes were lost, or lets the job fail if there were too many.
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
    // The record must not outgrow its znode however many nodes come and go.
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
    let next = attempt(&paths.attempt(record.attempt), &record.root, &root);
    let begun = led(store, fence, &paths, &record, version, next).await?;
    Ok(if begun { NewAttempt::Started(record.attempt) } else { NewAttempt::NotCurrent })
}

/// How many lost nodes a record names at most: the last ones.
const LOST_MAX: usize = 256;

/// A leader's write of the record, with what belongs to it. False if the record is not as it was read.
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

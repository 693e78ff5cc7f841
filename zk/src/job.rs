//! Jobs: their records, how they are submitted, tried again, closed.
//!
//! ```text
//!   Submitting ─▶ Running ─▶ Done          the list is empty: the leader writes the result
//!             ▲     │  ▲ └─▶ Failed        the program is at fault, or too many nodes were lost
//!             │     │  │ └─▶ Cancelled     somebody stopped it
//!             ▼     └──┘ a node was lost: another attempt
//!         Suspended                        its tasks are parked until somebody resumes it
//! ```

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::{
    blob,
    chunks::{self, CHUNKED_BYTES_MAX},
    election::Fence,
    error::{Effect, Error, Result},
    paths::{AttemptPaths, ClusterPaths, JobPaths},
    record,
    store::{CreateMode, OneShot, Op, Session, Store, Version, WatchEvent},
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

/// A job to be submitted.
#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    /// The program it is for.
    pub program: &'a str,
    /// The program's version.
    pub program_version: &'a str,
    /// Which of the program's types of task it is made of.
    pub kind: &'a str,
    /// What to call it.
    pub name: &'a str,
    /// Read-only data for all tasks.
    pub shared: &'a [u8],
    /// The root task's id.
    pub root_id: &'a str,
    /// The root task's envelope.
    pub root: &'a [u8],
    /// Variables with the values they start with.
    pub variables: &'a [(String, Vec<u8>)],
    /// How many attempts there may be.
    pub attempts_max: u32,
    /// Who submits it.
    pub submitter: &'a str,
    /// The time of day in milliseconds since 1970.
    pub now_ms: u64,
}

/// Why a leader's write was not done.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum LeadError {
    /// The fence failed: another node leads.
    #[error("another node leads now")]
    Deposed,
    /// The store refused it. After a [transient](Error::is_transient) error the leader looks at the record again.
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

/// Submits a job; gives its id. One multi makes it a job: before, it is nothing that a node would touch.
///
/// # Errors
/// Whatever the store refuses; [`Error::TooLarge`] for shared data or a root task beyond
/// [`CHUNKED_BYTES_MAX`].
pub async fn submit(store: &dyn Store, cluster: &ClusterPaths, new: &NewJob<'_>) -> Result<String> {
    let record = JobRecord {
        program: new.program.to_owned(),
        program_version: new.program_version.to_owned(),
        kind: new.kind.to_owned(),
        name: new.name.to_owned(),
        submitter: new.submitter.to_owned(),
        state: JobState::Submitting,
        attempt: 1,
        attempts_max: new.attempts_max,
        root: new.root_id.to_owned(),
        shared_chunks: 0,
        submitted_ms: new.now_ms,
        finished_ms: None,
        reason: None,
        lost: Vec::new(),
    };
    // Before anything is written: what cannot be submitted leaves nothing behind.
    for data in [new.shared, new.root] {
        if data.len() > CHUNKED_BYTES_MAX {
            let (path, limit) = (cluster.jobs(), CHUNKED_BYTES_MAX);
            return Err(Error::TooLarge { path, size: data.len(), limit });
        }
    }
    let folder = format!("{}/j-", cluster.jobs());
    let path = store.create(&folder, &record::write(&record), CreateMode::PersistentSequential).await?;
    let id = path.rsplit('/').next().unwrap_or_default().to_owned();
    let written = write_job(store, cluster, &id, record, new).await;
    // If the outcome is unknown, it may be a job by now, and stays.
    if written.as_ref().is_err_and(|error| error.effect() == Effect::None)
        && let Err(error) = forget(store, cluster, &id).await
    {
        tracing::debug!(job = id, %error, "what was written of the job stays; taskwork forget removes it");
    }
    written.map(|()| id)
}

/// Writes what belongs to a job, and lets it begin.
async fn write_job(
    store: &dyn Store,
    cluster: &ClusterPaths,
    id: &str,
    mut record: JobRecord,
    new: &NewJob<'_>,
) -> Result<()> {
    let job = cluster.job(id);
    if !new.shared.is_empty() {
        record.shared_chunks =
            chunks::write(store, &job.shared(), |k| job.shared_chunk(k), new.shared, None).await?;
    }
    let root = blob::put(store, job.large_root(), new.root, blob::INLINE_BYTES_MAX, None).await?;
    record.state = JobState::Running;
    let mut ops = vec![
        Op::Set { path: job.record(), data: record::write(&record), version: Some(0) },
        create(job.root(), &root),
        create(job.vars(), b""),
        create(job.figures(), b""),
        create(job.attempts(), b""),
    ];
    ops.extend(new.variables.iter().map(|(name, value)| create(job.var(name), value)));
    ops.extend(attempt(&job.attempt(1), new.root_id, &root));
    store.multi(ops).await.map(drop)
}

/// The znodes of an attempt at its beginning: the root is parked, and its parent's half is in the list.
fn attempt(paths: &AttemptPaths, root_id: &str, root: &[u8]) -> [Op; 10] {
    [
        create(paths.base(), b""),
        create(paths.list(), b""),
        create(paths.task(root_id), b""),
        create(paths.parked(), b""),
        create(paths.parked_task(root_id), root),
        create(paths.txns(), b""),
        create(paths.outputs(), b""),
        create(paths.large(), b""),
        create(paths.mail(), b""),
        create(paths.left(), b""),
    ]
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

    /// The record as it is, and then after each change. Changes that follow each other closely may be passed over.
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
            if event == WatchEvent::Ended && *self.store.session().borrow() == Session::Expired {
                return Err(Error::SessionExpired);
            }
        }
        let (content, _, changed) = self.store.get_and_watch(&self.path).await?;
        self.changed = Some(changed);
        record::read(&self.path, &content)
    }
}

/// The nodes that took part in an attempt, are members no more and did not leave cleanly: what they held is lost.
///
/// # Errors
/// Whatever the store refuses.
pub async fn lost(store: &dyn Store, cluster: &ClusterPaths, attempt: &AttemptPaths) -> Result<Vec<String>> {
    store.sync(&attempt.base()).await?;
    // The order matters. A node is a member before it takes part, so whoever took part was a member then; and it leaves
    // in one multi with its last word, so whoever is seen to be no member has its last word, if any, to be seen after.
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
    let mut outputs = Vec::new();
    for node in store.children(&attempt.outputs()).await? {
        let path = attempt.output(&node);
        let (content, _) = store.get(&path).await?;
        outputs.push((node, blob::get(store, &path, &content).await?));
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
    let chunk = |k| attempt_paths.result_chunk(k);
    let folder = attempt_paths.result_chunks();
    let writing = chunks::write(store, &folder, chunk, &outcome.result, Some(fence.check()));
    let chunks = match writing.await {
        Err(Error::Multi { index: 0, source }) if matches!(*source, Error::NoNode { .. }) => {
            return Err(LeadError::Deposed);
        }
        other => other?,
    };
    record.state = JobState::Done;
    record.finished_ms = Some(now_ms);
    let fits = outcome.shown.to_string().len() <= SHOWN_BYTES_MAX;
    let shown = if fits { outcome.shown.clone() } else { serde_json::Value::Null };
    let result = create(paths.result(), &record::write(&ResultRecord { attempt, chunks, shown }));
    let closed = led(store, fence, &paths, &record, version, [result]).await?;
    Ok(if closed { Closing::Closed } else { Closing::NotCurrent })
}

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

/// Removes everything that there is of a job that is over.
///
/// # Errors
/// Whatever the store refuses. It can be called again: the record goes last.
pub async fn forget(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<()> {
    remove(store, cluster.job(job).record()).await
}

/// How often a znode may get a new child while it is being removed.
const REMOVE_TRIES_MAX: usize = 16;

/// Removes a znode and everything below it.
pub(crate) async fn remove(store: &dyn Store, path: String) -> Result<()> {
    for _ in 0..REMOVE_TRIES_MAX {
        let names = match store.children(&path).await {
            Err(Error::NoNode { .. }) => return Ok(()),
            other => other?,
        };
        // Most children have no children: they are all tried at once.
        let paths: Vec<String> = names.iter().map(|name| format!("{path}/{name}")).collect();
        let tried: Vec<_> = paths.iter().map(|path| store.delete(path, None)).collect();
        for (path, tried) in paths.into_iter().zip(tried) {
            match tried.await {
                Err(Error::NotEmpty { .. }) => Box::pin(remove(store, path)).await?,
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match store.delete(&path, None).await {
            Err(Error::NotEmpty { .. }) => {}
            Ok(()) | Err(Error::NoNode { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended { path, tries: REMOVE_TRIES_MAX })
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
        Err(Error::Multi { index: 0, source }) if matches!(*source, Error::NoNode { .. }) => {
            Err(LeadError::Deposed)
        }
        Err(Error::Multi { index: 1, source }) if matches!(*source, Error::BadVersion { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Lets a job fail, whatever it is doing, unless it is over.
///
/// # Errors
/// Whatever the store refuses.
pub async fn fail(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    reason: &str,
    now_ms: u64,
) -> Result<()> {
    end(store, cluster, job, JobState::Failed, reason, now_ms).await
}

/// Stops a job, unless it is over.
///
/// # Errors
/// Whatever the store refuses.
pub async fn cancel(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    reason: &str,
    now_ms: u64,
) -> Result<()> {
    end(store, cluster, job, JobState::Cancelled, reason, now_ms).await
}

/// Puts a job aside: its nodes park its tasks and take the next job. Says whether it was at work.
///
/// # Errors
/// Whatever the store refuses.
pub async fn suspend(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<bool> {
    turn(store, cluster, job, JobState::Running, JobState::Suspended).await
}

/// Lets a job that was put aside go on. Says whether it was.
///
/// # Errors
/// Whatever the store refuses.
pub async fn resume(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<bool> {
    turn(store, cluster, job, JobState::Suspended, JobState::Running).await
}

/// Turns one state into another, if the job is in the one. A repeated call finds it in the other.
async fn turn(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    from: JobState,
    to: JobState,
) -> Result<bool> {
    for _ in 0..END_TRIES_MAX {
        let (mut record, version) = read(store, cluster, job).await?;
        if record.state != from {
            return Ok(record.state == to);
        }
        record.state = to;
        match store.set(&cluster.job(job).record(), &record::write(&record), Some(version)).await {
            Err(Error::BadVersion { .. }) => {}
            other => return other.map(|_| true),
        }
    }
    Err(Error::Contended { path: cluster.job(job).record(), tries: END_TRIES_MAX })
}

/// How often the end of a job may lose the race against other changes of its record.
const END_TRIES_MAX: usize = 64;

async fn end(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    state: JobState,
    reason: &str,
    now_ms: u64,
) -> Result<()> {
    for _ in 0..END_TRIES_MAX {
        let (mut record, version) = read(store, cluster, job).await?;
        if record.state.is_over() {
            return Ok(());
        }
        record.state = state;
        record.finished_ms = Some(now_ms);
        record.reason = Some(reason.chars().take(REASON_CHARS_MAX).collect());
        match store.set(&cluster.job(job).record(), &record::write(&record), Some(version)).await {
            Err(Error::BadVersion { .. }) => {}
            other => return other.map(drop),
        }
    }
    Err(Error::Contended { path: cluster.job(job).record(), tries: END_TRIES_MAX })
}

/// The longest reason that is recorded, in characters.
const REASON_CHARS_MAX: usize = 4096;

fn create(path: String, data: &[u8]) -> Op {
    Op::Create { path, data: data.to_vec(), mode: CreateMode::Persistent }
}

impl fmt::Debug for JobWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWatch").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;

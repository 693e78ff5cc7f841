//! Submitting a job: its data first, then one multi that makes it a job.

use super::{JobRecord, JobState, create, forget};
use crate::{
    blob,
    chunks::{self, CHUNKED_BYTES_MAX},
    error::{Effect, Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    record,
    store::{CreateMode, Op, Store},
};

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
        create(job.suggestions(), b""),
        create(job.attempts(), b""),
    ];
    ops.extend(new.variables.iter().map(|(name, value)| create(job.var(name), value)));
    ops.extend(attempt(&job.attempt(1), new.root_id, &root));
    store.multi(ops).await.map(drop)
}

/// The znodes of an attempt at its beginning: the root is parked, and its parent's half is in the list.
pub(super) fn attempt(paths: &AttemptPaths, root_id: &str, root: &[u8]) -> [Op; 10] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Fate, MemoryTree,
        job::{list, read},
        testing::{LoseOne, ROOT},
    };

    fn new_job(shared: &[u8]) -> NewJob<'_> {
        NewJob {
            program: "test",
            program_version: "1",
            kind: "",
            name: "a job",
            shared,
            root_id: ROOT,
            root: b"the root",
            variables: &[],
            attempts_max: 3,
            submitter: "me",
            now_ms: 1,
        }
    }

    #[tokio::test]
    async fn whatever_request_is_lost_there_is_one_job_and_its_id_is_given() {
        let shared = vec![7; 600 << 10];
        let new = new_job(&shared);
        for fate in [Fate::LostBefore, Fate::LostAfter] {
            for lost in 1.. {
                let tree = MemoryTree::new();
                let (cluster, store) = (ClusterPaths::new("test").unwrap(), tree.connect());
                cluster.prepare(&*store).await.unwrap();
                tree.set_faults(LoseOne { session: store.id(), countdown: lost, fate });
                let mut tries = 0;
                let id = loop {
                    tries += 1;
                    match submit(&*store, &cluster, &new).await {
                        Ok(id) => break id,
                        Err(error) => assert!(error.is_transient(), "{fate:?} of request {lost}: {error}"),
                    }
                };
                let jobs = list(&*store, &cluster).await.unwrap();
                assert_eq!(jobs.len(), 1, "{fate:?} of request {lost}: {jobs:?}");
                let (record, _) = read(&*store, &cluster, &id).await.unwrap();
                assert_eq!(record.state, JobState::Running, "{fate:?} of request {lost}");
                if tries == 1 {
                    assert!(lost > 5, "only {lost} requests were made");
                    break;
                }
            }
        }
    }
}

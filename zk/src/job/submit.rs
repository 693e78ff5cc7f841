//! Submission of a job: first its data, then one multi that turns it into a job.
//!
//! The submitter draws a key, which is part of the job's record. If the answer to the record's creation is
//! lost, the record is found by its key. So a submission can be retried, even by another session, until its
//! outcome is known, and creates exactly one job.
//!
//! ```text
//!   create the record, sequential ─▶ write large data in chunks ─▶ one multi: the record becomes running, the root is parked
//!     answer lost: look for the key    answer lost: repeat           answer lost: repeat, unless it has started
//! ```

use super::{BroughtProgram, JobRecord, JobState, Share, create, forget, list};
use crate::{
    blob,
    chunks::{self, CHUNKED_BYTES_MAX},
    error::{Effect, Error, Result},
    labels::Labels,
    paths::{AttemptPaths, ClusterPaths, JOB_PREFIX, JobPaths},
    record,
    store::{CreateMode, Op, Store},
};

/// A job to be submitted.
#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    /// The program that runs it.
    pub program: &'a str,
    /// The program's version.
    pub program_version: &'a str,
    /// The type of its tasks, one of those that the program has.
    pub kind: &'a str,
    /// The name of that type in the program's source.
    pub task_type: &'a str,
    /// The job's name.
    pub name: &'a str,
    /// Read-only data for all tasks.
    pub shared: &'a [u8],
    /// The name by which nodes fetch the shared data from each other; empty if each node reads it here.
    pub shared_name: &'a str,
    /// The member that has the shared data, if that is not stored; otherwise empty.
    pub shared_from: &'a str,
    /// The program, if it travels with the job.
    pub brought: Option<&'a BroughtProgram>,
    /// The root task's id.
    pub root_id: &'a str,
    /// The root task's envelope.
    pub root: &'a [u8],
    /// Variables with their start values.
    pub variables: &'a [(String, Vec<u8>)],
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// The number of nodes in a row that may be lost with a task before it is set aside, 0 for any number.
    pub crashes_max: u32,
    /// The labels that a node must have to work on it.
    pub require: &'a Labels,
    /// The jobs that must be done before nodes work on it.
    pub after: &'a [String],
    /// Whether root tasks may be [added](super::add) to it.
    pub stays_open: bool,
    /// Its share of the nodes.
    pub share: Share,
    /// The user who submits it.
    pub submitter: &'a str,
    /// The time of day in milliseconds since 1970.
    pub now_ms: u64,
}

/// Submits a job in a single try and returns its id. Nodes ignore it until one multi turns it into a job. Use
/// a [`Submission`] to retry after failures.
///
/// # Errors
/// Any error from the store; [`Error::TooLarge`] for shared data or a root task beyond
/// [`CHUNKED_BYTES_MAX`].
pub async fn submit(store: &dyn Store, cluster: &ClusterPaths, new: &NewJob<'_>) -> Result<String> {
    Submission::new(new, "").go_on(store, cluster).await
}

/// A pending submission, which is retried until its outcome is known.
#[derive(Debug)]
pub struct Submission<'a> {
    new: &'a NewJob<'a>,
    key: &'a str,
    stage: Stage,
}

/// The progress of a submission, as far as known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// There is no record.
    New,
    /// The answer to the creation of the record was lost: there may be one.
    Asked,
    /// The record exists; it is not a job yet.
    Recorded(String),
    /// The answer to the multi that turns it into a job was lost: it may be one.
    Begun(String),
}

/// The maximum size of shared data, start values and root tasks that are written together with the record, in
/// bytes.
const SHARED_INLINE_BYTES_MAX: usize = 128 << 10;

/// The number of times that others may remove a record while its data is written.
const REMOVED_TIMES_MAX: usize = 4;

impl<'a> Submission<'a> {
    /// Creates a submission with a unique key. With an empty key it does not look for a lost record.
    pub fn new(new: &'a NewJob<'a>, key: &'a str) -> Self {
        Self { new, key, stage: Stage::New }
    }

    /// Continues until the submission is done, and returns the job's id.
    ///
    /// # Errors
    /// Any error from the store; [`Error::TooLarge`] for shared data or a root task beyond
    /// [`CHUNKED_BYTES_MAX`]. After a transient error or the end of the session it can be called again, even
    /// with another session.
    pub async fn go_on(&mut self, store: &dyn Store, cluster: &ClusterPaths) -> Result<String> {
        // Checked before anything is written, so that a job that is too large leaves nothing behind.
        for data in [self.new.shared, self.new.root] {
            if data.len() > CHUNKED_BYTES_MAX {
                let (path, limit) = (cluster.jobs(), CHUNKED_BYTES_MAX);
                return Err(Error::TooLarge { path, size: data.len(), limit });
            }
        }
        for _ in 0..REMOVED_TIMES_MAX {
            let id = self.recorded(store, cluster).await?;
            match self.begin(store, cluster, &id).await {
                Ok(()) => return Ok(id),
                // The record was removed before it became a job, so there is no job yet.
                Err(error) if matches!(self.stage, Stage::Recorded(_)) && is_removed(&error) => {
                    self.stage = Stage::New;
                }
                Err(error) => {
                    if !may_have_happened(&error) && matches!(self.stage, Stage::Recorded(_)) {
                        self.take_back(store, cluster, &id).await;
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::Contended { path: cluster.jobs(), tries: REMOVED_TIMES_MAX })
    }

    async fn take_back(&mut self, store: &dyn Store, cluster: &ClusterPaths, id: &str) {
        match forget(store, cluster, id).await {
            Ok(()) => self.stage = Stage::New,
            Err(error) => {
                tracing::debug!(
                    job = %id, %error,
                    "the written part of the job stays; taskwork forget removes it"
                );
            }
        }
    }

    /// Returns the id of the record, and creates the record if there is none.
    async fn recorded(&mut self, store: &dyn Store, cluster: &ClusterPaths) -> Result<String> {
        if let Stage::Recorded(id) | Stage::Begun(id) = &self.stage {
            return Ok(id.clone());
        }
        if self.stage == Stage::Asked
            && !self.key.is_empty()
            && let Some(id) = find(store, cluster, self.key).await?
        {
            self.stage = Stage::Recorded(id.clone());
            return Ok(id);
        }
        let folder = format!("{}/{JOB_PREFIX}", cluster.jobs());
        let content = record::write(&self.record());
        match store.create(&folder, &content, CreateMode::PersistentSequential).await {
            Ok(path) => {
                let id = path.rsplit('/').next().unwrap_or(&path).to_owned();
                self.stage = Stage::Recorded(id.clone());
                Ok(id)
            }
            Err(error) => {
                if may_have_happened(&error) {
                    self.stage = Stage::Asked;
                }
                Err(error)
            }
        }
    }

    fn record(&self) -> JobRecord {
        let new = self.new;
        JobRecord {
            program: new.program.to_owned(),
            program_version: new.program_version.to_owned(),
            kind: new.kind.to_owned(),
            task_type: new.task_type.to_owned(),
            name: new.name.to_owned(),
            submitter: new.submitter.to_owned(),
            key: self.key.to_owned(),
            state: JobState::Submitting,
            attempt: 1,
            attempts_max: new.attempts_max,
            crashes_max: new.crashes_max,
            require: new.require.clone(),
            after: new.after.to_vec(),
            stays_open: new.stays_open,
            share: new.share,
            share_changes: Vec::new(),
            root: new.root_id.to_owned(),
            shared_chunks: 0,
            shared_name: new.shared_name.to_owned(),
            shared_from: new.shared_from.to_owned(),
            brought: new.brought.cloned(),
            submitted_ms: new.now_ms,
            result_bytes: 0,
            finished_ms: None,
            suspended_since_ms: None,
            suspended_ms: 0,
            reason: None,
            retry: None,
            lost: Vec::new(),
        }
    }

    /// Writes the data of a job and starts it.
    async fn begin(&mut self, store: &dyn Store, cluster: &ClusterPaths, id: &str) -> Result<()> {
        let (new, job) = (self.new, cluster.job(id));
        if self.stage == Stage::Begun(id.to_owned()) && has_begun(store, &job).await? {
            return Ok(());
        }
        let mut record = self.record();
        // Small data is written in the multi: each write waits for the servers' disks.
        let others: usize =
            new.variables.iter().map(|(_, value)| value.len()).sum::<usize>() + 2 * new.root.len();
        let is_small = new.shared.len() + others <= SHARED_INLINE_BYTES_MAX;
        if !new.shared.is_empty() {
            record.shared_chunks = if is_small {
                1
            } else {
                chunks::write(store, &job.shared(), |k| job.shared_chunk(k), new.shared, None).await?
            };
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
        if is_small && !new.shared.is_empty() {
            ops.extend([create(job.shared(), b""), create(job.shared_chunk(0), new.shared)]);
        }
        if new.stays_open {
            ops.extend([create(job.open(), b""), create(job.roots(), b"")]);
        }
        ops.extend(new.variables.iter().map(|(name, value)| create(job.var(name), value)));
        ops.extend(attempt(&job.attempt(1), new.stays_open, [(new.root_id, root.as_slice())]));
        match store.multi(ops).await {
            Ok(_) => Ok(()),
            // An earlier try has set the record, or another process has.
            Err(Error::Multi { index: 0, cause }) if matches!(*cause, Error::BadVersion { .. }) => {
                if has_begun(store, &job).await? {
                    return Ok(());
                }
                let reason = "it was ended by a user while it was being submitted".to_owned();
                Err(Error::Refused { path: job.record(), reason })
            }
            Err(error) => {
                if may_have_happened(&error) {
                    self.stage = Stage::Begun(id.to_owned());
                }
                Err(error)
            }
        }
    }
}

/// Returns the id of the record with this key.
async fn find(store: &dyn Store, cluster: &ClusterPaths, key: &str) -> Result<Option<String>> {
    // The session's server may lag behind.
    store.sync(&cluster.jobs()).await?;
    let jobs = list(store, cluster).await?;
    let has_key = |record: &Result<JobRecord>| record.as_ref().is_ok_and(|record| record.key == key);
    Ok(jobs.into_iter().find(|(_, record)| has_key(record)).map(|(id, _)| id))
}

/// Returns whether the record has become a job: the root's znode is created with it.
async fn has_begun(store: &dyn Store, job: &JobPaths) -> Result<bool> {
    store.sync(&job.record()).await?;
    Ok(store.exists(&job.root()).await?.is_some())
}

/// Returns whether a failed write may have taken effect. A write that is pending when a session ends may
/// have, too.
fn may_have_happened(error: &Error) -> bool {
    error.effect() == Effect::Unknown || *error == Error::SessionExpired
}

fn is_removed(error: &Error) -> bool {
    let cause = error.failed_operation().map_or(error, |(_, cause)| cause);
    matches!(cause, Error::NoNode { .. })
}

/// Creates the znodes of a new attempt with these tasks: they are parked, and their parents' toggles are in the
/// list. If the job stays open, so does the list.
pub(super) fn attempt<'a>(
    paths: &AttemptPaths,
    stays_open: bool,
    tasks: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Vec<Op> {
    let folders = [
        paths.base(),
        paths.list(),
        paths.parked(),
        paths.held(),
        paths.transits(),
        paths.quarantine(),
        paths.txns(),
        paths.outputs(),
        paths.large(),
        paths.mail(),
        paths.left(),
    ];
    let open = stays_open.then(|| [paths.begun(), paths.open()]);
    let folders = folders.into_iter().chain(open.into_iter().flatten()).map(|folder| create(folder, b""));
    let tasks = tasks.into_iter();
    let tasks =
        tasks.flat_map(|(id, task)| [create(paths.task(id), b""), create(paths.parked_task(id), task)]);
    folders.chain(tasks).collect()
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
            task_type: "",
            name: "a job",
            shared,
            shared_name: "",
            shared_from: "",
            brought: None,
            root_id: ROOT,
            root: b"the root",
            variables: &[],
            attempts_max: 3,
            crashes_max: 3,
            require: Labels::NONE,
            after: &[],
            stays_open: false,
            share: Share::default(),
            submitter: "me",
            now_ms: 1,
        }
    }

    #[tokio::test]
    async fn submission_with_any_request_lost_creates_one_job() {
        let shared = vec![7; 600 << 10];
        let new = new_job(&shared);
        for fate in [Fate::LostBefore, Fate::LostAfter] {
            for lost in 1.. {
                let tree = MemoryTree::new();
                let (cluster, store) = (ClusterPaths::new("test").unwrap(), tree.connect());
                cluster.prepare(&*store).await.unwrap();
                tree.set_faults(LoseOne { session: store.id(), countdown: lost, fate });
                let (mut tries, mut submission) = (0, Submission::new(&new, "a key"));
                let id = loop {
                    tries += 1;
                    match submission.go_on(&*store, &cluster).await {
                        Ok(id) => break id,
                        Err(error) => assert!(error.is_transient(), "{fate:?} of request {lost}: {error}"),
                    }
                };
                let store = tree.connect();
                let jobs = list(&*store, &cluster).await.unwrap();
                assert_eq!(jobs.len(), 1, "{fate:?} of request {lost}: {jobs:?}");
                let (record, _) = read(&*store, &cluster, &id).await.unwrap();
                assert_eq!(
                    (record.state, record.shared_chunks),
                    (JobState::Running, 2),
                    "{fate:?} of request {lost}"
                );
                assert_eq!(store.children(&cluster.job(&id).attempt(1).parked()).await.unwrap(), [ROOT]);
                if tries == 1 {
                    assert!(lost > 5, "only {lost} requests were made");
                    break;
                }
            }
        }
    }

    #[tokio::test]
    async fn small_data_with_large_values_fits_request() {
        let (shared, root, value) = (vec![1; 60 << 10], vec![2; 250 << 10], vec![3; 470 << 10]);
        let variables = [("best".to_owned(), value)];
        let new = NewJob { root: &root, variables: &variables, ..new_job(&shared) };
        let tree = MemoryTree::new();
        let (cluster, store) = (ClusterPaths::new("test").unwrap(), tree.connect());
        cluster.prepare(&*store).await.unwrap();
        let id = submit(&*store, &cluster, &new).await.unwrap();
        let (record, _) = read(&*store, &cluster, &id).await.unwrap();
        assert_eq!((record.state, record.shared_chunks), (JobState::Running, 1));
        assert_eq!(store.get(&cluster.job(&id).shared_chunk(0)).await.unwrap().0, shared);
    }

    #[tokio::test]
    async fn submission_is_continued_by_another_session() {
        let new = new_job(b"");
        for requests in 1..6 {
            let tree = MemoryTree::new();
            let (cluster, first) = (ClusterPaths::new("test").unwrap(), tree.connect());
            cluster.prepare(&*first).await.unwrap();
            let mut submission = Submission::new(&new, "a key");
            tree.set_faults(LoseOne { session: first.id(), countdown: requests, fate: Fate::LostAfter });
            let Err(error) = submission.go_on(&*first, &cluster).await else { continue };
            assert!(error.is_transient(), "{error}");
            tree.expire(first.id());
            assert_eq!(submission.go_on(&*first, &cluster).await, Err(Error::SessionExpired));
            let second = tree.connect();
            submission.go_on(&*second, &cluster).await.unwrap();
            assert_eq!(list(&*second, &cluster).await.unwrap().len(), 1, "request {requests}");
        }
    }

    #[tokio::test]
    async fn record_removed_or_ended_during_submission_is_handled() {
        let new = new_job(b"");
        let tree = MemoryTree::new();
        let (cluster, store) = (ClusterPaths::new("test").unwrap(), tree.connect());
        cluster.prepare(&*store).await.unwrap();
        let mut submission = Submission::new(&new, "a key");
        // The record exists, and the multi has no effect because its request is lost.
        tree.set_faults(LoseOne { session: store.id(), countdown: 1, fate: Fate::LostAfter });
        assert!(submission.go_on(&*store, &cluster).await.is_err());
        let first = list(&*store, &cluster).await.unwrap().remove(0).0;
        forget(&*store, &cluster, &first).await.unwrap();
        let second = submission.go_on(&*store, &cluster).await.unwrap();
        assert_ne!(first, second);
        assert_eq!(read(&*store, &cluster, &second).await.unwrap().0.state, JobState::Running);

        let mut submission = Submission::new(&new, "another key");
        tree.set_faults(LoseOne { session: store.id(), countdown: 1, fate: Fate::LostAfter });
        assert!(submission.go_on(&*store, &cluster).await.is_err());
        let third = list(&*store, &cluster).await.unwrap().pop().unwrap().0;
        crate::job::cancel(&*store, &cluster, &third, "no", 2).await.unwrap();
        let error = submission.go_on(&*store, &cluster).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
}

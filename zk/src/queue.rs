//! The queue of jobs: they run one after another in the order of their submission. Each release has a queue
//! of its own.

use std::{collections::BTreeSet, fmt, future::poll_fn, sync::Arc, task::Poll};

use crate::{
    error::{Error, Result},
    job::{JobRecord, JobState},
    paths::{ClusterPaths, job_number},
    record,
    release::Release,
    store::{OneShot, Store, WatchEvent, seen},
};

/// The jobs of a cluster, from the perspective of a node of one release.
pub struct JobQueue {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    release: Release,
    /// Jobs that are over, or for another release; they are not read again.
    passed: BTreeSet<String>,
}

impl JobQueue {
    /// Creates the queue for a node of this release.
    pub fn new(store: Arc<dyn Store>, cluster: ClusterPaths, release: Release) -> Self {
        Self { store, cluster, release, passed: BTreeSet::new() }
    }

    /// Waits for the oldest job that can be worked on, and returns its id and its record.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no job.
    pub async fn next(&mut self) -> Result<(String, JobRecord)> {
        loop {
            let (names, changed) = self.store.children_and_watch(&self.cluster.jobs()).await?;
            self.passed.retain(|name| names.contains(name));
            let mut watches = vec![changed];
            for name in names {
                if self.passed.contains(&name) {
                    continue;
                }
                // It has no number, by which messages are assigned to jobs.
                if job_number(&name).is_none() {
                    tracing::warn!(
                        job = name,
                        "a znode among the jobs has a name that no job has; it is passed over"
                    );
                    self.pass(name);
                    continue;
                }
                let path = self.cluster.job(&name).record();
                let (content, changed) = match self.store.get_and_watch(&path).await {
                    Ok((content, _, changed)) => (content, changed),
                    Err(Error::NoNode { .. }) => continue,
                    Err(error) => return Err(error),
                };
                match record::read::<JobRecord>(&path, &content) {
                    Ok(record) if record.state.is_over() && record.state != JobState::Incomplete => {
                        self.pass(name);
                    }
                    Ok(record) if !self.release.matches(&record.program, &record.program_version) => {
                        tracing::info!(
                            job = name,
                            program = record.program,
                            version = record.program_version,
                            runs = self.release.program,
                            runs_version = self.release.version,
                            "a job waits for nodes of another program or version than this node's"
                        );
                        self.pass(name);
                    }
                    Ok(record) if record.state.is_running() => return Ok((name, record)),
                    // It is still being submitted, or is suspended, or may be retried: its record will change.
                    Ok(_) => watches.push(changed),
                    Err(error) => {
                        tracing::warn!(job = name, %error, "a job that cannot be read is passed over");
                        self.pass(name);
                    }
                }
            }
            seen(&*self.store, &any(watches).await)?;
        }
    }

    /// Skips a job from now on.
    pub fn pass(&mut self, job: String) {
        self.passed.insert(job);
    }
}

/// Waits for the first event of any of these watches.
async fn any(mut watches: Vec<OneShot>) -> WatchEvent {
    poll_fn(|cx| {
        for watch in &mut watches {
            if let Poll::Ready(event) = watch.as_mut().poll(cx) {
                return Poll::Ready(event);
            }
        }
        Poll::Pending
    })
    .await
}

impl fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobQueue").field("release", &self.release).finish_non_exhaustive()
    }
}

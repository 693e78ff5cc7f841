//! The queue of jobs: a node works on several at a time, by priority, and then in the order of their
//! submission. Jobs for other releases, and jobs that require labels which the node does not have, are
//! skipped.

use std::{cmp::Reverse, collections::BTreeSet, fmt, future::poll_fn, sync::Arc, task::Poll};

use crate::{
    error::{Error, Result},
    job::{JobRecord, JobState},
    membership::{Lacks, Member},
    paths::{ClusterPaths, job_number},
    record,
    store::{OneShot, Store, WatchEvent, seen},
};

/// The maximum number of runnable jobs that are compared, from the oldest. Priorities of later jobs have no effect
/// until they are among these.
const LOOK_MAX: usize = 64;

/// The jobs of a cluster, from the perspective of a node of one release, or of an agent.
pub struct JobQueue {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    member: Member,
    /// Whether the jobs are those whose programs the member starts, as an agent.
    of_agent: bool,
    /// Jobs that are over, or for other nodes; they are not read again.
    passed: BTreeSet<String>,
    /// The programs and versions of skipped jobs that were logged.
    foreign: BTreeSet<(String, String)>,
}

impl JobQueue {
    /// Creates the queue for a node.
    pub fn new(store: Arc<dyn Store>, cluster: ClusterPaths, member: Member) -> Self {
        Self { store, cluster, member, of_agent: false, passed: BTreeSet::new(), foreign: BTreeSet::new() }
    }

    /// Creates the queue of the jobs whose programs an agent [starts](Member::starts).
    pub fn of_agent(store: Arc<dyn Store>, cluster: ClusterPaths, agent: Member) -> Self {
        Self { of_agent: true, ..Self::new(store, cluster, agent) }
    }

    /// Waits for a job that this node can start in addition to its active jobs: the one with the highest priority,
    /// and of equal ones the oldest. If it is exclusive, no job starts until none is active. Also returns a job
    /// that can never start, because a job on which it depends has failed or was cancelled. Jobs in `aside` are
    /// skipped.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no job.
    pub async fn next(&mut self, active: &BTreeSet<String>, aside: &BTreeSet<String>) -> Result<Next> {
        loop {
            let (names, changed) = self.store.children_and_watch(&self.cluster.jobs()).await?;
            self.passed.retain(|name| names.contains(name));
            let mut watches = vec![changed];
            let mut candidates = Vec::new();
            let unknown = names
                .into_iter()
                .filter(|name| [&self.passed, active, aside].iter().all(|known| !known.contains(name)));
            let unknown: Vec<String> = unknown.collect();
            let mut unknown = unknown.into_iter();
            // More records are read if some of these jobs are for other releases, or over.
            while candidates.len() < LOOK_MAX && !unknown.as_slice().is_empty() {
                let some: Vec<String> = unknown.by_ref().take(LOOK_MAX - candidates.len()).collect();
                if let Some(reason) = self.look(some, &mut candidates, &mut watches).await? {
                    return Ok(reason);
                }
            }
            candidates.sort_by_key(|(name, record)| (Reverse(record.share.priority), job_number(name)));
            let next = candidates.into_iter().next();
            if let Some((name, record)) = next.filter(|(_, next)| !next.share.exclusive || active.is_empty())
            {
                return Ok(Next::Job(name, record));
            }
            seen(&*self.store, &any(watches).await)?;
        }
    }

    /// Reads the records of some jobs. Adds runnable jobs to the candidates, and for waiting ones adds watches on
    /// the records that they wait for. Returns a job that can never start.
    async fn look(
        &mut self,
        names: Vec<String>,
        candidates: &mut Vec<(String, Box<JobRecord>)>,
        watches: &mut Vec<OneShot>,
    ) -> Result<Option<Next>> {
        let paths: Vec<String> = names.iter().map(|name| self.cluster.job(name).record()).collect();
        // All are requested before the first answer is awaited.
        let asked: Vec<_> = paths.iter().map(|path| self.store.get_and_watch(path)).collect();
        for ((name, path), answer) in names.into_iter().zip(paths).zip(asked) {
            // Messages name their job by its number, and this name contains no number.
            if job_number(&name).is_none() {
                tracing::warn!(
                    job = %name,
                    "a znode among the jobs has a name that no job has; it is skipped"
                );
                self.pass(name);
                continue;
            }
            let (content, changed) = match answer.await {
                Ok((content, _, changed)) => (content, changed),
                Err(Error::NoNode { .. }) => continue,
                Err(error) => return Err(error),
            };
            match record::read::<JobRecord>(&path, &content) {
                Ok(record) if record.state.is_over() && record.state != JobState::Incomplete => {
                    self.pass(name);
                }
                Ok(record) if self.lacks(&record).is_some() => {
                    self.explain(&name, &record);
                    self.pass(name);
                }
                Ok(record) if record.state.is_running() => match self.waits(&record.after).await? {
                    Waits::NoLonger => {
                        candidates.push((name, Box::new(record)));
                        watches.push(changed);
                    }
                    Waits::For(its_change) => watches.extend([changed, its_change]),
                    Waits::Blocked(reason) => return Ok(Some(Next::Blocked(name, reason))),
                },
                // It is still being submitted, is suspended, or may be retried: its record will change.
                Ok(_) => watches.push(changed),
                Err(error) => {
                    tracing::warn!(job = %name, %error, "the record of a job cannot be read; the job is skipped");
                    self.pass(name);
                }
            }
        }
        Ok(None)
    }

    /// Returns whether a job that depends on these jobs can start, must wait, or can never start.
    async fn waits(&self, jobs: &[String]) -> Result<Waits> {
        for job in jobs {
            let path = self.cluster.job(job).record();
            let (content, changed) = match self.store.get_and_watch(&path).await {
                Ok((content, _, changed)) => (content, changed),
                // It was over, and was forgotten.
                Err(Error::NoNode { .. }) => continue,
                Err(error) => return Err(error),
            };
            let state = match record::read::<JobRecord>(&path, &content) {
                Ok(record) => record.state,
                Err(error) => {
                    tracing::warn!(
                        %job,
                        %error,
                        "the record of a job on which another job depends cannot be read; that job waits"
                    );
                    return Ok(Waits::For(changed));
                }
            };
            match state {
                JobState::Done => {}
                JobState::Failed | JobState::Cancelled => {
                    let what = if state == JobState::Failed { "has failed" } else { "was cancelled" };
                    return Ok(Waits::Blocked(format!("job {job}, on which it depends, {what}")));
                }
                _ => return Ok(Waits::For(changed)),
            }
        }
        Ok(Waits::NoLonger)
    }

    /// Returns why the node never handles a job like this one, if it does not.
    fn lacks(&self, record: &JobRecord) -> Option<Lacks> {
        let taken = if self.of_agent { self.member.starts(record) } else { self.member.takes(record) };
        taken.err()
    }

    fn explain(&mut self, job: &str, record: &JobRecord) {
        if let Some(Lacks::Labels(missing)) = self.lacks(record) {
            tracing::info!(%job, %missing, "a job waits for nodes with labels that this one does not have");
            return;
        }
        // One line for each program, and not one for each of its jobs. Most jobs are not for agents.
        if self.of_agent || !self.foreign.insert((record.program.clone(), record.program_version.clone())) {
            return;
        }
        tracing::info!(
            %job,
            program = record.program,
            version = record.program_version,
            runs = self.member.program,
            runs_version = self.member.program_version,
            "a job waits for nodes of another program or version than this node's"
        );
    }

    /// Skips a job from now on.
    pub fn pass(&mut self, job: String) {
        self.passed.insert(job);
    }
}

/// A job that a node handles next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It can be worked on.
    Job(String, Box<JobRecord>),
    /// It can never start, for this reason: a job on which it depends has failed or was cancelled.
    Blocked(String, String),
}

/// Whether a job can start, as far as the jobs on which it depends are concerned.
enum Waits {
    NoLonger,
    /// Until one of them has changed.
    For(OneShot),
    /// It can never start, for this reason.
    Blocked(String),
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
        f.debug_struct("JobQueue").field("node", &self.member.node).finish_non_exhaustive()
    }
}

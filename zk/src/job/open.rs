//! Jobs that stay open: root tasks are added while they run, until that is finished.
//!
//! ```text
//!   add      check open, roots/<task>, begun/<task>, list/<task>, parked/<task>   one multi, in the current attempt
//!   finish   open is deleted
//!   settle   the leader: adds every missing root task to a new attempt; once open is gone, deletes list/open
//! ```
//!
//! As long as `list/open` exists, the list is not empty, and the job does not end. It is deleted after
//! `open`, and after every root task has been in the list. From then on the job ends when the list is empty,
//! like any other job.

use std::collections::BTreeSet;

use super::{LeadError, create, read};
use crate::{
    blob,
    election::Fence,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths, JobPaths},
    store::{Op, Store},
};

/// The maximum number of root tasks that can be added to a job: a new attempt starts with all of them.
pub const ROOTS_MAX: u32 = 10_000;

/// The outcome of adding a task.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    Added,
    /// It was not added, and never will be, for this reason.
    Not(String),
}

/// The number of times that adding a task may lose the race against changes of the job's record.
const TRIES_MAX: usize = 64;

/// The positions of the operations that add a task.
const OPEN: usize = 0;
const RECORD: usize = 1;
const ROOT: usize = 2;

/// Adds a root task to a job that stays open. `task` is its id, drawn by the caller, the same for every try.
///
/// # Errors
/// Any error from the store. After a transient error it can be called again, even with another session.
pub async fn add(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    task: &str,
    envelope: &[u8],
) -> Result<Added> {
    let paths = cluster.job(job);
    let not = |reason: &str| Ok(Added::Not(reason.to_owned()));
    for _ in 0..TRIES_MAX {
        let (record, version) = read(store, cluster, job).await?;
        // An earlier try may have added it.
        if store.exists(&paths.added_root(task)).await?.is_some() {
            return Ok(Added::Added);
        }
        if record.state.is_over() {
            return not("it is over");
        }
        if !record.stays_open {
            return not("it was not submitted as one that stays open");
        }
        let added = store.exists(&paths.roots()).await?.map_or(0, |stat| stat.children);
        if added >= ROOTS_MAX {
            return not(&format!("{ROOTS_MAX} tasks were added to it"));
        }
        let folder = paths.large_added_root(task);
        let content = blob::put(store, folder.clone(), envelope, blob::INLINE_BYTES_MAX, None).await?;
        let mut ops = vec![
            Op::Check { path: paths.open(), version: None },
            Op::Check { path: paths.record(), version: Some(version) },
            create(paths.added_root(task), &content),
        ];
        ops.extend(begin(&paths.attempt(record.attempt), task, &content));
        match store.multi(ops).await {
            Ok(_) => return Ok(Added::Added),
            Err(Error::Multi { index, cause }) => match (index, *cause) {
                (OPEN, Error::NoNode { .. }) => {
                    super::remove(store, folder).await?;
                    return not("that was finished");
                }
                (ROOT, Error::NodeExists { .. }) => return Ok(Added::Added),
                (RECORD, Error::BadVersion { .. }) => {}
                (_, cause) => return Err(cause),
            },
            Err(error) => return Err(error),
        }
        store.sync(&paths.record()).await?;
    }
    Err(Error::Contended { path: paths.record(), tries: TRIES_MAX })
}

/// Finishes adding root tasks to a job: it ends when all are complete. Returns whether the job stays open, or
/// did.
///
/// # Errors
/// Any error from the store; it can be called again.
pub async fn finish(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<bool> {
    let (record, _) = read(store, cluster, job).await?;
    match store.delete(&cluster.job(job).open(), None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode { .. }) => Ok(record.stays_open),
        Err(error) => Err(error),
    }
}

/// Starts all added root tasks that have not started in the current attempt, as the leader. If adding is
/// finished, lets the list become empty.
///
/// # Errors
/// See [`LeadError`].
pub async fn settle(
    store: &dyn Store,
    fence: &Fence,
    job: &JobPaths,
    attempt: &AttemptPaths,
) -> std::result::Result<(), LeadError> {
    store.sync(&attempt.base()).await?;
    if store.exists(&attempt.open()).await?.is_none() {
        return Ok(());
    }
    // Read first: every task that was added before is among the roots.
    let is_finished = store.exists(&job.open()).await?.is_none();
    let begun: BTreeSet<String> = store.children(&attempt.begun()).await?.into_iter().collect();
    for task in store.children(&job.roots()).await?.into_iter().filter(|task| !begun.contains(task)) {
        let (content, _) = store.get(&job.added_root(&task)).await?;
        let ops = [fence.check()].into_iter().chain(begin(attempt, &task, &content)).collect();
        // The caller that added it may have been faster.
        unless_deposed(store.multi(ops).await, |error| matches!(error, Error::NodeExists { .. }))?;
    }
    if is_finished {
        let ops = vec![fence.check(), Op::Delete { path: attempt.open(), version: None }];
        unless_deposed(store.multi(ops).await, |error| matches!(error, Error::NoNode { .. }))?;
    }
    Ok(())
}

/// Returns the operations that start an added root task.
fn begin(attempt: &AttemptPaths, task: &str, content: &[u8]) -> [Op; 3] {
    [
        create(attempt.begun_root(task), b""),
        create(attempt.task(task), b""),
        create(attempt.parked_task(task), content),
    ]
}

/// Ignores errors that mean that it was done before.
fn unless_deposed<T>(done: Result<T>, before: impl Fn(&Error) -> bool) -> std::result::Result<(), LeadError> {
    match done {
        Ok(_) => Ok(()),
        Err(Error::Multi { index: 0, cause }) if matches!(*cause, Error::NoNode { .. }) => {
            Err(LeadError::Deposed)
        }
        Err(Error::Multi { index: 1, cause }) if before(&cause) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;

//! Operations of authorised users on a job: cancel, suspend, resume, forget.

use super::{JobRecord, JobState, read};
use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::Store,
};

/// Fails a job in any state, unless it is over.
///
/// # Errors
/// Any error from the store.
pub async fn fail(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    reason: &str,
    now_ms: u64,
) -> Result<()> {
    end(store, cluster, job, JobState::Failed, reason, now_ms).await
}

/// Cancels a job, unless it is over.
///
/// # Errors
/// Any error from the store.
pub async fn cancel(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    reason: &str,
    now_ms: u64,
) -> Result<()> {
    end(store, cluster, job, JobState::Cancelled, reason, now_ms).await
}

/// Suspends a job: its nodes park its tasks and work on others. Returns whether it was running or already
/// suspended.
///
/// # Errors
/// Any error from the store.
pub async fn suspend(store: &dyn Store, cluster: &ClusterPaths, job: &str, now_ms: u64) -> Result<bool> {
    turn(store, cluster, job, [JobState::Running, JobState::Suspended], |record| {
        record.suspended_since_ms = Some(now_ms);
    })
    .await
}

/// Resumes a suspended job. Returns whether it was suspended or is already running.
///
/// # Errors
/// Any error from the store.
pub async fn resume(store: &dyn Store, cluster: &ClusterPaths, job: &str, now_ms: u64) -> Result<bool> {
    turn(store, cluster, job, [JobState::Suspended, JobState::Running], |record| {
        record.end_suspension(now_ms);
    })
    .await
}

/// Changes the state from the first to the second one. Also returns true if it is already the second one, so that a call
/// can be repeated.
async fn turn(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    [from, to]: [JobState; 2],
    note: impl Fn(&mut JobRecord),
) -> Result<bool> {
    let change = |record: &mut JobRecord| {
        let changes = record.state == from;
        if changes {
            record.state = to;
            note(record);
        }
        changes
    };
    Ok(update(store, cluster, job, change).await?.state == to)
}

/// The number of times that an update may lose the race against other changes of the record.
const UPDATE_TRIES_MAX: usize = 64;

/// Reads a record, changes it, and writes it if `change` returns true. Repeats this if the record was changed in
/// between. Returns the resulting record.
pub(super) async fn update(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    mut change: impl FnMut(&mut JobRecord) -> bool,
) -> Result<JobRecord> {
    let path = cluster.job(job).record();
    // An earlier request must be visible, if its answer was lost, and a retry of a job that was over.
    store.sync(&path).await?;
    for _ in 0..UPDATE_TRIES_MAX {
        let (mut record, version) = read(store, cluster, job).await?;
        if !change(&mut record) {
            return Ok(record);
        }
        match store.set(&path, &record::write(&record), Some(version)).await {
            Err(Error::BadVersion { .. }) => {}
            other => return other.map(|_| record),
        }
    }
    Err(Error::Contended { path, tries: UPDATE_TRIES_MAX })
}

async fn end(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    state: JobState,
    reason: &str,
    now_ms: u64,
) -> Result<()> {
    let change = |record: &mut JobRecord| {
        let changes = !record.state.is_over();
        if changes {
            record.end_suspension(now_ms);
            (record.state, record.finished_ms) = (state, Some(now_ms));
            record.reason = Some(shortened(reason));
        }
        changes
    };
    update(store, cluster, job, change).await.map(drop)
}

/// The longest reason that is recorded, in characters.
const REASON_CHARS_MAX: usize = 4096;

pub(super) fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

/// Removes all znodes of a job that is over.
///
/// # Errors
/// Any error from the store. It can be called again: the record goes last.
pub async fn forget(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<()> {
    // Otherwise it might be retried while it is removed.
    if let Ok((mut record, version)) = read(store, cluster, job).await
        && record.state == JobState::Incomplete
    {
        record.state = JobState::Cancelled;
        store.set(&cluster.job(job).record(), &record::write(&record), Some(version)).await?;
    }
    remove(store, cluster.job(job).record()).await
}

/// The number of times that a znode may get new children while it is being removed.
const REMOVE_TRIES_MAX: usize = 16;

/// Removes a znode and everything below it.
pub(crate) async fn remove(store: &dyn Store, path: String) -> Result<()> {
    for _ in 0..REMOVE_TRIES_MAX {
        let names = match store.children(&path).await {
            Err(Error::NoNode { .. }) => return Ok(()),
            other => other?,
        };
        // Most children have no children, so deletion is tried on all of them at once.
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

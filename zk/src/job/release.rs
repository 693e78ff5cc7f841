//! Removal of the data that a job no longer needs once it is over.
//!
//! | data | needed after the end by |
//! |---|---|
//! | record, variables, figures, result | commands and clients |
//! | names of outputs and of nodes that have left | commands and clients |
//! | outputs | the submitter of a cancelled job, which has no other result |
//! | set-aside tasks, journal, shared data, root tasks | a retry of an incomplete job |
//! | parked, held and stolen tasks, letters, other chunks | nothing |
//!
//! A node that does not know yet that the job is over may still write. The folder of the chunks is removed too, so its
//! writes fail and it reads the record. The last write of a release creates a znode in the attempt, so that another node
//! can find and complete a release that was interrupted.

use std::collections::BTreeSet;

use super::{JobState, end::remove, read};
use crate::{
    blob,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths, JobPaths},
    store::{CreateMode, Store},
};

/// Removes the data that a job no longer needs, if the job is over and this was not completed before. It can be called
/// repeatedly, and by several nodes at once.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if there is no such job.
pub async fn release(store: &dyn Store, cluster: &ClusterPaths, job: &str) -> Result<()> {
    let paths = cluster.job(job);
    // Another session may have ended it.
    store.sync(&paths.record()).await?;
    let (record, _) = read(store, cluster, job).await?;
    let attempt = paths.attempt(record.attempt);
    let was_run = store.exists(&attempt.base()).await?.is_some();
    if !record.state.is_over() || !was_run || store.exists(&attempt.released()).await?.is_some() {
        return Ok(());
    }
    for name in store.children(&paths.attempts()).await? {
        if name.parse::<u32>().is_ok_and(|number| number < record.attempt) {
            remove(store, format!("{}/{name}", paths.attempts())).await?;
        }
    }
    for folder in [attempt.parked(), attempt.held(), attempt.transits(), attempt.mail()] {
        for path in paths_in(store, &folder).await? {
            remove(store, path).await?;
        }
    }
    let outputs = paths_in(store, &attempt.outputs()).await?;
    let set_aside = paths_in(store, &attempt.quarantine()).await?;
    match record.state {
        JobState::Cancelled => remove_chunks_except(store, &attempt, &outputs).await?,
        JobState::Incomplete => remove_chunks_except(store, &attempt, &set_aside).await?,
        _ => {
            clear(store, &outputs).await?;
            remove(store, attempt.large()).await?;
        }
    }
    if record.state != JobState::Incomplete {
        clear(store, &set_aside).await?;
        remove_input(store, &paths).await?;
    }
    match store.create(&attempt.released(), b"", CreateMode::Persistent).await {
        Err(Error::NodeExists { .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// Removes the initial data of a job and of its retries, and the journal.
async fn remove_input(store: &dyn Store, paths: &JobPaths) -> Result<()> {
    let carried = format!("{}/carried-", paths.record());
    for path in paths_in(store, &paths.record()).await? {
        let is_carried = path.starts_with(&carried);
        let folders = [paths.journal(), paths.shared(), paths.large_root(), paths.roots()];
        if is_carried || folders.contains(&path) || path.starts_with(&paths.large_added_root("")) {
            remove(store, path).await?;
        }
    }
    // The root's znode shows a submitter whose session was interrupted that the job was submitted.
    clear(store, &[paths.root()]).await
}

async fn remove_chunks_except(store: &dyn Store, attempt: &AttemptPaths, znodes: &[String]) -> Result<()> {
    let mut needed = BTreeSet::new();
    for (path, content) in blob::pointers(store, znodes).await?.contents {
        needed.extend(blob::folder(&path, &content)?);
    }
    if needed.is_empty() {
        return remove(store, attempt.large()).await;
    }
    for folder in paths_in(store, &attempt.large()).await? {
        if !needed.contains(&folder) {
            remove(store, folder).await?;
        }
    }
    Ok(())
}

/// Returns the paths of the znodes in a folder, which another node may have removed.
async fn paths_in(store: &dyn Store, folder: &str) -> Result<Vec<String>> {
    match store.children(folder).await {
        Err(Error::NoNode { .. }) => Ok(Vec::new()),
        names => Ok(names?.iter().map(|name| format!("{folder}/{name}")).collect()),
    }
}

/// Removes the content of znodes, whose names are still needed.
async fn clear(store: &dyn Store, paths: &[String]) -> Result<()> {
    for path in paths {
        match store.set(path, b"", None).await {
            Ok(_) | Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;

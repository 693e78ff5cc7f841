//! The quarantine: tasks that an attempt excludes because nodes were repeatedly lost with them.
//!
//! The node that has claimed such a task sets it aside, in a [transaction](crate::accounting) in which the
//! task also counts as completed. So the attempt ends when everything else is complete.
//! [`retry`](crate::job::retry) starts another attempt with these tasks alone.

use serde::{Deserialize, Serialize};

use crate::{
    blob,
    error::{Error, Result},
    paths::AttemptPaths,
    record,
    store::Store,
};

/// The number of tasks at which an attempt should fail: then the program or the machines are at fault, not a
/// task. The transaction of a retry can hold this many.
pub const SET_ASIDE_MAX: usize = 1_000;

/// A task to set aside, or that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The task's id.
    pub task: String,
    /// The task's envelope, as it is parked by a retry.
    pub envelope: Vec<u8>,
    /// The description of its failures.
    pub about: AboutTask,
}

/// The description, for users, of a task that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutTask {
    /// The number of nodes in a row that were lost with it, or in which it panicked.
    pub crashes: u32,
    /// The last reported reason, such as a panic message; empty if its nodes were lost without one.
    pub reason: String,
    /// When it was set aside, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Decodes the description of a task, from the content of its znode.
///
/// # Errors
/// [`Error::Garbled`] if the content is malformed.
pub fn decode(path: &str, content: &[u8]) -> Result<AboutTask> {
    record::read(path, content)
}

/// Returns the descriptions of the tasks of an attempt that were set aside, by their ids.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if the attempt no longer exists.
pub async fn list(store: &dyn Store, attempt: &AttemptPaths) -> Result<Vec<(String, AboutTask)>> {
    let tasks = store.children(&attempt.quarantine()).await?;
    let paths: Vec<String> = tasks.iter().map(|task| attempt.about_quarantined(task)).collect();
    let asked: Vec<_> = paths.iter().map(|path| store.get(path)).collect();
    let mut all = Vec::new();
    for ((task, path), answer) in tasks.into_iter().zip(&paths).zip(asked) {
        match answer.await {
            Ok((content, _)) => all.push((task, record::read(path, &content)?)),
            // The job was forgotten in the meantime.
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Returns whether [`SET_ASIDE_MAX`] tasks were set aside.
///
/// # Errors
/// Any error from the store.
pub async fn is_full(store: &dyn Store, attempt: &AttemptPaths) -> Result<bool> {
    let folder = store.exists(&attempt.quarantine()).await?;
    Ok(folder.is_some_and(|stat| stat.children as usize >= SET_ASIDE_MAX))
}

/// Returns the envelopes of the tasks of an attempt that were set aside, by their ids.
pub(crate) async fn envelopes(store: &dyn Store, attempt: &AttemptPaths) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for task in store.children(&attempt.quarantine()).await? {
        let path = attempt.quarantined(&task);
        let Some((_, envelope)) = blob::read(store, &path).await? else { continue };
        all.push((task, envelope));
    }
    Ok(all)
}

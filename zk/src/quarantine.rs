//! The quarantine: tasks that an attempt goes on without, because nodes were lost with them again and again.
//!
//! Such a task is set aside by the node that has claimed it, in a [transaction](crate::accounting) in which it
//! also counts as completed. So the attempt ends when everything else is complete. [`retry`](crate::job::retry)
//! begins another one with these tasks alone.

use serde::{Deserialize, Serialize};

use crate::{
    blob,
    error::{Error, Result},
    paths::AttemptPaths,
    record,
    store::Store,
};

/// The number of tasks at which an attempt is to fail: then the program is at fault, or the machines are, and not
/// a task. So many still fit into the transaction of a retry.
pub const SET_ASIDE_MAX: usize = 1_000;

/// A task to be set aside, or that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The task's id.
    pub task: String,
    /// The task's envelope, as it is to be parked when it is tried again.
    pub envelope: Vec<u8>,
    /// What is known about it.
    pub about: AboutTask,
}

/// What is known about a task that was set aside, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutTask {
    /// The number of nodes in a row that were lost with it, or in which it panicked.
    pub deaths: u32,
    /// What was said last, such as the message of its panic; empty if its nodes were lost without a word.
    pub reason: String,
    /// When it was set aside, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Decodes what is known about a task, from the content of its znode.
///
/// # Errors
/// [`Error::Garbled`] if it is no such content.
pub fn decode(path: &str, content: &[u8]) -> Result<AboutTask> {
    record::read(path, content)
}

/// Returns what is known about the tasks of an attempt that were set aside, by their ids.
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
            // The job was forgotten meanwhile.
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

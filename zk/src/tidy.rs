//! Tidying: removal of unneeded znodes while a job is running.
//!
//! | data | needed as long as |
//! |---|---|
//! | an earlier attempt | never: its tasks were restarted |
//! | chunks of tasks | `parked/`, `held/`, `transit/` or `quarantine/` names them |
//! | chunks of an output | the output names them |
//! | chunks of a letter | its sender and its addressee work on the attempt |
//! | txn ids and mailbox of a node | it is a member |
//!
//! Large data is written before the transaction that names it, so data without a reference may get one soon.
//! Therefore unreferenced data is removed only if its node is no longer a member, and so writes no more.
//!
//! The leader calls this periodically, with its fence. Nothing depends on it: if it fails halfway, the next
//! call completes it.

use std::collections::BTreeSet;

use crate::{
    blob,
    election::Fence,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths, JobPaths, parked_id},
    store::{Op, Store},
};

/// Removes the attempts before this one.
///
/// # Errors
/// Any error from the store.
pub async fn earlier_attempts(store: &dyn Store, fence: &Fence, job: &JobPaths, current: u32) -> Result<()> {
    for name in store.children(&job.attempts()).await? {
        if name.parse::<u32>().is_ok_and(|attempt| attempt < current) {
            remove(store, fence, &format!("{}/{name}", job.attempts())).await?;
        }
    }
    Ok(())
}

/// The maximum number of znodes removed by one request.
const REMOVED_MAX: usize = 256;

/// Removes a znode and everything below it. A folder is removed together with its last children, so that no
/// node sees it empty: an empty task list would mean that all tasks are complete.
async fn remove(store: &dyn Store, fence: &Fence, path: &str) -> Result<()> {
    let mut names = match store.children(path).await {
        Err(Error::NoNode { .. }) => return Ok(()),
        other => other?,
    };
    // Children with their own children are removed first; a few requests suffice for the others.
    let paths: Vec<String> = names.drain(..).map(|name| format!("{path}/{name}")).collect();
    let asked: Vec<_> = paths.iter().map(|path| store.exists(path)).collect();
    let mut bare = Vec::new();
    for (path, answer) in paths.iter().zip(asked) {
        match answer.await? {
            Some(stat) if stat.children > 0 => Box::pin(remove(store, fence, path)).await?,
            Some(_) => bare.push(path.as_str()),
            None => {}
        }
    }
    for some in requests(path, &bare) {
        let delete = |path: &str| Op::Delete { path: path.to_owned(), version: None };
        store.multi([fence.check()].into_iter().chain(some.into_iter().map(delete)).collect()).await?;
    }
    Ok(())
}

/// Divides a folder and its children among requests; the last one removes the folder, never alone if it has
/// children.
fn requests<'a>(folder: &'a str, mut children: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut requests = Vec::new();
    while children.len() >= REMOVED_MAX {
        let (some, rest) = children.split_at(REMOVED_MAX.min(children.len() - 1));
        requests.push(some.to_vec());
        children = rest;
    }
    requests.push(children.iter().copied().chain([folder]).collect());
    requests
}

/// Removes unneeded data of nodes that have left an attempt.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if the attempt no longer exists.
pub async fn left_behind(
    store: &dyn Store,
    fence: &Fence,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
) -> Result<()> {
    store.sync(&attempt.base()).await?;
    // The order matters: a node is a member before it enrols, and before it writes data for a claim that
    // would have enrolled it.
    let enrolled = store.children(&attempt.outputs()).await?;
    let large = store.children(&attempt.large()).await?;
    let members: BTreeSet<String> = store.children(&cluster.members()).await?.into_iter().collect();
    let writers = large.iter().filter_map(|name| Some(Chunks::of(name)?.writer().to_owned()));
    let gone: BTreeSet<String> =
        enrolled.into_iter().chain(writers).filter(|node| !members.contains(node)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    for mailbox in store.children(&attempt.mail()).await?.into_iter().filter(|name| gone.contains(name)) {
        remove(store, fence, &attempt.mailbox(&mailbox)).await?;
    }
    chunks(store, fence, attempt, &gone, large).await?;
    for txn in store.children(&attempt.txns()).await? {
        if node_of(&txn).is_some_and(|node| gone.contains(node)) {
            remove(store, fence, &attempt.txn(&txn)).await?;
        }
    }
    Ok(())
}

/// Removes unreferenced chunks that departed nodes have written.
async fn chunks(
    store: &dyn Store,
    fence: &Fence,
    attempt: &AttemptPaths,
    gone: &BTreeSet<String>,
    mut orphans: Vec<String>,
) -> Result<()> {
    orphans.retain(|name| Chunks::of(name).is_some_and(|chunks| chunks.is_forsaken(gone)));
    if orphans.is_empty() {
        return Ok(());
    }
    // A claim copies the claimed data, so chunks of departed nodes get no new references.
    let mut named: BTreeSet<String> = BTreeSet::new();
    for parked in store.children(&attempt.parked()).await? {
        if let Some((task, txn)) = parked.split_once(crate::paths::PARKED_BY) {
            debug_assert_eq!(task, parked_id(&parked));
            named.insert(format!("{txn}-{task}"));
        }
    }
    let transits = store.children(&attempt.transits()).await?.into_iter().map(|name| attempt.transit(&name));
    let aside =
        store.children(&attempt.quarantine()).await?.into_iter().map(|task| attempt.quarantined(&task));
    let own = gone.iter().flat_map(|node| [attempt.output(node), attempt.held_by(node)]);
    let paths: Vec<String> = transits.chain(aside).chain(own).collect();
    for (path, content) in blob::pointers(store, &paths).await?.contents {
        named.extend(blob::folder(&path, &content)?.as_deref().and_then(last_part));
    }
    for orphan in orphans.into_iter().filter(|orphan| !named.contains(orphan)) {
        remove(store, fence, &attempt.large_of(&orphan)).await?;
    }
    Ok(())
}

fn last_part(path: &str) -> Option<String> {
    path.rsplit('/').next().map(str::to_owned)
}

/// Returns the node that a transaction or a task belongs to.
fn node_of(id: &str) -> Option<&str> {
    id.split('-').next()
}

/// The owner of chunks, according to the name of their folder.
#[derive(Debug, PartialEq, Eq)]
enum Chunks<'a> {
    /// Chunks of tasks that the node has written, or of its output.
    Written { by: &'a str },
    /// Chunks of a letter.
    Letter { from: &'a str, to: &'a str },
}

impl<'a> Chunks<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let mut parts = name.split('-');
        let first = parts.next()?;
        if first == crate::mail::CHUNKS {
            return Some(Self::Letter { from: parts.next()?, to: parts.next()? });
        }
        Some(Self::Written { by: first })
    }

    fn writer(&self) -> &'a str {
        match *self {
            Self::Written { by: writer } | Self::Letter { from: writer, .. } => writer,
        }
    }

    /// Returns whether no new reference to the chunks can appear.
    fn is_forsaken(&self, gone: &BTreeSet<String>) -> bool {
        match self {
            Self::Written { by } => gone.contains(*by),
            Self::Letter { from, to } => gone.contains(*from) || gone.contains(*to),
        }
    }
}

#[cfg(test)]
#[path = "tidy_tests.rs"]
mod tests;

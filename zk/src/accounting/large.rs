//! The larger parts of a transaction, which are written to chunks before it.

use super::{CommitError, Transaction};
use crate::{
    blob,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    quarantine::SetAside,
    store::{Op, Store},
};

/// The largest output that is kept in the transaction itself, in bytes.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The largest holdings that are kept in the transaction itself, in bytes.
pub(super) const HELD_BYTES_MAX: usize = 64 << 10;
/// The total size of tasks that a transaction may park and give away, in bytes. Beyond it all but the
/// smallest are written in chunks instead.
pub(super) const CARRIED_BYTES_MAX: usize = 128 << 10;
/// The largest task that stays in the transaction even then, in bytes.
pub(super) const SMALL_BYTES_MAX: usize = 128;

/// The larger parts of a transaction, as contents of znodes.
pub(super) struct Large {
    pub(super) output: Vec<u8>,
    pub(super) held: Vec<u8>,
    pub(super) given: Vec<(String, Vec<u8>)>,
    pub(super) parked: Vec<(String, Vec<u8>)>,
    pub(super) set_aside: Vec<(String, Vec<u8>)>,
    /// The contents of znodes that the transaction overwrites or deletes, with their paths: they may name
    /// chunks.
    pub(super) before: Vec<(String, Vec<u8>)>,
}

/// Writes data that is too large for the transaction to chunks. They count only once the transaction is
/// committed.
pub(super) async fn write_large(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
) -> std::result::Result<Large, CommitError> {
    let put = async |name: String, data: &[u8], inline_max: usize| {
        put(store, cluster, &transaction.node, attempt.large_of(&name), data, inline_max).await
    };
    let Transaction { node, txn, .. } = transaction;
    let output = put(txn.clone(), &transaction.output, OUTPUT_BYTES_MAX).await?;
    // A node that leaves holds nothing any more.
    let held = if transaction.leave { &[][..] } else { &transaction.held };
    let held = put(format!("{txn}-held"), held, HELD_BYTES_MAX).await?;
    let taken = transaction.take.iter().map(|name| attempt.transit(name));
    let paths: Vec<String> = [attempt.output(node), attempt.held_by(node)].into_iter().chain(taken).collect();
    let mut before = contents(store, &paths).await?;
    if before.len() < paths.len() {
        // Written a moment ago, perhaps.
        store.sync(&attempt.base()).await?;
        before = contents(store, &paths).await?;
    }
    // What an earlier try has written stays.
    before.retain(|(_, content)| ![&output, &held].contains(&content));
    let tasks = || transaction.park.iter().chain(&transaction.give);
    let carried: usize = tasks().map(|(_, envelope)| envelope.len()).sum();
    let inline_max = if carried <= CARRIED_BYTES_MAX { usize::MAX } else { SMALL_BYTES_MAX };
    let mut parked = Vec::new();
    for (task, envelope) in &transaction.park {
        parked.push((task.clone(), put(format!("{txn}-{task}"), envelope, inline_max).await?));
    }
    let mut set_aside = Vec::new();
    for SetAside { task, envelope, .. } in &transaction.set_aside {
        let content = put(format!("{txn}-aside-{task}"), envelope, SMALL_BYTES_MAX).await?;
        set_aside.push((task.clone(), content));
    }
    let mut given = Vec::new();
    for (number, (name, tasks)) in transaction.give.iter().enumerate() {
        given.push((name.clone(), put(format!("{txn}-give{number}"), tasks, inline_max).await?));
    }
    Ok(Large { output, held, given, parked, set_aside, before })
}

/// Returns the contents of those znodes that are there, with their paths. All are requested before the first
/// answer is awaited.
async fn contents(store: &dyn Store, paths: &[String]) -> Result<Vec<(String, Vec<u8>)>> {
    let asked: Vec<_> = paths.iter().map(|path| store.get(path)).collect();
    let mut contents = Vec::new();
    for (path, answer) in paths.iter().zip(asked) {
        match answer.await {
            Ok((content, _)) => contents.push((path.clone(), content)),
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(contents)
}

/// Returns the content for a znode, after writing data that is too large for it to chunks.
pub(super) async fn put(
    store: &dyn Store,
    cluster: &ClusterPaths,
    node: &str,
    folder: String,
    data: &[u8],
    inline_max: usize,
) -> std::result::Result<Vec<u8>, CommitError> {
    let fence = Op::Check { path: cluster.member(node), version: None };
    blob::put(store, folder, data, inline_max, Some(fence)).await.map_err(|error| match error {
        Error::Multi { index: 0, cause } if matches!(*cause, Error::NoNode { .. }) => CommitError::NotMember,
        Error::Multi { cause, .. } if matches!(*cause, Error::NoNode { .. }) => CommitError::AttemptOver,
        other => other.into(),
    })
}

/// Removes the chunks that a content names which was overwritten or deleted. If that fails, they stay until
/// the node that wrote them is gone.
pub(super) async fn discard(store: &dyn Store, path: &str, content: &[u8]) {
    if let Err(error) = blob::discard(store, path, content).await {
        tracing::debug!(%error, "the chunks of what was overwritten stay");
    }
}

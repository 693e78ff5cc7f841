//! The larger parts of a transaction, which are written to chunks before it.

use super::{CommitError, Transaction, create, operations};
use crate::{
    blob,
    error::Error,
    paths::{AttemptPaths, ClusterPaths},
    quarantine::SetAside,
    store::{Op, Store},
    tree::{CHROOT_BYTES_MAX, REQUEST_BYTES_MAX, op_bytes},
};

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

/// Writes parts that do not fit into the transaction to chunks. They count only once the transaction is
/// committed.
pub(super) async fn write_large(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
) -> Result<Large, CommitError> {
    let node = &transaction.node;
    let parts = parts(attempt, transaction);
    let inline = inlined(cluster, attempt, transaction, &parts);
    let mut contents = Vec::with_capacity(parts.len());
    for (Part { folder, data }, inline) in parts.into_iter().zip(inline) {
        let inline_max = if inline { usize::MAX } else { 0 };
        contents.push(put(store, cluster, node, folder, data, inline_max).await?);
    }
    let mut large = assemble(transaction, contents);
    let taken = transaction.take.iter().map(|name| attempt.transit(name));
    let paths: Vec<String> = [attempt.output(node), attempt.held_by(node)].into_iter().chain(taken).collect();
    let mut before = blob::pointers(store, &paths).await?;
    if before.misses {
        // They may just have been written.
        store.sync(&attempt.base()).await?;
        before = blob::pointers(store, &paths).await?;
    }
    large.before = before.contents;
    // Chunks written by an earlier try stay.
    let own = attempt.large_of(&transaction.txn);
    let is_own =
        |folder: &str| folder.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    large
        .before
        .retain(|(path, content)| !blob::folder(path, content).ok().flatten().is_some_and(|it| is_own(&it)));
    Ok(large)
}

/// A part of a transaction that may be large, with the folder for its chunks.
struct Part<'a> {
    folder: String,
    data: &'a [u8],
}

impl Part<'_> {
    /// Returns whether chunks would make the transaction no smaller.
    fn is_small(&self) -> bool {
        blob::inline_bytes(self.data) <= blob::pointer_bytes(&self.folder)
    }

    /// Returns a content of the same length as the part's, either inline or in chunks.
    fn content(&self, inline: bool) -> Vec<u8> {
        if inline { blob::inline(self.data) } else { vec![0; blob::pointer_bytes(&self.folder)] }
    }
}

/// Returns all parts of a transaction that may be large.
fn parts<'a>(attempt: &AttemptPaths, transaction: &'a Transaction) -> Vec<Part<'a>> {
    let txn = &transaction.txn;
    let part = |name: String, data: &'a [u8]| Part { folder: attempt.large_of(&name), data };
    // A leaving node holds nothing afterwards.
    let held = if transaction.leave { &[][..] } else { &transaction.held };
    let mut parts = vec![part(txn.clone(), &transaction.output), part(format!("{txn}-held"), held)];
    let parked = transaction.park.iter().map(|(task, envelope)| part(format!("{txn}-{task}"), envelope));
    parts.extend(parked);
    let given = transaction.give.iter().enumerate();
    parts.extend(given.map(|(number, (_, tasks))| part(format!("{txn}-give{number}"), tasks)));
    let aside = transaction.set_aside.iter();
    parts.extend(aside.map(|SetAside { task, envelope, .. }| part(format!("{txn}-aside-{task}"), envelope)));
    parts
}

/// Assigns the contents, in the order of the [`parts`], to their fields.
fn assemble(transaction: &Transaction, contents: Vec<Vec<u8>>) -> Large {
    let mut contents = contents.into_iter();
    let mut next = || contents.next().unwrap_or_default();
    let (output, held) = (next(), next());
    let parked = transaction.park.iter().map(|(task, _)| (task.clone(), next())).collect();
    let given = transaction.give.iter().map(|(name, _)| (name.clone(), next())).collect();
    let set_aside = transaction.set_aside.iter().map(|aside| (aside.task.clone(), next())).collect();
    Large { output, held, given, parked, set_aside, before: Vec::new() }
}

/// Returns which parts stay in the transaction: the smallest first, as far as they fit into its request. Each
/// other part costs at least four writes: a folder and a chunk, created and removed. Every try makes the same
/// choice.
fn inlined(
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
    parts: &[Part<'_>],
) -> Vec<bool> {
    let toggles = transaction.toggles.iter().map(|id| create(attempt.task(id), b"")).collect();
    let mut inline: Vec<bool> = parts.iter().map(Part::is_small).collect();
    let contents: Vec<Vec<u8>> =
        parts.iter().zip(&inline).map(|(part, inline)| part.content(*inline)).collect();
    let least: Vec<usize> = contents.iter().map(Vec::len).collect();
    let large = assemble(transaction, contents);
    let ops = operations(cluster, attempt, transaction, transaction.settled.as_deref(), toggles, &large);
    let bytes: usize = ops.iter().map(|op| op_bytes(op) + CHROOT_BYTES_MAX).sum();
    let mut room = REQUEST_BYTES_MAX.saturating_sub(bytes);
    let larger = (0..parts.len()).filter(|part| !inline[*part]);
    let mut larger: Vec<(usize, usize)> =
        larger.map(|part| (blob::inline_bytes(parts[part].data) - least[part], part)).collect();
    larger.sort_unstable();
    for (more, part) in larger {
        if more > room {
            break;
        }
        (inline[part], room) = (true, room - more);
    }
    inline
}

/// Returns the content for a znode. Data that is too large for it is written to chunks first.
pub(super) async fn put(
    store: &dyn Store,
    cluster: &ClusterPaths,
    node: &str,
    folder: String,
    data: &[u8],
    inline_max: usize,
) -> Result<Vec<u8>, CommitError> {
    let fence = Op::Check { path: cluster.member(node), version: None };
    blob::put(store, folder, data, inline_max, Some(fence)).await.map_err(|error| match error {
        Error::Multi { index: 0, cause } if matches!(*cause, Error::NoNode { .. }) => CommitError::NotMember,
        Error::Multi { cause, .. } if matches!(*cause, Error::NoNode { .. }) => CommitError::AttemptOver,
        other => other.into(),
    })
}

/// Removes the chunks of a content that was overwritten or deleted. If that fails, they stay until the node
/// that wrote them is gone.
pub(super) async fn discard(store: &dyn Store, path: &str, content: &[u8]) {
    if let Err(error) = blob::discard(store, path, content).await {
        tracing::debug!(%error, "the chunks of an overwritten znode stay");
    }
}

#[cfg(test)]
#[path = "large_tests.rs"]
mod tests;

//! Accounting: the global task list, changed by transactions that can be repeated (paper, 3.5).
//!
//! ```text
//! create txns/<txn>           first, so that a repeated try fails with "exists": it was committed before
//! check  members/<node>       the fence: a node that is no longer a member changes nothing
//! check  attempts/<k>         the attempt still exists
//! delete txns/<settled>       the previous transaction, known to be committed: nobody will ask for it again
//! create or delete list/<id>  each toggle; which of the two is found by reading all ids at once
//! set    outputs/<node>       everything this node's committed tasks have produced, or where its chunks are
//! create parked/<task>~<txn>  tasks that a leaving node could hand to no other node
//! create left/<node>, delete members/<node>     the clean leave
//! ```
//!
//! This is one multi, so it happens entirely or not at all. If it fails on an id, another node toggled that
//! id first, or the read was stale: the multi is rebuilt after a `sync`, with the same txn id. If its outcome
//! is unknown, the caller retries with the same [`Transaction`] until the outcome is known. So every
//! transaction counts exactly once.

use thiserror::Error as ThisError;

use crate::{
    blob,
    error::{Error, Result},
    job::JobRecord,
    paths::{AttemptPaths, ClusterPaths, parked_id},
    record,
    store::{CreateMode, Op, Store, seen},
};

/// The changes that a node commits together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// The node.
    pub node: String,
    /// The transaction's id: unique, and the same for every try.
    pub txn: String,
    /// An earlier transaction of the node that is known to be committed; its id can be removed.
    pub settled: Option<String>,
    /// The ids to toggle in the global task list, each once.
    pub toggles: Vec<String>,
    /// Everything that the node's committed tasks have produced, including those in this transaction.
    pub output: Vec<u8>,
    /// Tasks to park, with their envelopes.
    pub park: Vec<(String, Vec<u8>)>,
    /// Whether the node leaves with this transaction.
    pub leave: bool,
}

/// A node's claim of a parked task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: String,
    /// The transaction's id: unique, and the same for every try.
    pub txn: String,
    /// As in [`Transaction`].
    pub settled: Option<String>,
    /// The task.
    pub task: String,
    /// Whether the same transaction also [enrols](enrol) the node, if it is not enrolled yet.
    pub enrol: bool,
}

/// The cost of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// How often the multi was rebuilt.
    pub rebuilds: u32,
}

/// Why a transaction was not committed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum CommitError {
    /// The fence failed: the node is no longer a member.
    #[error("the node is no member any more")]
    NotMember,
    /// The attempt no longer exists.
    #[error("the attempt is over")]
    AttemptOver,
    /// The store refused the transaction. If the error is [transient](Error::is_transient), the outcome may
    /// be unknown: call again with the same transaction.
    #[error(transparent)]
    Store(#[from] Error),
}

/// How often a multi is rebuilt before the caller gets an error.
const REBUILDS_MAX: usize = 64;

/// The indices of the multi's first operations.
const TXN: usize = 0;
const MEMBER: usize = 1;
const ATTEMPT: usize = 2;
const SETTLED: usize = 3;

/// Commits a transaction, exactly once however often this is called.
///
/// # Errors
/// See [`CommitError`].
pub async fn commit(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
) -> std::result::Result<Committed, CommitError> {
    let mut committed = Committed::default();
    let mut settled = transaction.settled.as_deref();
    let large = match write_large(store, cluster, attempt, transaction).await {
        // The node may have lost its membership because an earlier try of this transaction let it leave.
        Err(CommitError::NotMember) if is_committed(store, attempt, transaction).await? => {
            return Ok(committed);
        }
        other => other?,
    };
    for _ in 0..REBUILDS_MAX {
        let toggles = toggles(store, attempt, &transaction.toggles).await?;
        let ops = operations(cluster, attempt, transaction, settled, toggles, &large);
        match tried(store.multi(ops).await) {
            Ok(Try::Committed | Try::CommittedBefore) => {
                large.discard_before(store, &attempt.output(&transaction.node)).await;
                return Ok(committed);
            }
            // As above, and the txn id has been tidied away since.
            Err(CommitError::NotMember)
                if transaction.leave && has_left(store, attempt, transaction).await? =>
            {
                return Ok(committed);
            }
            Ok(Try::FailedAt(SETTLED)) if settled.is_some() => settled = None,
            Ok(Try::FailedAt(_)) => {}
            Err(error) => return Err(error),
        }
        committed.rebuilds += 1;
        store.sync(&attempt.base()).await?;
    }
    Err(Error::Contended { path: attempt.list(), tries: REBUILDS_MAX }.into())
}

/// Returns the operations of a transaction's multi.
fn operations(
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
    settled: Option<&str>,
    toggles: Vec<Op>,
    large: &Large,
) -> Vec<Op> {
    let Transaction { node, txn, leave, .. } = transaction;
    let mut ops = opening(cluster, attempt, node, txn, &[]);
    ops.extend(settled.map(|txn| delete(attempt.txn(txn))));
    ops.extend(toggles);
    ops.push(Op::Set { path: attempt.output(node), data: large.output.clone(), version: None });
    let parked = large.parked.iter();
    ops.extend(parked.map(|(task, content)| create(attempt.parked_by(task, txn), content)));
    if *leave {
        ops.push(create(attempt.left_node(node), b""));
        ops.push(delete(cluster.member(node)));
    }
    ops
}

/// Returns whether an earlier try was committed.
async fn is_committed(store: &dyn Store, attempt: &AttemptPaths, transaction: &Transaction) -> Result<bool> {
    store.sync(&attempt.base()).await?;
    Ok(store.exists(&attempt.txn(&transaction.txn)).await?.is_some()
        || store.exists(&attempt.left_node(&transaction.node)).await?.is_some())
}

/// Returns whether the node's clean leave is committed. Only its own transaction can do that.
async fn has_left(store: &dyn Store, attempt: &AttemptPaths, transaction: &Transaction) -> Result<bool> {
    store.sync(&attempt.base()).await?;
    Ok(store.exists(&attempt.left_node(&transaction.node)).await?.is_some())
}

/// The larger parts of a transaction, as contents of znodes.
struct Large {
    output: Vec<u8>,
    parked: Vec<(String, Vec<u8>)>,
    /// The previous content of the output's znode, if it has chunks to be removed.
    before: Option<Vec<u8>>,
}

/// The largest output that is kept in the transaction itself, in bytes.
const OUTPUT_BYTES_MAX: usize = 128 << 10;
/// The total size of parked tasks that a transaction may carry, in bytes. Beyond it all but the smallest are
/// written in chunks instead.
const CARRIED_BYTES_MAX: usize = 256 << 10;
/// The largest parked task that stays in the transaction even then, in bytes.
const SMALL_BYTES_MAX: usize = 128;

/// Writes data that is too large for the transaction to chunks. They count only once the transaction is
/// committed.
async fn write_large(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
) -> std::result::Result<Large, CommitError> {
    let fence = || Some(Op::Check { path: cluster.member(&transaction.node), version: None });
    let put = async |name: String, data: &[u8], inline_max: usize| {
        blob::put(store, attempt.large_of(&name), data, inline_max, fence()).await.map_err(
            |error| match error {
                Error::Multi { index: 0, cause } if matches!(*cause, Error::NoNode { .. }) => {
                    CommitError::NotMember
                }
                Error::Multi { cause, .. } if matches!(*cause, Error::NoNode { .. }) => {
                    CommitError::AttemptOver
                }
                other => other.into(),
            },
        )
    };
    let output = put(transaction.txn.clone(), &transaction.output, OUTPUT_BYTES_MAX).await?;
    let mut before = None;
    if transaction.output.len() > OUTPUT_BYTES_MAX {
        let path = attempt.output(&transaction.node);
        before = store.get(&path).await.ok().map(|(content, _)| content).filter(|content| *content != output);
    }
    let carried: usize = transaction.park.iter().map(|(_, envelope)| envelope.len()).sum();
    let inline_max = if carried <= CARRIED_BYTES_MAX { usize::MAX } else { SMALL_BYTES_MAX };
    let mut parked = Vec::new();
    for (task, envelope) in &transaction.park {
        let name = format!("{}-{task}", transaction.txn);
        parked.push((task.clone(), put(name, envelope, inline_max).await?));
    }
    Ok(Large { output, parked, before })
}

impl Large {
    /// Removes the chunks of the previous output. If that fails, they stay until the job is forgotten.
    async fn discard_before(&self, store: &dyn Store, path: &str) {
        if let Some(before) = &self.before
            && let Err(error) = blob::discard(store, path, before).await
        {
            tracing::debug!(%error, "the chunks of an earlier output stay");
        }
    }
}

/// Claims a parked task and returns its envelope, or `None` if another node claimed it first. Claims once,
/// however often this is called.
///
/// # Errors
/// See [`CommitError`].
pub async fn claim(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    claim: &Claim,
) -> std::result::Result<Option<Vec<u8>>, CommitError> {
    let (mut settled, mut enrol) = (claim.settled.as_deref(), claim.enrol);
    for _ in 0..REBUILDS_MAX {
        let names = match store.children(&attempt.parked()).await {
            // The attempt is over and has been tidied away.
            Err(Error::NoNode { .. }) => return Err(CommitError::AttemptOver),
            other => other?,
        };
        let Some(name) = names.iter().find(|name| parked_id(name) == claim.task) else {
            // Gone: claimed by another node, or by an earlier try whose answer was lost.
            return claimed_before(store, attempt, &claim.txn).await;
        };
        let parked = attempt.parked_task(name);
        let content = match store.get(&parked).await {
            Ok((content, _)) => content,
            Err(Error::NoNode { .. }) => return claimed_before(store, attempt, &claim.txn).await,
            Err(error) => return Err(error.into()),
        };
        // The txn id keeps the content until it is settled, so that a repeated try finds it.
        let mut ops = opening(cluster, attempt, &claim.node, &claim.txn, &content);
        ops.extend(settled.map(|txn| delete(attempt.txn(txn))));
        ops.push(delete(parked.clone()));
        let enrolling = ops.len();
        ops.extend(enrol.then(|| create(attempt.output(&claim.node), b"")));
        match tried(store.multi(ops).await)? {
            // Read after the claim, so that a try that cannot read it does not lose the task.
            Try::Committed => return envelope(store, attempt, &parked, &content).await.map(Some),
            Try::CommittedBefore => return claimed_before(store, attempt, &claim.txn).await,
            Try::FailedAt(SETTLED) if settled.is_some() => settled = None,
            // The node is already enrolled.
            Try::FailedAt(place) if place == enrolling => enrol = false,
            Try::FailedAt(_) => {}
        }
        store.sync(&attempt.base()).await?;
    }
    Err(Error::Contended { path: attempt.parked(), tries: REBUILDS_MAX }.into())
}

/// Returns the envelope of a claimed task. Its chunks may be gone by then: an attempt that is over is tidied
/// away piece by piece, and meanwhile its tasks can still be claimed.
async fn envelope(
    store: &dyn Store,
    attempt: &AttemptPaths,
    path: &str,
    content: &[u8],
) -> std::result::Result<Vec<u8>, CommitError> {
    match blob::get(store, path, content).await {
        Err(Error::NoNode { .. }) if is_over(store, attempt).await? => Err(CommitError::AttemptOver),
        other => Ok(other?),
    }
}

/// Returns whether there is a later attempt, or the job is over or forgotten.
async fn is_over(store: &dyn Store, attempt: &AttemptPaths) -> Result<bool> {
    let Some((path, number)) = attempt.record_and_number() else { return Ok(false) };
    store.sync(path).await?;
    match store.get(path).await {
        Ok((content, _)) => {
            let record: JobRecord = record::read(path, &content)?;
            Ok(record.attempt != number || record.state.is_over())
        }
        Err(Error::NoNode { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns the envelope that an earlier try of a claim obtained.
async fn claimed_before(
    store: &dyn Store,
    attempt: &AttemptPaths,
    txn: &str,
) -> std::result::Result<Option<Vec<u8>>, CommitError> {
    store.sync(&attempt.base()).await?;
    match store.get(&attempt.txn(txn)).await {
        Ok((content, _)) => envelope(store, attempt, &attempt.txn(txn), &content).await.map(Some),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Enrols a node in an attempt by creating its empty output, before it may hold a task of the attempt. Has an
/// effect once, however often this is called.
///
/// # Errors
/// See [`CommitError`].
pub async fn enrol(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    node: &str,
) -> std::result::Result<(), CommitError> {
    let member = Op::Check { path: cluster.member(node), version: None };
    match store.multi(vec![create(attempt.output(node), b""), member]).await {
        Ok(_) => Ok(()),
        Err(Error::Multi { index: 0, cause }) => match *cause {
            Error::NodeExists { .. } => Ok(()),
            Error::NoNode { .. } => Err(CommitError::AttemptOver),
            other => Err(other.into()),
        },
        Err(Error::Multi { cause, .. }) if matches!(*cause, Error::NoNode { .. }) => {
            Err(CommitError::NotMember)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a node that is no longer a member held nothing when it left: it left cleanly, or it never
/// enrolled.
///
/// # Errors
/// Any error from the store.
pub async fn left_cleanly(store: &dyn Store, attempt: &AttemptPaths, node: &str) -> Result<bool> {
    // The departure may have been observed on another server than the one that answers now.
    store.sync(&attempt.base()).await?;
    let (left, took_part) = (store.exists(&attempt.left_node(node)), store.exists(&attempt.output(node)));
    Ok(left.await?.is_some() || took_part.await?.is_none())
}

/// Waits until the global task list is empty, which means that every task is complete.
///
/// The list is read again only if something has changed since the last read: one read at a time, however many
/// changes occur. A stale read does no harm, because a list that is empty stays empty.
///
/// # Errors
/// Any error from the store.
pub async fn wait_until_empty(store: &dyn Store, attempt: &AttemptPaths) -> Result<()> {
    loop {
        let (tasks, changed) = store.children_and_watch(&attempt.list()).await?;
        if tasks.is_empty() {
            return Ok(());
        }
        seen(store, &changed.await)?;
    }
}

/// Returns the operations that every transaction begins with.
fn opening(cluster: &ClusterPaths, attempt: &AttemptPaths, node: &str, txn: &str, content: &[u8]) -> Vec<Op> {
    vec![
        create(attempt.txn(txn), content),
        Op::Check { path: cluster.member(node), version: None },
        Op::Check { path: attempt.base(), version: None },
    ]
}

/// Returns each toggle as the operation that it has to be now. All ids are requested before the first answer
/// is awaited.
async fn toggles(store: &dyn Store, attempt: &AttemptPaths, ids: &[String]) -> Result<Vec<Op>> {
    let paths: Vec<String> = ids.iter().map(|id| attempt.task(id)).collect();
    let asked: Vec<_> = paths.iter().map(|path| store.exists(path)).collect();
    let mut ops = Vec::with_capacity(ids.len());
    for (path, answer) in paths.into_iter().zip(asked) {
        ops.push(if answer.await?.is_some() { delete(path) } else { create(path, b"") });
    }
    Ok(ops)
}

/// The outcome of a try.
enum Try {
    Committed,
    CommittedBefore,
    FailedAt(usize),
}

fn tried<T>(outcome: Result<T>) -> std::result::Result<Try, CommitError> {
    match outcome {
        Ok(_) => Ok(Try::Committed),
        Err(Error::Multi { index, cause }) => match (index, *cause) {
            (TXN, Error::NodeExists { .. }) => Ok(Try::CommittedBefore),
            (TXN | ATTEMPT, Error::NoNode { .. }) => Err(CommitError::AttemptOver),
            (MEMBER, Error::NoNode { .. }) => Err(CommitError::NotMember),
            (_, Error::NoNode { .. } | Error::NodeExists { .. }) => Ok(Try::FailedAt(index)),
            (_, other) => Err(other.into()),
        },
        Err(error) => Err(error.into()),
    }
}

fn create(path: String, data: &[u8]) -> Op {
    Op::Create { path, data: data.to_vec(), mode: CreateMode::Persistent }
}

fn delete(path: String) -> Op {
    Op::Delete { path, version: None }
}

#[cfg(test)]
#[path = "accounting_tests.rs"]
mod tests;

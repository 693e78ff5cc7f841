//! Accounting: the global task list, by transactions that can be repeated (paper, 3.5).
//!
//! ```text
//!   create txns/<txn>           first, so that a repeated try finds it and is told "exists": it was committed before
//!   check  members/<node>       the fence: a node that is no member any more changes nothing
//!   check  attempts/<k>         the attempt is still there
//!   delete txns/<settled>       the transaction before this one, known to be committed: nobody will ask for it again
//!   create or delete list/<id>  each toggle; which of the two is learnt by asking for all ids at once
//!   set    outputs/<node>       everything this node's committed tasks have produced, or where its chunks are
//!   create parked/<task>~<txn>  what a leaving node could hand to nobody
//!   create left/<node>, delete members/<node>     the clean leave
//! ```
//!
//! It is one multi: all or nothing. If it fails on an id, another node toggled that id first, or the read was
//! old: it is built again after a `sync`, with the same txn id. If its outcome is unknown, the caller tries
//! again with the same [`Transaction`], as often as it takes. So every transaction counts exactly once.

use thiserror::Error as ThisError;

use crate::{
    blob,
    error::{Error, Result},
    job::JobRecord,
    paths::{AttemptPaths, ClusterPaths, parked_id},
    record,
    store::{CreateMode, Op, Store, seen},
};

/// What a node commits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// The node.
    pub node: String,
    /// The transaction's id: unique, and the same at every try.
    pub txn: String,
    /// An earlier transaction of the node that is known to be committed, whose id can go.
    pub settled: Option<String>,
    /// The ids to toggle in the global task list, each once.
    pub toggles: Vec<String>,
    /// Everything the node's committed tasks have produced, these included.
    pub output: Vec<u8>,
    /// Tasks to park, with their envelopes.
    pub park: Vec<(String, Vec<u8>)>,
    /// Whether the node leaves with this.
    pub leave: bool,
}

/// A node's claim of a parked task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: String,
    /// The transaction's id: unique, and the same at every try.
    pub txn: String,
    /// As in [`Transaction`].
    pub settled: Option<String>,
    /// The task.
    pub task: String,
    /// Whether the node is to be [enrolled](enrol) by the same transaction, if it is not yet.
    pub enrol: bool,
}

/// What a commit has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// How often the multi was built again.
    pub rebuilds: u32,
}

/// Why a transaction was not committed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum CommitError {
    /// The fence failed: the node is no member any more.
    #[error("the node is no member any more")]
    NotMember,
    /// There is no such attempt any more.
    #[error("the attempt is over")]
    AttemptOver,
    /// The store refused it. If the error is [transient](Error::is_transient), the outcome may be unknown: to
    /// be called again with the same transaction.
    #[error(transparent)]
    Store(#[from] Error),
}

/// How often a multi is built again before the caller hears of it.
const REBUILDS_MAX: usize = 64;

/// The places of the multi's first operations.
const TXN: usize = 0;
const MEMBER: usize = 1;
const ATTEMPT: usize = 2;
const SETTLED: usize = 3;

/// Commits a transaction, once however often it is called.
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
        // It may be no member any more because an earlier try of this very transaction has let it leave.
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
            // The same, and its txn id has been tidied away since.
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

/// A transaction as its multi.
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

/// Whether an earlier try was committed.
async fn is_committed(store: &dyn Store, attempt: &AttemptPaths, transaction: &Transaction) -> Result<bool> {
    store.sync(&attempt.base()).await?;
    Ok(store.exists(&attempt.txn(&transaction.txn)).await?.is_some()
        || store.exists(&attempt.left_node(&transaction.node)).await?.is_some())
}

/// Whether the clean leave of a node is committed. Nothing but its own transaction does that.
async fn has_left(store: &dyn Store, attempt: &AttemptPaths, transaction: &Transaction) -> Result<bool> {
    store.sync(&attempt.base()).await?;
    Ok(store.exists(&attempt.left_node(&transaction.node)).await?.is_some())
}

/// What a transaction writes besides ids, as contents of znodes.
struct Large {
    output: Vec<u8>,
    parked: Vec<(String, Vec<u8>)>,
    /// What stood for the output before, if that has chunks to be removed.
    before: Option<Vec<u8>>,
}

/// How large an output may be that stands in the transaction itself, in bytes.
const OUTPUT_BYTES_MAX: usize = 128 << 10;
/// How many bytes of parked tasks a transaction may carry in all before they go beside it in chunks, down to
/// the smallest.
const CARRIED_BYTES_MAX: usize = 256 << 10;
/// What stays in a transaction all the same, in bytes.
const SMALL_BYTES_MAX: usize = 128;

/// Writes what is too large for the transaction beside it. It counts only with the transaction.
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
    /// Removes the chunks of the output before this one. If that fails they stay until the job is forgotten.
    async fn discard_before(&self, store: &dyn Store, path: &str) {
        if let Some(before) = &self.before
            && let Err(error) = blob::discard(store, path, before).await
        {
            tracing::debug!(%error, "the chunks of an earlier output stay");
        }
    }
}

/// Claims a parked task: gives its envelope, or `None` if another node was first. Once, however often it is
/// called.
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
            // An attempt that is over is tidied away.
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
        // It stands in the txn id until that is settled: there a repeated try finds it.
        let mut ops = opening(cluster, attempt, &claim.node, &claim.txn, &content);
        ops.extend(settled.map(|txn| delete(attempt.txn(txn))));
        ops.push(delete(parked.clone()));
        let enrolling = ops.len();
        ops.extend(enrol.then(|| create(attempt.output(&claim.node), b"")));
        match tried(store.multi(ops).await)? {
            // Read after it was claimed: a try that finds it unreadable has not lost it.
            Try::Committed => return envelope(store, attempt, &parked, &content).await.map(Some),
            Try::CommittedBefore => return claimed_before(store, attempt, &claim.txn).await,
            Try::FailedAt(SETTLED) if settled.is_some() => settled = None,
            // It is enrolled already.
            Try::FailedAt(place) if place == enrolling => enrol = false,
            Try::FailedAt(_) => {}
        }
        store.sync(&attempt.base()).await?;
    }
    Err(Error::Contended { path: attempt.parked(), tries: REBUILDS_MAX }.into())
}

/// The envelope of a task that was claimed. What stands beside it may be gone by then: an attempt that is
/// over is tidied away piece by piece, and meanwhile claims of it still succeed.
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

/// Whether there is a later attempt, or the job is over or forgotten.
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

/// What an earlier try of a claim has claimed.
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

/// Writes a node into an attempt, before it may hold a task of it: its output, empty. Once, however often it
/// is called.
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

/// Whether a node that is no member any more has gone with nothing in its hands: it said so, or it never took
/// part.
///
/// # Errors
/// Whatever the store refuses.
pub async fn left_cleanly(store: &dyn Store, attempt: &AttemptPaths, node: &str) -> Result<bool> {
    // That it is gone may have been heard from another server than the one that is asked now.
    store.sync(&attempt.base()).await?;
    let (left, took_part) = (store.exists(&attempt.left_node(node)), store.exists(&attempt.output(node)));
    Ok(left.await?.is_some() || took_part.await?.is_none())
}

/// Resolves when the global task list is empty: when every task is complete.
///
/// The list is read again only after it was looked at and something has changed since: one read at a time,
/// however many changes come. An old read does no harm: a list that is empty once stays so.
///
/// # Errors
/// Whatever the store refuses.
pub async fn wait_until_empty(store: &dyn Store, attempt: &AttemptPaths) -> Result<()> {
    loop {
        let (tasks, changed) = store.children_and_watch(&attempt.list()).await?;
        if tasks.is_empty() {
            return Ok(());
        }
        seen(store, &changed.await)?;
    }
}

/// What every transaction begins with.
fn opening(cluster: &ClusterPaths, attempt: &AttemptPaths, node: &str, txn: &str, content: &[u8]) -> Vec<Op> {
    vec![
        create(attempt.txn(txn), content),
        Op::Check { path: cluster.member(node), version: None },
        Op::Check { path: attempt.base(), version: None },
    ]
}

/// Each toggle as the operation that it has to be now. All ids are asked for before the first answer is
/// awaited.
async fn toggles(store: &dyn Store, attempt: &AttemptPaths, ids: &[String]) -> Result<Vec<Op>> {
    let paths: Vec<String> = ids.iter().map(|id| attempt.task(id)).collect();
    let asked: Vec<_> = paths.iter().map(|path| store.exists(path)).collect();
    let mut ops = Vec::with_capacity(ids.len());
    for (path, answer) in paths.into_iter().zip(asked) {
        ops.push(if answer.await?.is_some() { delete(path) } else { create(path, b"") });
    }
    Ok(ops)
}

/// What became of a try.
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

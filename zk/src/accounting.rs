//! Accounting: the global task list and the holdings of every node, changed by transactions that can be repeated
//! (paper, 3.5).
//!
//! ```text
//! create txns/<txn>           first, so that a repeated try fails with "exists": it was committed before
//! check  members/<node>       the fence: a node that is no longer a member changes nothing
//! check  attempts/<k>         the attempt still exists
//! delete txns/<settled>       the previous transaction, known to be committed and never retried
//! create or delete list/<id>  each toggle: create or delete, depending on the ids read before
//! set    outputs/<node>       the output of this node's committed tasks, or the location of its chunks
//! set    held/<node>          everything that the node holds, or the location of its chunks
//! create transit/<name>       tasks that the node has given away, and no longer holds
//! delete transit/<name>       tasks that the node received, and now holds or has completed
//! create parked/<task>~<txn>  tasks that a leaving node could hand to no other node
//! create quarantine/<task>    tasks that have cost too many nodes, with a description
//! create left/<node>, delete held/<node>     the clean leave: of the attempt, not of the cluster
//! ```
//!
//! This is one multi, so it is atomic: before and after it, each task is in exactly one of `parked/`, `held/`,
//! `transit/`, `quarantine/` and the committed completions. If it fails on an id, another node toggled that id first,
//! or the read was stale: the multi is rebuilt after a `sync`, with the same txn id. If its outcome is unknown, the
//! caller retries with the same [`Transaction`] until the outcome is known. So every transaction counts exactly once.
//!
//! A [`Claim`] moves tasks that belong to no living node to `transit/`; the next transaction of the claiming
//! node takes them from there.

mod claims;
mod enrolment;
mod large;

use thiserror::Error as ThisError;

use self::large::{Large, discard, write_large};
pub use self::{
    claims::{Claim, Source, claim},
    enrolment::{Orphans, enrol, held, left_cleanly, orphans},
};
use crate::{
    error::{Error, Result},
    job::JobRecord,
    paths::{AttemptPaths, ClusterPaths},
    quarantine::SetAside,
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
    /// The output of all the node's committed tasks, including those in this transaction.
    pub output: Vec<u8>,
    /// Everything that the node holds.
    pub held: Vec<u8>,
    /// Tasks that the node has given away, with the names of their znodes.
    pub give: Vec<(String, Vec<u8>)>,
    /// The names of the tasks in transit that the node now holds or has completed.
    pub take: Vec<String>,
    /// Tasks to park, with their envelopes.
    pub park: Vec<(String, Vec<u8>)>,
    /// Tasks to set aside.
    pub set_aside: Vec<SetAside>,
    /// Whether the node leaves the attempt with this transaction, its last. It remains a member, since it may work
    /// on other jobs.
    pub leave: bool,
}

/// The cost of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// The number of times that the multi was rebuilt.
    pub rebuilds: u32,
}

/// Why a transaction was not committed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum CommitError {
    /// The fence failed: the node is no longer a member.
    #[error("the node is no longer a member")]
    NotMember,
    /// The attempt no longer exists.
    #[error("the attempt is over")]
    AttemptOver,
    /// The store refused the transaction. If the error is [transient](Error::is_transient), the outcome may
    /// be unknown: call again with the same transaction.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The number of times that a multi is rebuilt before the caller gets an error.
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
    let Some(large) = prepare(store, cluster, attempt, transaction).await? else { return Ok(committed) };
    for _ in 0..REBUILDS_MAX {
        let toggles = toggles(store, attempt, &transaction.toggles).await?;
        let toggled = SETTLED + usize::from(settled.is_some()) + toggles.len();
        let ops = operations(cluster, attempt, transaction, settled, toggles, &large);
        match tried(store.multi(ops).await) {
            Ok(Try::Committed | Try::CommittedBefore) => {
                for (path, content) in &large.before {
                    discard(store, path, content).await;
                }
                return Ok(committed);
            }
            // An earlier try committed the leave. After that the membership ended, and the cleanup of departed nodes
            // removed the txn id.
            Err(CommitError::NotMember)
                if transaction.leave && has_left(store, attempt, transaction).await? =>
            {
                return Ok(committed);
            }
            Ok(Try::FailedAt(SETTLED, _)) if settled.is_some() => settled = None,
            // The operations after the toggles do not depend on a read.
            Ok(Try::FailedAt(place, cause)) if place >= toggled => {
                return Err(refused(store, attempt, cause).await);
            }
            Ok(Try::FailedAt(..)) => {}
            Err(error) => return Err(error),
        }
        committed.rebuilds += 1;
        store.sync(&attempt.base()).await?;
    }
    Err(refused(store, attempt, Error::Contended { path: attempt.list(), tries: REBUILDS_MAX }).await)
}

/// Writes the larger parts of a transaction; returns `None` if it is committed already.
async fn prepare(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
) -> std::result::Result<Option<Large>, CommitError> {
    for _ in 0..REBUILDS_MAX {
        let refusal = match write_large(store, cluster, attempt, transaction).await {
            Err(refusal @ (CommitError::NotMember | CommitError::AttemptOver)) => refusal,
            other => return other.map(Some),
        };
        // An earlier try may be committed: the node has left and is no longer a member, or receivers took its granted
        // tasks and removed the chunks while this try wrote them again.
        if is_committed(store, attempt, transaction).await? {
            return Ok(None);
        }
        if refusal == CommitError::NotMember || is_over(store, attempt).await? {
            return Err(refusal);
        }
    }
    Err(Error::Contended { path: attempt.large(), tries: REBUILDS_MAX }.into())
}

fn operations(
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    transaction: &Transaction,
    settled: Option<&str>,
    toggles: Vec<Op>,
    large: &Large,
) -> Vec<Op> {
    let Transaction { node, txn, leave, .. } = transaction;
    let mut ops = opening(cluster, attempt, node, txn);
    ops.extend(settled.map(|txn| delete(attempt.txn(txn))));
    ops.extend(toggles);
    ops.push(Op::Set { path: attempt.output(node), data: large.output.clone(), version: None });
    ops.push(if *leave {
        delete(attempt.held_by(node))
    } else {
        Op::Set { path: attempt.held_by(node), data: large.held.clone(), version: None }
    });
    ops.extend(large.given.iter().map(|(name, content)| create(attempt.transit(name), content)));
    ops.extend(transaction.take.iter().map(|name| delete(attempt.transit(name))));
    let parked = large.parked.iter();
    ops.extend(parked.map(|(task, content)| create(attempt.parked_by(task, txn), content)));
    for ((task, content), SetAside { about, .. }) in large.set_aside.iter().zip(&transaction.set_aside) {
        ops.push(create(attempt.quarantined(task), content));
        ops.push(create(attempt.about_quarantined(task), &record::write(about)));
    }
    if *leave {
        ops.push(create(attempt.left_node(node), b""));
    }
    ops
}

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

/// Returns why a transaction fails. As its txn id could be created, no earlier try was committed. Znodes may
/// be missing because an attempt that is over is removed znode by znode.
async fn refused(store: &dyn Store, attempt: &AttemptPaths, cause: Error) -> CommitError {
    match is_over(store, attempt).await {
        Ok(true) => CommitError::AttemptOver,
        Ok(false) => cause.into(),
        Err(error) => error.into(),
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

/// Returns the names in the global task list, which may be stale.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if the attempt no longer exists.
pub async fn list(store: &dyn Store, attempt: &AttemptPaths) -> Result<Vec<String>> {
    store.children(&attempt.list()).await
}

/// Returns the first operations of every transaction.
fn opening(cluster: &ClusterPaths, attempt: &AttemptPaths, node: &str, txn: &str) -> Vec<Op> {
    vec![
        create(attempt.txn(txn), b""),
        Op::Check { path: cluster.member(node), version: None },
        Op::Check { path: attempt.base(), version: None },
    ]
}

/// Returns each toggle as a create or delete, depending on whether the id exists. All ids are requested
/// before the first answer is awaited.
async fn toggles(store: &dyn Store, attempt: &AttemptPaths, ids: &[String]) -> Result<Vec<Op>> {
    let paths: Vec<String> = ids.iter().map(|id| attempt.task(id)).collect();
    let asked: Vec<_> = paths.iter().map(|path| store.exists(path)).collect();
    let mut ops = Vec::with_capacity(ids.len());
    for (path, answer) in paths.into_iter().zip(asked) {
        ops.push(if answer.await?.is_some() { delete(path) } else { create(path, b"") });
    }
    Ok(ops)
}

enum Try {
    Committed,
    CommittedBefore,
    /// The place of the operation that failed, and why.
    FailedAt(usize, Error),
}

fn tried<T>(outcome: Result<T>) -> std::result::Result<Try, CommitError> {
    match outcome {
        Ok(_) => Ok(Try::Committed),
        Err(Error::Multi { index, cause }) => match (index, *cause) {
            (TXN, Error::NodeExists { .. }) => Ok(Try::CommittedBefore),
            (TXN | ATTEMPT, Error::NoNode { .. }) => Err(CommitError::AttemptOver),
            (MEMBER, Error::NoNode { .. }) => Err(CommitError::NotMember),
            (_, cause @ (Error::NoNode { .. } | Error::NodeExists { .. })) => Ok(Try::FailedAt(index, cause)),
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

#[cfg(test)]
#[path = "holdings_tests.rs"]
mod holdings_tests;

//! Accounting: the global task list, and what every node holds, changed by transactions that can be repeated
//! (paper, 3.5).
//!
//! ```text
//! create txns/<txn>           first, so that a repeated try fails with "exists": it was committed before
//! check  members/<node>       the fence: a node that is no longer a member changes nothing
//! check  attempts/<k>         the attempt still exists
//! delete txns/<settled>       the previous transaction, known to be committed: nobody will ask for it again
//! create or delete list/<id>  each toggle; which of the two is found by reading all ids at once
//! set    outputs/<node>       everything this node's committed tasks have produced, or where its chunks are
//! set    held/<node>          everything that the node holds, or where its chunks are
//! create transit/<name>       tasks that the node has given away, and no longer holds
//! delete transit/<name>       tasks that it was given, and now holds or has completed
//! create parked/<task>~<txn>  tasks that a leaving node could hand to no other node
//! create quarantine/<task>    tasks that have cost too many nodes, and what is known about them
//! create left/<node>, delete held/<node>, delete members/<node>     the clean leave
//! ```
//!
//! This is one multi, so it happens entirely or not at all: it leads from one partition of the work to
//! another. If it fails on an id, another node toggled that id first, or the read was stale: the multi is
//! rebuilt after a `sync`, with the same txn id. If its outcome is unknown, the caller retries with the same
//! [`Transaction`] until the outcome is known. So every transaction counts exactly once.
//!
//! A [`Claim`] moves something to `transit/` that belongs to no living node; the next transaction of the node
//! that has claimed it takes it from there.

use thiserror::Error as ThisError;

use crate::{
    blob,
    error::{Error, Result},
    job::{JobRecord, remove},
    paths::{AttemptPaths, ClusterPaths, parked_id},
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
    /// Everything that the node's committed tasks have produced, including those in this transaction.
    pub output: Vec<u8>,
    /// Everything that the node holds.
    pub held: Vec<u8>,
    /// Tasks that the node has given away, with the names of their znodes.
    pub give: Vec<(String, Vec<u8>)>,
    /// The names of what the node holds now, or has completed, and did not before.
    pub take: Vec<String>,
    /// Tasks to park, with their envelopes.
    pub park: Vec<(String, Vec<u8>)>,
    /// Tasks to set aside.
    pub set_aside: Vec<SetAside>,
    /// Whether the node leaves with this transaction.
    pub leave: bool,
}

/// What a node can claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The parked task with this id.
    Parked(String),
    /// Tasks on their way.
    Transit {
        /// The name of their znode.
        name: String,
        /// The node that must be gone.
        gone: Option<String>,
    },
    /// Everything that this node holds, which must be gone.
    Held(String),
}

/// A node's claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: String,
    /// The transaction's id: unique, and the same for every try.
    pub txn: String,
    /// As in [`Transaction`].
    pub settled: Option<String>,
    /// What is claimed.
    pub source: Source,
    /// The name of the znode in `transit/` to which it is moved: unique, and the same for every try.
    pub transit: String,
    /// What the node holds otherwise, if the same transaction also [enrols](enrol) it, unless it is enrolled.
    pub enrol: Option<Vec<u8>>,
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
            // As above, and the txn id has been tidied away since.
            Err(CommitError::NotMember)
                if transaction.leave && has_left(store, attempt, transaction).await? =>
            {
                return Ok(committed);
            }
            Ok(Try::FailedAt(SETTLED, _)) if settled.is_some() => settled = None,
            // The rest depends on no read.
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
        // An earlier try may have ended the membership, as its leave; or others may have taken what it has given
        // away, and removed the chunks while they were written again.
        if is_committed(store, attempt, transaction).await? {
            return Ok(None);
        }
        if refusal == CommitError::NotMember || is_over(store, attempt).await? {
            return Err(refusal);
        }
    }
    Err(Error::Contended { path: attempt.large(), tries: REBUILDS_MAX }.into())
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

/// Returns why a transaction fails. As its txn id could be created, no earlier try was committed. What is
/// missing may be gone because an attempt that is over is tidied away piece by piece.
async fn refused(store: &dyn Store, attempt: &AttemptPaths, cause: Error) -> CommitError {
    match is_over(store, attempt).await {
        Ok(true) => CommitError::AttemptOver,
        Ok(false) => cause.into(),
        Err(error) => error.into(),
    }
}

/// The larger parts of a transaction, as contents of znodes.
struct Large {
    output: Vec<u8>,
    held: Vec<u8>,
    given: Vec<(String, Vec<u8>)>,
    parked: Vec<(String, Vec<u8>)>,
    set_aside: Vec<(String, Vec<u8>)>,
    /// The contents of znodes that the transaction overwrites or deletes, with their paths: they may name
    /// chunks.
    before: Vec<(String, Vec<u8>)>,
}

/// The largest output that is kept in the transaction itself, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The largest holdings that are kept in the transaction itself, in bytes.
const HELD_BYTES_MAX: usize = 64 << 10;
/// The total size of tasks that a transaction may park and give away, in bytes. Beyond it all but the
/// smallest are written in chunks instead.
const CARRIED_BYTES_MAX: usize = 128 << 10;
/// The largest task that stays in the transaction even then, in bytes.
const SMALL_BYTES_MAX: usize = 128;

/// Writes data that is too large for the transaction to chunks. They count only once the transaction is
/// committed.
async fn write_large(
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
async fn put(
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
async fn discard(store: &dyn Store, path: &str, content: &[u8]) {
    if let Err(error) = blob::discard(store, path, content).await {
        tracing::debug!(%error, "the chunks of what was overwritten stay");
    }
}

/// Claims something and returns it as `adopt` has changed it, or `None` if another node was faster, a node
/// that must be gone is a member, or `adopt` declines. Claims once, however often this is called before the
/// next transaction of the node. `adopt` must answer the same every time.
///
/// # Errors
/// See [`CommitError`].
pub async fn claim(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    claim: &Claim,
    adopt: &(dyn Fn(Vec<u8>) -> Option<Vec<u8>> + Sync),
) -> std::result::Result<Option<Vec<u8>>, CommitError> {
    let (mut settled, mut enrol) = (claim.settled.as_deref(), claim.enrol.as_deref());
    let gone = claim.source.gone().map(|node| cluster.member(node));
    if gone.is_some() {
        // Its loss may have been observed on another server.
        store.sync(&attempt.base()).await?;
    }
    let folder = attempt.large_of(&format!("{}-claim", claim.txn));
    for _ in 0..REBUILDS_MAX {
        let Some(path) = claim.source.path(store, attempt).await? else {
            return claimed_before(store, attempt, claim, folder).await;
        };
        let Some((content, read)) = read(store, attempt, &path).await? else {
            return claimed_before(store, attempt, claim, folder).await;
        };
        // Read afterwards: a node is a member before anything is its own, and an id stands for one session,
        // so who is no member now never will be.
        if let Some(gone) = &gone
            && store.exists(gone).await?.is_some()
        {
            return Ok(None);
        }
        // It may have written this after the first read.
        if matches!(claim.source, Source::Held(_)) {
            match store.get(&path).await {
                Ok((now, _)) if now == content => {}
                Ok(_) | Err(Error::NoNode { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        let Some(adopted) = adopt(read) else { return Ok(None) };
        let written =
            put(store, cluster, &claim.node, folder.clone(), &adopted, blob::INLINE_BYTES_MAX).await?;
        let mut ops = opening(cluster, attempt, &claim.node, &claim.txn);
        ops.extend(settled.map(|txn| delete(attempt.txn(txn))));
        ops.push(delete(path.clone()));
        let moved = ops.len();
        ops.push(create(attempt.transit(&claim.transit), &written));
        let enrolling = ops.len();
        ops.extend(enrol.into_iter().flat_map(|held| enrolment(attempt, &claim.node, held)));
        match tried(store.multi(ops).await)? {
            Try::Committed => {
                // Those of a root belong to the job, and whoever parks other tasks leaves.
                if !matches!(claim.source, Source::Parked(_)) {
                    discard(store, &path, &content).await;
                }
                return Ok(Some(adopted));
            }
            Try::CommittedBefore => return claimed_before(store, attempt, claim, folder).await,
            Try::FailedAt(SETTLED, _) if settled.is_some() => settled = None,
            // The node is already enrolled.
            Try::FailedAt(place, _) if place == enrolling => enrol = None,
            Try::FailedAt(place, cause) if place >= moved => {
                return Err(refused(store, attempt, cause).await);
            }
            Try::FailedAt(..) => {}
        }
        store.sync(&attempt.base()).await?;
    }
    Err(refused(store, attempt, Error::Contended { path: attempt.base(), tries: REBUILDS_MAX }).await)
}

impl Source {
    /// Returns the node that must be gone.
    fn gone(&self) -> Option<&str> {
        match self {
            Self::Parked(_) => None,
            Self::Transit { gone, .. } => gone.as_deref(),
            Self::Held(node) => Some(node),
        }
    }

    /// Returns the path of the znode, if it is there.
    async fn path(
        &self,
        store: &dyn Store,
        attempt: &AttemptPaths,
    ) -> std::result::Result<Option<String>, CommitError> {
        let Self::Parked(task) = self else {
            return Ok(match self {
                Self::Transit { name, .. } => Some(attempt.transit(name)),
                Self::Held(node) => Some(attempt.held_by(node)),
                Self::Parked(_) => None,
            });
        };
        match store.children(&attempt.parked()).await {
            // The attempt is over and has been tidied away.
            Err(Error::NoNode { .. }) => Err(CommitError::AttemptOver),
            Err(error) => Err(error.into()),
            Ok(names) => {
                let name = names.iter().find(|name| parked_id(name) == task);
                Ok(name.map(|name| attempt.parked_task(name)))
            }
        }
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

/// Returns what an earlier try of a claim obtained. If it obtained nothing, the chunks that it may have
/// written are removed.
async fn claimed_before(
    store: &dyn Store,
    attempt: &AttemptPaths,
    claim: &Claim,
    folder: String,
) -> std::result::Result<Option<Vec<u8>>, CommitError> {
    store.sync(&attempt.base()).await?;
    let claimed = read(store, attempt, &attempt.transit(&claim.transit)).await?;
    if claimed.is_none() {
        remove(store, folder).await?;
    }
    Ok(claimed.map(|(_, data)| data))
}

/// Returns the content of a znode and its data, or `None` if it is not there.
async fn read(
    store: &dyn Store,
    attempt: &AttemptPaths,
    path: &str,
) -> std::result::Result<Option<(Vec<u8>, Vec<u8>)>, CommitError> {
    match blob::read(store, path).await {
        Err(missing @ Error::NoNode { .. }) => Err(refused(store, attempt, missing).await),
        read => Ok(read?),
    }
}

/// Enrols a node in an attempt by creating its empty output and what it `held`, before it may hold a task of
/// the attempt. Has an effect once, however often this is called.
///
/// # Errors
/// See [`CommitError`].
pub async fn enrol(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    node: &str,
    held: &[u8],
) -> std::result::Result<(), CommitError> {
    let member = Op::Check { path: cluster.member(node), version: None };
    match store.multi(enrolment(attempt, node, held).into_iter().chain([member]).collect()).await {
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

fn enrolment(attempt: &AttemptPaths, node: &str, held: &[u8]) -> [Op; 2] {
    [create(attempt.output(node), b""), create(attempt.held_by(node), &blob::inline(held))]
}

/// Returns what a node held when it last wrote it, or `None` if that was claimed.
///
/// # Errors
/// Any error from the store.
pub async fn held(store: &dyn Store, attempt: &AttemptPaths, node: &str) -> Result<Option<Vec<u8>>> {
    Ok(blob::read(store, &attempt.held_by(node)).await?.map(|(_, data)| data))
}

/// What nodes that are gone may have left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphans {
    /// The members. They were read first: of a node that was one and is none, nothing that is missing in the
    /// following will ever come. Who is none may have joined since: a [`claim`] looks again.
    pub members: Vec<String>,
    /// The names of the znodes of all tasks on their way.
    pub transits: Vec<String>,
    /// The nodes of which it stands what they hold.
    pub held: Vec<String>,
}

/// Looks for what nodes that are gone may have left behind.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if the attempt no longer exists.
pub async fn orphans(store: &dyn Store, cluster: &ClusterPaths, attempt: &AttemptPaths) -> Result<Orphans> {
    store.sync(&attempt.base()).await?;
    let members = store.children(&cluster.members()).await?;
    let transits = store.children(&attempt.transits()).await?;
    let held = store.children(&attempt.held()).await?;
    Ok(Orphans { members, transits, held })
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
fn opening(cluster: &ClusterPaths, attempt: &AttemptPaths, node: &str, txn: &str) -> Vec<Op> {
    vec![
        create(attempt.txn(txn), b""),
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

//! Claims: a node moves tasks that belong to no living node to `transit/`, and its next transaction takes
//! them from there.

use super::{
    CommitError, REBUILDS_MAX, SETTLED, Try, create, delete,
    enrolment::enrolment,
    large::{discard, put},
    opening, refused, tried,
};
use crate::{
    blob,
    error::Error,
    job::remove,
    paths::{AttemptPaths, ClusterPaths, parked_id},
    store::Store,
};

/// The tasks that a node can claim.
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
    /// An earlier transaction of the node that is known to be committed; its id can be removed.
    pub settled: Option<String>,
    /// The tasks to claim.
    pub source: Source,
    /// The name of the znode in `transit/` to which they are moved: unique, and the same for every try.
    pub transit: String,
    /// If set, the transaction also [enrols](super::enrol) the node, with these other tasks as held, unless
    /// it is already enrolled.
    pub enrol: Option<Vec<u8>>,
}

/// Claims tasks and returns them as changed by `adopt`, or `None` if another node was faster, a node that
/// must be gone takes part, or `adopt` declines. Claims once, however often this is called before the next
/// transaction of the node. `adopt` must return the same result every time.
///
/// # Errors
/// See [`CommitError`].
pub async fn claim(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    claim: &Claim,
    adopt: &(dyn Fn(Vec<u8>) -> Option<Vec<u8>> + Sync),
) -> Result<Option<Vec<u8>>, CommitError> {
    let (mut settled, mut enrol) = (claim.settled.as_deref(), claim.enrol.as_deref());
    let gone = claim.source.gone();
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
        // Read afterwards: a node is a member before it owns tasks, and an id belongs to one session. So a
        // node that is not a member now, or has left the attempt, will never take part again.
        if let Some(gone) = gone
            && store.exists(&cluster.member(gone)).await?.is_some()
            && store.exists(&attempt.left_node(gone)).await?.is_none()
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
                // Parked root tasks belong to the job, and a node that parks other tasks leaves.
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
    pub(super) async fn path(
        &self,
        store: &dyn Store,
        attempt: &AttemptPaths,
    ) -> Result<Option<String>, CommitError> {
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

/// Returns the tasks that an earlier try of a claim obtained. If there are none, the chunks that it may have
/// written are removed.
async fn claimed_before(
    store: &dyn Store,
    attempt: &AttemptPaths,
    claim: &Claim,
    folder: String,
) -> Result<Option<Vec<u8>>, CommitError> {
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
) -> Result<Option<(Vec<u8>, Vec<u8>)>, CommitError> {
    match blob::read(store, path).await {
        Err(missing @ Error::NoNode { .. }) => Err(refused(store, attempt, missing).await),
        read => Ok(read?),
    }
}

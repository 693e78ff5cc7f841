//! Enrolment of nodes in an attempt, and the tasks left behind by lost nodes.

use std::collections::BTreeSet;

use super::{CommitError, create};
use crate::{
    blob,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    store::{Op, Store},
};

/// Enrols a node in an attempt by creating its empty output and its `held` tasks, before it may hold a task
/// of the attempt. Takes effect once, however often this is called.
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

pub(super) fn enrolment(attempt: &AttemptPaths, node: &str, held: &[u8]) -> [Op; 2] {
    [create(attempt.output(node), b""), create(attempt.held_by(node), &blob::inline(held))]
}

/// Returns the tasks that a node held at its last write, or `None` if they were claimed.
///
/// # Errors
/// Any error from the store.
pub async fn held(store: &dyn Store, attempt: &AttemptPaths, node: &str) -> Result<Option<Vec<u8>>> {
    Ok(blob::read(store, &attempt.held_by(node)).await?.map(|(_, data)| data))
}

/// The tasks that lost nodes may have left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphans {
    /// The members that have not left the attempt. They were read first, so the lists below contain
    /// everything left by a node that was a member before and is not one now. A node missing here may have
    /// joined since: [`claim`](super::claim) checks again.
    pub members: Vec<String>,
    /// The names of the znodes of all tasks in transit.
    pub transits: Vec<String>,
    /// The nodes whose held tasks are recorded.
    pub held: Vec<String>,
}

/// Looks for tasks that lost nodes may have left behind.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if the attempt no longer exists.
pub async fn orphans(store: &dyn Store, cluster: &ClusterPaths, attempt: &AttemptPaths) -> Result<Orphans> {
    store.sync(&attempt.base()).await?;
    let mut members = store.children(&cluster.members()).await?;
    let left: BTreeSet<String> = store.children(&attempt.left()).await?.into_iter().collect();
    members.retain(|node| !left.contains(node));
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
    // The departure may have been observed on a different server.
    store.sync(&attempt.base()).await?;
    let (left, took_part) = (store.exists(&attempt.left_node(node)), store.exists(&attempt.output(node)));
    Ok(left.await?.is_some() || took_part.await?.is_none())
}

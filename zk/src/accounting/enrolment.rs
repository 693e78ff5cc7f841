//! Who takes part in an attempt, and what those that are gone have left behind.

use std::collections::BTreeSet;

use super::{CommitError, create};
use crate::{
    blob,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    store::{Op, Store},
};

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

pub(super) fn enrolment(attempt: &AttemptPaths, node: &str, held: &[u8]) -> [Op; 2] {
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
    /// The members that have not left the attempt. They were read first: of a node that was one and is none, nothing
    /// that is missing in the following will ever come. Who is none may have joined since: a [`claim`](super::claim)
    /// looks again.
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
    // The departure may have been observed on another server than the one that answers now.
    store.sync(&attempt.base()).await?;
    let (left, took_part) = (store.exists(&attempt.left_node(node)), store.exists(&attempt.output(node)));
    Ok(left.await?.is_some() || took_part.await?.is_none())
}

//! Resignation of a node that fails: it ends its membership as if it was lost, after recording the reason.

use crate::{
    accounting::CommitError,
    blob,
    error::Error,
    paths::{AttemptPaths, ClusterPaths},
    store::{Op, Store},
};

/// The number of times that the holdings may change while they are rewritten.
const TRIES_MAX: usize = 64;

/// Ends a node's membership, and changes its held tasks in the same multi; other nodes continue from there as
/// if it was lost. Returns whether the membership ended: `change` may decline, and then nothing changes. It
/// must not make the holdings much larger.
///
/// The node must have no pending request, because it could still take effect; that is detected.
///
/// # Errors
/// See [`CommitError`]; [`NotMember`](CommitError::NotMember) also if an earlier try has succeeded. After a
/// transient error it can be called again.
pub async fn resign(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    node: &str,
    change: &(dyn Fn(Vec<u8>) -> Option<Vec<u8>> + Sync),
) -> Result<bool, CommitError> {
    let (path, member) = (attempt.held_by(node), cluster.member(node));
    for number in 0..TRIES_MAX {
        store.sync(&attempt.base()).await?;
        if store.exists(&member).await?.is_none() {
            return Err(CommitError::NotMember);
        }
        let (content, stat) = match store.get(&path).await {
            Err(Error::NoNode { .. }) => return Err(CommitError::AttemptOver),
            read => read?,
        };
        let Some(held) = change(blob::get(store, &path, &content).await?) else { return Ok(false) };
        let folder = attempt.large_of(&format!("{node}-resigned-{number}"));
        let fence = Op::Check { path: member.clone(), version: None };
        let held = blob::put(store, folder, &held, blob::INLINE_BYTES_MAX, Some(fence)).await?;
        let ops = vec![
            Op::Set { path: path.clone(), data: held, version: Some(stat.version) },
            Op::Delete { path: member.clone(), version: None },
        ];
        match store.multi(ops).await {
            Ok(_) => return Ok(true),
            Err(Error::Multi { cause, .. })
                if matches!(*cause, Error::BadVersion { .. } | Error::NoNode { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Contended { path, tries: TRIES_MAX }.into())
}

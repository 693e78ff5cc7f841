//! Messages from node to node by way of the tree, for the few that have no other way: where the network between two nodes is
//! broken while both reach the servers.
//!
//! Like any message, one may be lost, and may come twice. A mailbox lies in its attempt and goes with it.

use std::{fmt, sync::Arc};

use crate::{
    blob,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    store::{CreateMode, OneShot, Op, Store, seen},
};

/// How many messages may lie in a mailbox; more are not taken.
pub const MAILBOX_MESSAGES_MAX: u32 = 64;

/// What became of a message.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// It is in the mailbox.
    Posted,
    /// The mailbox is full, or there is none: the message is lost.
    NotTaken,
}

/// Posts a message, if its sender is a member. A message of any size up to [`CHUNKED_BYTES_MAX`](crate::CHUNKED_BYTES_MAX) will do; one
/// that is large has its chunks under a name, in place of what an earlier message of that name has there.
///
/// # Errors
/// Whatever the store refuses.
pub async fn post(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    from: &str,
    to: &str,
    name: &str,
    message: &[u8],
) -> Result<Posted> {
    let mailbox = attempt.mailbox(to);
    match store.exists(&mailbox).await? {
        Some(stat) if stat.children < MAILBOX_MESSAGES_MAX => {}
        _ => return Ok(Posted::NotTaken),
    }
    let path = format!("{mailbox}/m-");
    let fence = Op::Check { path: cluster.member(from), version: None };
    let folder = attempt.large_of(&format!("mail-{from}-{to}-{name}"));
    let posted = async {
        let data = blob::put(store, folder, message, blob::INLINE_BYTES_MAX, Some(fence.clone())).await?;
        let create = Op::Create { path, data, mode: CreateMode::PersistentSequential };
        store.multi(vec![fence.clone(), create]).await
    };
    match posted.await {
        Ok(_) => Ok(Posted::Posted),
        Err(Error::Multi { source, .. }) if matches!(*source, Error::NoNode { .. }) => Ok(Posted::NotTaken),
        Err(error) => Err(error),
    }
}

/// The messages that are posted to a node in an attempt.
pub struct Mailbox {
    store: Arc<dyn Store>,
    folder: String,
    changed: Option<OneShot>,
}

impl Mailbox {
    /// Puts up the node's mailbox, if it is not there.
    ///
    /// # Errors
    /// Whatever the store refuses; [`Error::NoNode`] if there is no such attempt.
    pub async fn open(store: Arc<dyn Store>, attempt: &AttemptPaths, node: &str) -> Result<Self> {
        let folder = attempt.mailbox(node);
        match store.create(&folder, b"", CreateMode::Persistent).await {
            Ok(_) | Err(Error::NodeExists { .. }) => Ok(Self { store, folder, changed: None }),
            Err(error) => Err(error),
        }
    }

    /// The next message; it is taken out.
    ///
    /// # Errors
    /// Whatever the store refuses; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future may lose a message that was just taken out, as messages may be lost.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(changed) = &mut self.changed {
                let event = changed.await;
                self.changed = None;
                seen(&*self.store, &event)?;
            }
            // Read first and watched only when there is nothing: a watch that nobody waits for is one for nothing.
            let mut names = self.store.children(&self.folder).await?;
            if names.is_empty() {
                let (now, changed) = self.store.children_and_watch(&self.folder).await?;
                names = now;
                self.changed = names.is_empty().then_some(changed);
            }
            let Some(name) = names.first() else { continue };
            let path = format!("{}/{name}", self.folder);
            let message = self.store.get(&path).await;
            match self.store.delete(&path, None).await {
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
            match message {
                // The chunks of a large one stay, for it may be posted again; they go with the attempt.
                Ok((content, _)) => match blob::get(&*self.store, &path, &content).await {
                    Err(Error::NoNode { .. } | Error::Garbled { .. }) => {}
                    other => return other,
                },
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("folder", &self.folder).finish_non_exhaustive()
    }
}

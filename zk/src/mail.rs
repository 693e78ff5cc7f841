//! Letters: messages between nodes through the tree, where the network between two nodes is broken while both
//! reach the servers.
//!
//! Like any message, a letter may be lost or arrive twice. A mailbox is part of its attempt and is removed
//! with it.

use std::{fmt, sync::Arc};

use crate::{
    blob,
    error::{Error, Result},
    job::remove,
    paths::{AttemptPaths, ClusterPaths},
    store::{CreateMode, OneShot, Op, Store, seen},
};

/// The maximum number of letters in a mailbox; further ones are rejected.
pub const MAILBOX_LETTERS_MAX: u32 = 64;

/// The outcome of posting a letter.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// The letter is in the mailbox.
    Posted,
    /// The mailbox is full, or one of the two nodes is not a member: the letter is lost.
    NotTaken,
}

/// The prefix of the names of the folders that hold the chunks of large letters.
pub(crate) const CHUNKS: &str = "mail";

/// Posts a letter, if its sender and its addressee are members. The first letter creates the mailbox. A
/// letter may have any size up to [`CHUNKED_BYTES_MAX`](crate::CHUNKED_BYTES_MAX). The chunks of a large
/// letter are written to a folder named after its number, which the sender must use only once.
///
/// # Errors
/// Any error from the store.
pub async fn post(
    store: &dyn Store,
    cluster: &ClusterPaths,
    attempt: &AttemptPaths,
    from: &str,
    to: &str,
    number: u64,
    message: &[u8],
) -> Result<Posted> {
    let mailbox = attempt.mailbox(to);
    let is_member = |node| Op::Check { path: cluster.member(node), version: None };
    match store.exists(&mailbox).await? {
        Some(stat) if stat.children >= MAILBOX_LETTERS_MAX => return Ok(Posted::NotTaken),
        Some(_) => {}
        None => {
            let put_up = Op::Create { path: mailbox.clone(), data: Vec::new(), mode: CreateMode::Persistent };
            match store.multi(vec![is_member(from), is_member(to), put_up]).await {
                Err(error) if has_no_node(&error) => return Ok(Posted::NotTaken),
                // Another sender was faster.
                Err(Error::Multi { index: 2, cause }) if matches!(*cause, Error::NodeExists { .. }) => {}
                other => drop(other?),
            }
        }
    }
    let folder = attempt.large_of(&format!("{CHUNKS}-{from}-{to}-{number}"));
    let put = blob::put(store, folder.clone(), message, blob::INLINE_BYTES_MAX, Some(is_member(from))).await;
    let posted = match put {
        Ok(data) => {
            let (path, mode) = (format!("{mailbox}/m-"), CreateMode::PersistentSequential);
            store.multi(vec![is_member(from), Op::Create { path, data, mode }]).await.map(drop)
        }
        Err(error) => Err(error),
    };
    match posted {
        Ok(()) => Ok(Posted::Posted),
        Err(error) if has_no_node(&error) => {
            remove(store, folder).await?;
            Ok(Posted::NotTaken)
        }
        Err(error) => Err(error),
    }
}

fn has_no_node(error: &Error) -> bool {
    matches!(error, Error::Multi { cause, .. } if matches!(**cause, Error::NoNode { .. }))
}

/// The letters that are posted to a node in an attempt.
pub struct Mailbox {
    store: Arc<dyn Store>,
    folder: String,
    changed: Option<OneShot>,
}

impl Mailbox {
    /// Creates a reader for the node's mailbox. The first sender creates the mailbox itself.
    pub fn new(store: Arc<dyn Store>, attempt: &AttemptPaths, node: &str) -> Self {
        Self { store, folder: attempt.mailbox(node), changed: None }
    }

    /// Waits for the next letter, removes it from the mailbox and returns it.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future may lose a letter that was just removed, which is allowed for letters.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(changed) = &mut self.changed {
                let event = changed.await;
                self.changed = None;
                seen(&*self.store, &event)?;
            }
            let Some(name) = self.first().await? else { continue };
            let path = format!("{}/{name}", self.folder);
            let message = self.store.get(&path).await;
            match self.store.delete(&path, None).await {
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
            match message {
                Ok((content, _)) => match self.opened(&path, &content).await {
                    Err(Error::NoNode { .. } | Error::Garbled { .. }) => {}
                    other => return other,
                },
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Mailbox {
    /// Returns the name of the first letter. If there is none, watches the mailbox.
    async fn first(&mut self) -> Result<Option<String>> {
        let (there, put_up) = self.store.exists_and_watch(&self.folder).await?;
        let Some(stat) = there else {
            self.changed = Some(put_up);
            return Ok(None);
        };
        // Otherwise this watch would remain set without an observer.
        drop(put_up);
        let names = if stat.children > 0 {
            self.store.children(&self.folder).await?
        } else {
            let (names, changed) = self.store.children_and_watch(&self.folder).await?;
            self.changed = names.is_empty().then_some(changed);
            names
        };
        Ok(names.into_iter().next())
    }

    /// Returns the content of a letter that was removed, and discards its chunks, if any.
    async fn opened(&mut self, path: &str, content: &[u8]) -> Result<Vec<u8>> {
        let message = blob::get(&*self.store, path, content).await?;
        if let Err(error) = blob::discard(&*self.store, path, content).await {
            tracing::debug!(%error, "the chunks of a letter stay until the next tidying");
        }
        Ok(message)
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("folder", &self.folder).finish_non_exhaustive()
    }
}

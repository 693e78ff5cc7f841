//! Hashing of received blocks on another thread: a node's connections share one thread, which receives the next block
//! at the same time.

use bytes::Bytes;
use tokio::task::{self, JoinError, JoinHandle};

use super::{Blocking, ObjectHasher};
use crate::wire::bulk::ObjectName;

/// The size of a block from which on its hash takes longer than waking another thread, in bytes.
const ELSEWHERE_BYTES_MIN: usize = 32 << 10;

/// Computes the name of a content from its blocks. The hash is up to one block behind.
pub(super) enum Hashing {
    Idle(Box<ObjectHasher>),
    /// A block is being hashed on another thread.
    Busy(JoinHandle<Box<ObjectHasher>>),
}

impl Hashing {
    pub(super) fn new() -> Self {
        Self::Idle(Box::new(ObjectHasher::new()))
    }

    /// Adds a block once the previous one has been hashed.
    ///
    /// # Errors
    /// If the runtime shuts down.
    pub(super) async fn add(&mut self, block: Bytes, blocking: Blocking) -> Result<(), JoinError> {
        let mut hasher = Box::new(self.settle().await?.clone());
        *self = if blocking == Blocking::Elsewhere && block.len() >= ELSEWHERE_BYTES_MIN {
            Self::Busy(task::spawn_blocking(move || {
                hasher.add(&block);
                hasher
            }))
        } else {
            hasher.add(&block);
            Self::Idle(hasher)
        };
        Ok(())
    }

    /// Returns the name of the content so far.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(super) async fn name(&mut self) -> Result<ObjectName, JoinError> {
        Ok(self.settle().await?.name())
    }

    async fn settle(&mut self) -> Result<&ObjectHasher, JoinError> {
        if let Self::Busy(busy) = self {
            *self = Self::Idle(busy.await?);
        }
        match self {
            Self::Idle(hasher) => Ok(hasher),
            Self::Busy(_) => unreachable!("it has just been waited for"),
        }
    }
}

//! Hashing of received blocks on another thread: a node's connections share one thread, which receives the next block
//! at the same time.

use bytes::Bytes;
use tokio::task::{self, JoinError, JoinHandle};

use super::object::Naming;
use crate::wire::bulk::ObjectName;

/// Computes the name of a content from its blocks. The hash is up to one block behind.
pub(super) enum Hashing {
    Idle(Box<Naming>),
    /// A block is being hashed on another thread.
    Busy(JoinHandle<Box<Naming>>),
}

/// Smaller blocks are hashed immediately: this takes less time than waking another thread.
const ELSEWHERE_BYTES_MIN: usize = 32 << 10;

impl Hashing {
    pub(super) fn new() -> Self {
        Self::Idle(Box::new(Naming::new()))
    }

    /// Adds a block once the previous one has been hashed.
    ///
    /// # Errors
    /// If the runtime shuts down.
    pub(super) async fn add(&mut self, block: Bytes) -> Result<(), JoinError> {
        let mut naming = Box::new(self.settle().await?.clone());
        *self = if block.len() < ELSEWHERE_BYTES_MIN {
            naming.add(&block);
            Self::Idle(naming)
        } else {
            Self::Busy(task::spawn_blocking(move || {
                naming.add(&block);
                naming
            }))
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

    async fn settle(&mut self) -> Result<&Naming, JoinError> {
        if let Self::Busy(busy) = self {
            *self = Self::Idle(busy.await?);
        }
        match self {
            Self::Idle(naming) => Ok(naming),
            Self::Busy(_) => unreachable!("it has just been waited for"),
        }
    }
}

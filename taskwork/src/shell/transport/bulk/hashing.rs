//! Hashing what comes on another thread, while more comes: a node's connections share one thread, which also receives
//! it.

use bytes::Bytes;
use tokio::task::{self, JoinError, JoinHandle};

use super::object::Naming;
use crate::wire::bulk::ObjectName;

/// Names a content while its blocks come, one block behind.
pub(super) enum Hashing {
    Idle(Box<Naming>),
    /// On another thread.
    Busy(JoinHandle<Box<Naming>>),
}

/// A block of fewer bytes is hashed at once: that takes less time than to wake another thread.
const ELSEWHERE_BYTES_MIN: usize = 32 << 10;

impl Hashing {
    pub(super) fn new() -> Self {
        Self::Idle(Box::new(Naming::new()))
    }

    /// Adds a block, as soon as the one before is done.
    ///
    /// # Errors
    /// At the end of the runtime.
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

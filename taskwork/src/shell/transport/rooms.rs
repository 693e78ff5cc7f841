//! Room for arriving messages. It is acquired before the first byte is read and released when the node has handled
//! the message. An overloaded node thus stops reading, and QUIC's flow control makes the senders wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::TransportLimits;

/// The room of one node.
#[derive(Debug)]
pub(crate) struct Rooms {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    small_bytes_max: usize,
}

/// The part of a node's room that the large messages of one peer may occupy.
#[derive(Debug, Clone)]
pub(super) struct PeerRoom(Arc<Semaphore>);

/// The room occupied by a message; dropping it frees the room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    _permits: Vec<OwnedSemaphorePermit>,
}

/// The overhead per message in addition to its payload, in bytes.
const OVERHEAD_BYTES: usize = 256;

impl PeerRoom {
    pub(super) fn new(limits: &TransportLimits) -> Self {
        Self(Arc::new(Semaphore::new(limits.arriving_peer_bytes_max)))
    }
}

impl Rooms {
    pub(crate) fn new(limits: &TransportLimits) -> Self {
        Self {
            small: Arc::new(Semaphore::new(limits.arriving_small_bytes_max)),
            large: Arc::new(Semaphore::new(limits.arriving_large_bytes_max)),
            small_bytes_max: limits.small_bytes_max,
        }
    }

    /// Waits until there is room for a message of a peer. Waiting large messages do not delay small ones.
    pub(super) async fn enter(&self, bytes: usize, peer: &PeerRoom) -> Room {
        if bytes <= self.small_bytes_max {
            return Room { _permits: vec![acquire(&self.small, bytes + OVERHEAD_BYTES).await] };
        }
        // Acquired all at once: otherwise parts of many messages could fill the room, and none could be completed.
        let of_peer = acquire(&peer.0, bytes).await;
        Room { _permits: vec![of_peer, acquire(&self.large, bytes).await] }
    }

    /// Tries to enter without waiting, for a network that cannot wait; `None` if there is no room.
    pub(crate) fn try_enter(&self, bytes: usize) -> Option<Room> {
        let small = bytes <= self.small_bytes_max;
        let (room, bytes) = if small { (&self.small, bytes + OVERHEAD_BYTES) } else { (&self.large, bytes) };
        let permits = u32::try_from(bytes).ok()?;
        Some(Room { _permits: vec![Arc::clone(room).try_acquire_many_owned(permits).ok()?] })
    }

    /// Returns the free room for large messages, in bytes.
    #[cfg(test)]
    pub(super) fn large_left(&self) -> usize {
        self.large.available_permits()
    }
}

async fn acquire(room: &Arc<Semaphore>, bytes: usize) -> OwnedSemaphorePermit {
    let permits = u32::try_from(bytes).expect("no message has more bytes than are allowed");
    Arc::clone(room).acquire_many_owned(permits).await.expect("the room is never closed")
}

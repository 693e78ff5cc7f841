//! Room for messages that arrive: it is taken before the first byte is read, and given back when the node has
//! looked at the message. So a node that is behind does not read, and QUIC's flow control lets the senders
//! wait.

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

/// The room that one peer may take of it for what is not small.
#[derive(Debug, Clone)]
pub(super) struct PeerRoom(Arc<Semaphore>);

/// Room that is taken by a message, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    _permits: Vec<OwnedSemaphorePermit>,
}

/// What a message takes besides its bytes, in bytes.
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

    /// Waits until there is room for a message of a peer. Who waits for a large one keeps nobody from a small
    /// one.
    pub(super) async fn enter(&self, bytes: usize, peer: &PeerRoom) -> Room {
        if bytes <= self.small_bytes_max {
            return Room { _permits: vec![acquire(&self.small, bytes + OVERHEAD_BYTES).await] };
        }
        // The whole of it at once: parts of many messages could fill the room, and none would ever be
        // complete.
        let of_peer = acquire(&peer.0, bytes).await;
        Room { _permits: vec![of_peer, acquire(&self.large, bytes).await] }
    }

    /// The same without waiting, for a network that cannot wait; `None` if there is no room.
    #[cfg(feature = "simulation")]
    pub(crate) fn try_enter(&self, bytes: usize) -> Option<Room> {
        let small = bytes <= self.small_bytes_max;
        let (room, bytes) = if small { (&self.small, bytes + OVERHEAD_BYTES) } else { (&self.large, bytes) };
        let permits = u32::try_from(bytes).ok()?;
        Some(Room { _permits: vec![Arc::clone(room).try_acquire_many_owned(permits).ok()?] })
    }

    /// How many bytes of what is not small there is room for.
    #[cfg(test)]
    pub(super) fn large_left(&self) -> usize {
        self.large.available_permits()
    }
}

async fn acquire(room: &Arc<Semaphore>, bytes: usize) -> OwnedSemaphorePermit {
    let permits = u32::try_from(bytes).expect("no message has more bytes than are allowed");
    Arc::clone(room).acquire_many_owned(permits).await.expect("the room is never closed")
}

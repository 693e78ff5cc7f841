//! What one message between nodes looks like on the wire.

use serde::{Deserialize, Serialize};

use crate::core::Packet;

/// The largest value of a variable that rides along with a message, in bytes. A larger one goes by `ZooKeeper` alone.
pub(crate) const RIDER_BYTES_MAX: usize = 4 << 10;

/// A packet of the protocol, and the sender's newest values of the variables: a fast path for the incumbent, which
/// would otherwise reach the receiver only by way of `ZooKeeper`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    /// The job that it is about, by its number. Attempts count anew in each job.
    pub(crate) job: u64,
    pub(crate) packet: Packet,
    /// Slots in the order of declaration, with encoded values.
    pub(crate) riders: Vec<(u32, Vec<u8>)>,
}

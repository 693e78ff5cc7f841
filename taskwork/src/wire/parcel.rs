//! What one message between nodes looks like on the wire.

use serde::{Deserialize, Serialize};

use super::codec::ENCODED_BYTES_MAX;
use crate::{
    core::{Message, Packet},
    envelope::TASK_BYTES_MAX,
};

/// The largest value of a variable that rides along with a message, in bytes. A larger one goes by `ZooKeeper` alone.
pub(crate) const RIDER_BYTES_MAX: usize = 4 << 10;
/// The most bytes of all that ride along with one message.
pub(crate) const RIDERS_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a rider besides its value: its slot and its length.
pub(crate) const RIDER_FRAME_BYTES_MAX: usize = 14;
/// The most bytes of a message besides its tasks and riders: its numbers, lengths and marks, and the name of its sender.
const FRAME_BYTES_MAX: usize = 256;

// The largest task goes in a message, and in a letter; and grants are not made larger than that.
const _: () = assert!(TASK_BYTES_MAX + RIDERS_BYTES_MAX + FRAME_BYTES_MAX <= ENCODED_BYTES_MAX);

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

impl Parcel {
    /// The answer of a node that has nothing to do with the job that is asked about; `None` if nothing is asked for.
    pub(crate) fn denial(&self) -> Option<Self> {
        let Message::Steal { request } = self.packet.message else { return None };
        let packet = Packet { attempt: self.packet.attempt, message: Message::Deny { request } };
        Some(Self { job: self.job, packet, riders: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        envelope::Envelope,
        id::{Attempt, NodeId, TaskId},
        shell::mail::Letter,
        wire::codec,
    };

    #[test]
    fn the_largest_task_goes_in_a_message_and_in_a_letter_and_in_the_chunks_of_one() {
        let id = TaskId { node: NodeId(u64::MAX), number: u64::MAX };
        let task = vec![7; TASK_BYTES_MAX - Envelope::bytes_of(2, 3, 0)].into();
        let envelope = Envelope { id, children: vec![id; 2], output: vec![1; 3].into(), task };
        assert_eq!(envelope.bytes(), TASK_BYTES_MAX);
        let (grant, settled_below) = (u64::MAX, u64::MAX);
        let message = Message::Grant { grant, request: Some(u64::MAX), settled_below, tasks: vec![envelope] };
        let rider = (u32::MAX, vec![0; RIDER_BYTES_MAX]);
        let riders = vec![rider; RIDERS_BYTES_MAX / (RIDER_BYTES_MAX + RIDER_FRAME_BYTES_MAX)];
        let packet = Packet { attempt: Attempt(u32::MAX), message };
        let letter = Letter { from: NodeId(u64::MAX), parcel: Parcel { job: u64::MAX, packet, riders } };
        let bytes = codec::encode(&letter).unwrap();
        assert!(bytes.len() <= zk::CHUNKED_BYTES_MAX);
        assert!(codec::decode::<Letter>(&bytes).unwrap() == letter);
    }
}

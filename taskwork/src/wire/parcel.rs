//! The encoded form of a message between nodes: on the wire, and as a letter in a mailbox.

use serde::{Deserialize, Serialize};

use super::{
    codec::{self, DecodeError, ENCODED_BYTES_MAX, EncodeError},
    packet::Packet,
    payload::Payload,
};
use crate::{
    core::Message,
    envelope::TASK_BYTES_MAX,
    id::{Attempt, NodeId},
};

/// The maximum size of a variable's value that is attached to a message, in bytes. A larger one is sent
/// only through `ZooKeeper`.
pub(crate) const RIDER_BYTES_MAX: usize = 4 << 10;
/// The maximum size of all riders of one message, in bytes.
pub(crate) const RIDERS_BYTES_MAX: usize = 64 << 10;
/// The maximum size of a rider without its value, in bytes: its slot and its length.
pub(crate) const RIDER_FRAME_BYTES_MAX: usize = 14;
/// The maximum size of a message without its tasks and riders, in bytes: its numbers, lengths and tags, and
/// the name of its sender.
const FRAME_BYTES_MAX: usize = 256;

// The largest task fits into a message and a letter, and grants are not made larger than that.
const _: () = assert!(TASK_BYTES_MAX + RIDERS_BYTES_MAX + FRAME_BYTES_MAX <= ENCODED_BYTES_MAX);

/// A message of the protocol with its job, its attempt, and the sender's newest values of the variables: a
/// fast path for the incumbent, which would otherwise reach the receiver only through `ZooKeeper`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    /// The number of the job. Attempts are numbered separately in each job.
    pub(crate) job: u64,
    pub(crate) attempt: Attempt,
    pub(crate) message: Message,
    /// Slots in the order of declaration, with encoded values.
    pub(crate) riders: Vec<(u32, Vec<u8>)>,
}

impl Parcel {
    /// Returns the answer of a node that does not work on the job of a steal request; `None` if this is not a
    /// steal request.
    pub(crate) fn denial(&self) -> Option<Self> {
        let Message::Steal { request } = self.message else { return None };
        Some(Self { message: Message::Deny { request }, riders: Vec::new(), ..*self })
    }

    /// Returns the refusal of a grant by a node that has left the job; `None` if this is not a grant.
    pub(crate) fn refusal(&self) -> Option<Self> {
        let Message::Grant { grant, .. } = self.message else { return None };
        Some(Self { message: Message::Refuse { grant }, riders: Vec::new(), ..*self })
    }

    /// Encodes the parcel for the network, where the connection identifies the sender. Large tasks in it are
    /// shared, not copied.
    ///
    /// # Errors
    /// If it is larger than any value may be.
    pub(crate) fn payload(&self) -> Result<Payload, EncodeError> {
        let tasks = match &self.message {
            Message::Grant { tasks, .. } => tasks.as_slice(),
            _ => &[],
        };
        let shared: Vec<_> =
            tasks.iter().flat_map(|task| [task.output.shared(), task.task.shared()]).collect();
        codec::encode_sharing(&Packet::Protocol(self), &shared).map(Payload::from)
    }

    /// Encodes the parcel for a mailbox: preceded by the name of its sender.
    ///
    /// # Errors
    /// If it is larger than any value may be.
    pub(crate) fn letter(&self, from: NodeId) -> Result<Vec<u8>, EncodeError> {
        codec::encode(&(from, self))
    }

    /// Decodes a letter to its sender and the parcel.
    ///
    /// # Errors
    /// If it is not a letter.
    pub(crate) fn open_letter(bytes: &[u8]) -> Result<(NodeId, Self), DecodeError> {
        codec::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        config::Limits,
        core::{Action, Event, Node, PoolView},
        envelope::Envelope,
        id::TaskId,
        scope::{Scope, Spawned, Then},
    };

    fn envelope(task: Vec<u8>, output: Vec<u8>) -> Envelope {
        let id = TaskId { node: NodeId(u64::MAX), number: u64::MAX };
        Envelope { children: vec![id; 2], ..Envelope::new(id, output.into(), task.into()) }
    }

    #[test]
    fn largest_task_fits_into_a_message_and_a_letter() {
        let envelope = envelope(vec![7; TASK_BYTES_MAX - Envelope::bytes_of(2, 3, 0)], vec![1; 3]);
        assert_eq!(envelope.bytes(), TASK_BYTES_MAX);
        let (grant, settled_below) = (u64::MAX, u64::MAX);
        let message = Message::Grant { grant, request: Some(u64::MAX), settled_below, tasks: vec![envelope] };
        let rider = (u32::MAX, vec![0; RIDER_BYTES_MAX]);
        let riders = vec![rider; RIDERS_BYTES_MAX / (RIDER_BYTES_MAX + RIDER_FRAME_BYTES_MAX)];
        let parcel = Parcel { job: u64::MAX, attempt: Attempt(u32::MAX), message, riders };
        let letter = parcel.letter(NodeId(u64::MAX)).unwrap();
        assert!(letter.len() <= zk::CHUNKED_BYTES_MAX);
        assert!(Parcel::open_letter(&letter).unwrap() == (NodeId(u64::MAX), parcel));
    }

    /// Returns the parcels of a grant and of its repetition when it was not acknowledged in time.
    fn said_twice(envelope: &Envelope) -> [Parcel; 2] {
        const ATTEMPT: Attempt = Attempt(1);
        let stopped = PoolView { workers: 1, idle: 1, stopped: true, ..PoolView::default() };
        let busy = PoolView { workers: 1, idle: 0, stopped: false, ..PoolView::default() };
        let ms = Duration::from_millis;
        let (mut node, thief) = (Node::new(NodeId(1), Limits::default(), 1), NodeId(2));
        node.handle(ms(0), stopped, Event::Joined { node: thief });
        node.handle(ms(0), stopped, Event::Attempt { attempt: ATTEMPT });
        node.handle(ms(0), stopped, Event::Look);
        node.handle(ms(0), busy, Event::Enrolled { attempt: ATTEMPT });
        let steal = Event::Message { from: thief, attempt: ATTEMPT, message: Message::Steal { request: 3 } };
        node.handle(ms(0), busy, steal);
        let taken = Event::Taken {
            thief,
            request: 3,
            tasks: vec![envelope.clone()],
            basis: crate::holdings::Basis::FIRM,
        };
        let first = node.handle(ms(0), busy, taken);
        // The grant is overdue by now.
        let second = node.handle(ms(1_000), busy, Event::Tick);
        [first, second].map(|actions| {
            let sent = actions.into_iter().find_map(|action| match action {
                Action::Send { attempt, message, .. } => Some((attempt, message)),
                _ => None,
            });
            let (attempt, message) = sent.expect("the grant is sent, and again when it is not answered");
            Parcel { job: 7, attempt, message, riders: vec![(0, vec![5; 9])] }
        })
    }

    #[test]
    fn task_bytes_are_shared_between_repeated_sends() {
        let envelope = envelope(vec![7; 1 << 20], vec![8; 1 << 16]);
        for parcel in said_twice(&envelope) {
            let payload = parcel.payload().unwrap();
            let pieces: Vec<_> = payload.slices(usize::MAX).collect();
            for sent in [&envelope.output, &envelope.task] {
                let there =
                    pieces.iter().any(|piece| piece.as_ptr() == sent.as_ptr() && piece.len() == sent.len());
                assert!(there, "{} bytes were copied", sent.len());
            }
            let written = codec::encode(&Packet::Protocol(&parcel)).unwrap();
            assert!(payload.to_vec() == written, "they are what they were");
            assert_eq!(payload.len(), payload.to_vec().len());
        }
    }

    #[test]
    fn payload_slices_are_bounded() {
        let payload = Payload::from(vec![Bytes::from(vec![1; 5]), Bytes::from(vec![2; 10])]);
        let slices: Vec<_> = payload.slices(4).map(|slice| slice.to_vec()).collect();
        assert_eq!(slices, [vec![1; 4], vec![1; 1], vec![2; 4], vec![2; 4], vec![2; 2]]);
    }

    proptest! {
        #[test]
        fn envelope_encoding_is_within_its_bound(
            ids in prop::collection::vec(any::<(u64, u64)>(), 1..300),
            (crashes, output, task) in any::<(u32, Vec<u8>, Vec<u8>)>(),
            (in_scope, has_spawned) in any::<(bool, bool)>(),
        ) {
            let mut ids = ids.into_iter().map(|(node, number)| TaskId { node: NodeId(node), number });
            let id = ids.next().unwrap();
            let (output, task) = (output.into(), task.into());
            let scope = in_scope.then_some(Scope(id));
            let children = ids.by_ref().step_by(2).collect();
            let spawned = match ids.next() {
                Some(first) if has_spawned => Spawned::Tasks { scope: Scope(first), tasks: ids.collect() },
                Some(scope) => Spawned::Awaited { scope: Scope(scope), then: Then::GoesOn },
                None => Spawned::Nothing,
            };
            let envelope = Envelope { id, scope, children, spawned, crashes, output, task };
            let written = codec::encode(&envelope).unwrap();
            prop_assert!(written.len() <= envelope.bytes());
            prop_assert_eq!(codec::decode::<Envelope>(&written).unwrap(), envelope);
        }
    }
}

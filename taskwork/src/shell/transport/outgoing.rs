//! The messages queued for one peer or being sent to it: bounded, and at most one about each subject. Small messages
//! are limited in number and large ones in bytes, so that large ones cause no loss of small ones. Messages of
//! companions have separate limits, so that they do not displace messages of the protocol.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;

use super::{TransportLimits, locks::lock};
use crate::wire::payload::Payload;

/// The subject of a message. At most one message about a subject is under way to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) job: u64,
    pub(crate) grant: u64,
    pub(crate) kind: u8,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnderWay {
    /// The message was delivered, lost or never sent.
    No,
    /// The message waits to be sent.
    Waits,
    /// The message is being sent and, as far as known, makes progress.
    Moves,
}

/// The sending end of a queue.
#[derive(Debug)]
pub(super) struct Queue {
    messages: mpsc::UnboundedSender<Outgoing>,
    load: Arc<Mutex<Load>>,
}

/// A message to be sent. It counts towards the limits until it is dropped.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) payload: Payload,
    subject: Option<Subject>,
    size: Size,
    lane: Lane,
    load: Arc<Mutex<Load>>,
}

/// The limits that apply to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Protocol,
    Companions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

/// The maximum size of a companion's refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 32;

#[derive(Debug, Default)]
struct Load {
    small_messages: usize,
    large_bytes: usize,
    /// The messages of companions.
    notes: usize,
    notes_bytes: usize,
    /// The subjects of the messages, and their progress.
    subjects: BTreeMap<Subject, UnderWay>,
}

/// The reasons why a message was not queued.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// Too many messages or bytes are queued.
    Full,
    /// A message about the same subject is under way.
    UnderWay,
    /// The link has stopped.
    Closed,
}

impl Queue {
    /// Creates a queue with its receiving end.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Outgoing>) {
        // Bounded by the limits in `queue`.
        let (messages, waiting) = mpsc::unbounded_channel();
        (Self { messages, load: Arc::default() }, waiting)
    }

    /// Queues a message of the protocol.
    pub(super) fn push(
        &self,
        payload: impl Into<Payload>,
        subject: Option<Subject>,
        limits: &TransportLimits,
    ) -> Result<(), NotQueued> {
        self.queue(payload.into(), subject, Lane::Protocol, limits)
    }

    /// Queues a message of a companion.
    pub(super) fn push_note(&self, payload: Payload, limits: &TransportLimits) -> Result<(), NotQueued> {
        self.queue(payload, None, Lane::Companions, limits)
    }

    fn queue(
        &self,
        payload: Payload,
        subject: Option<Subject>,
        lane: Lane,
        limits: &TransportLimits,
    ) -> Result<(), NotQueued> {
        let mut load = lock(&self.load);
        if subject.is_some_and(|subject| load.subjects.contains_key(&subject)) {
            return Err(NotQueued::UnderWay);
        }
        let (size, bytes) = (Size::of(payload.len(), limits), payload.len());
        let is_full = match (lane, size) {
            (Lane::Protocol, Size::Small) => load.small_messages >= limits.queued_messages_max,
            (Lane::Protocol, Size::Large) => load.large_bytes + bytes > limits.queued_bytes_max,
            (Lane::Companions, _) => {
                // The reserve is for refusals, so that companions that overload each other receive them.
                let reserve = if bytes <= REFUSAL_BYTES_MAX { limits.queued_notes_max } else { 0 };
                load.notes >= limits.queued_notes_max + reserve
                    || load.notes_bytes + bytes > limits.queued_notes_bytes_max
            }
        };
        if is_full {
            return Err(NotQueued::Full);
        }
        load.add(lane, size, bytes);
        load.subjects.extend(subject.map(|subject| (subject, UnderWay::Waits)));
        drop(load);
        let message = Outgoing { payload, subject, size, lane, load: Arc::clone(&self.load) };
        self.messages.send(message).map_err(|_| NotQueued::Closed)
    }

    pub(super) fn under_way(&self, subject: Subject) -> UnderWay {
        lock(&self.load).subjects.get(&subject).copied().unwrap_or(UnderWay::No)
    }

    /// Returns the number of small messages and the bytes of large ones.
    #[cfg(test)]
    pub(super) fn load(&self) -> (usize, usize) {
        let load = lock(&self.load);
        (load.small_messages, load.large_bytes)
    }
}

impl Size {
    fn of(bytes: usize, limits: &TransportLimits) -> Self {
        if bytes > limits.small_bytes_max { Self::Large } else { Self::Small }
    }
}

impl Load {
    fn add(&mut self, lane: Lane, size: Size, bytes: usize) {
        match (lane, size) {
            (Lane::Protocol, Size::Small) => self.small_messages += 1,
            (Lane::Protocol, Size::Large) => self.large_bytes += bytes,
            (Lane::Companions, _) => {
                (self.notes, self.notes_bytes) = (self.notes + 1, self.notes_bytes + bytes);
            }
        }
    }

    fn remove(&mut self, lane: Lane, size: Size, bytes: usize) {
        match (lane, size) {
            (Lane::Protocol, Size::Small) => self.small_messages -= 1,
            (Lane::Protocol, Size::Large) => self.large_bytes -= bytes,
            (Lane::Companions, _) => {
                (self.notes, self.notes_bytes) = (self.notes - 1, self.notes_bytes - bytes);
            }
        }
    }
}

impl Outgoing {
    pub(super) fn is_large(&self) -> bool {
        self.size == Size::Large
    }

    pub(super) fn mark_moving(&self) {
        if let Some(subject) = self.subject {
            lock(&self.load).subjects.insert(subject, UnderWay::Moves);
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut load = lock(&self.load);
        load.remove(self.lane, self.size, self.payload.len());
        if let Some(subject) = self.subject {
            load.subjects.remove(&subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(grant: u64) -> Subject {
        Subject { job: 1, grant, kind: 0 }
    }

    fn limits() -> TransportLimits {
        let small_bytes_max = 10;
        TransportLimits {
            small_bytes_max,
            queued_messages_max: 3,
            queued_bytes_max: 100,
            ..Default::default()
        }
    }

    #[test]
    fn message_about_a_queued_subject_is_not_queued_again() {
        let (queue, mut waiting) = Queue::new();
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Ok(()));
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Err(NotQueued::UnderWay));
        assert_eq!(queue.under_way(about(7)), UnderWay::Waits);
        let message = waiting.try_recv().unwrap();
        message.mark_moving();
        assert_eq!(queue.under_way(about(7)), UnderWay::Moves);
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Err(NotQueued::UnderWay));
        drop(message);
        assert_eq!(queue.under_way(about(7)), UnderWay::No);
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Ok(()));
    }

    #[test]
    fn companion_messages_have_separate_limits() {
        let limits = TransportLimits { queued_notes_max: 2, queued_notes_bytes_max: 200, ..limits() };
        let (queue, mut waiting) = Queue::new();
        let note = |bytes| queue.push_note(vec![0; bytes].into(), &limits);
        assert_eq!([note(90), note(40), note(33)], [Ok(()), Ok(()), Err(NotQueued::Full)]);
        assert_eq!([note(32), note(8), note(1)], [Ok(()), Ok(()), Err(NotQueued::Full)], "a reserve");
        for _ in 0..3 {
            assert_eq!(queue.push(vec![0; 10], None, &limits), Ok(()));
        }
        assert_eq!(queue.push(vec![0; 100], None, &limits), Ok(()));
        for _ in 0..3 {
            drop(waiting.try_recv());
        }
        assert_eq!([note(193), note(192)], [Err(NotQueued::Full), Ok(())], "bounded in bytes, too");
    }

    #[test]
    fn queued_and_sent_messages_are_bounded_in_number_and_bytes() {
        let (queue, mut waiting) = Queue::new();
        assert_eq!(queue.push(vec![0; 90], None, &limits()), Ok(()));
        assert_eq!(queue.push(vec![0; 11], None, &limits()), Err(NotQueued::Full));
        let on_its_way = waiting.try_recv().unwrap();
        assert_eq!(queue.push(vec![0; 11], None, &limits()), Err(NotQueued::Full));
        for _ in 0..3 {
            assert_eq!(queue.push(vec![0; 10], None, &limits()), Ok(()), "small ones have room of their own");
        }
        assert_eq!(queue.push(vec![0; 1], None, &limits()), Err(NotQueued::Full));
        drop(on_its_way);
        assert_eq!(queue.push(vec![0; 100], None, &limits()), Ok(()));
        assert_eq!(queue.load(), (3, 100));
        drop(waiting);
        assert_eq!(queue.load(), (0, 0));
        assert_eq!(queue.push(vec![0; 1], None, &limits()), Err(NotQueued::Closed));
        assert_eq!(queue.load(), (0, 0));
    }
}

//! The messages queued for one peer or being sent to it: never two about the same subject, and bounded. Small
//! messages are limited by number and large ones by bytes, so that no small one is dropped because of large
//! ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;

use super::{Subject, TransportLimits, UnderWay, lock};
use crate::wire::payload::Payload;

/// The sending end of a queue.
#[derive(Debug)]
pub(super) struct Queue {
    messages: mpsc::UnboundedSender<Outgoing>,
    load: Arc<Mutex<Load>>,
}

/// A message to be sent, which counts until it is dropped.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) payload: Payload,
    subject: Option<Subject>,
    size: Size,
    load: Arc<Mutex<Load>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

/// The load of a queue.
#[derive(Debug, Default)]
struct Load {
    small_messages: usize,
    large_bytes: usize,
    /// The subjects of the messages, and their progress.
    subjects: BTreeMap<Subject, UnderWay>,
}

/// The reasons for which a message was not queued.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// Too many messages or bytes are queued.
    Full,
    /// A message about the same subject is under way.
    UnderWay,
    /// The link has ended.
    Closed,
}

impl Queue {
    /// Creates a queue, and its receiving end.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Outgoing>) {
        // Bounded by the limits in `push`.
        let (messages, waiting) = mpsc::unbounded_channel();
        (Self { messages, load: Arc::default() }, waiting)
    }

    /// Queues a message.
    pub(super) fn push(
        &self,
        payload: impl Into<Payload>,
        subject: Option<Subject>,
        limits: &TransportLimits,
    ) -> Result<(), NotQueued> {
        let payload = payload.into();
        let mut load = lock(&self.load);
        if subject.is_some_and(|subject| load.subjects.contains_key(&subject)) {
            return Err(NotQueued::UnderWay);
        }
        let size = if payload.len() > limits.small_bytes_max { Size::Large } else { Size::Small };
        match size {
            Size::Small if load.small_messages >= limits.queued_messages_max => return Err(NotQueued::Full),
            Size::Large if load.large_bytes + payload.len() > limits.queued_bytes_max => {
                return Err(NotQueued::Full);
            }
            Size::Small => load.small_messages += 1,
            Size::Large => load.large_bytes += payload.len(),
        }
        load.subjects.extend(subject.map(|subject| (subject, UnderWay::Waits)));
        drop(load);
        let message = Outgoing { payload, subject, size, load: Arc::clone(&self.load) };
        self.messages.send(message).map_err(|_| NotQueued::Closed)
    }

    /// Returns the progress of the message about a subject.
    pub(super) fn under_way(&self, subject: Subject) -> UnderWay {
        lock(&self.load).subjects.get(&subject).copied().unwrap_or(UnderWay::No)
    }

    /// Returns the number of small messages, and the bytes of large ones.
    #[cfg(test)]
    pub(super) fn load(&self) -> (usize, usize) {
        let load = lock(&self.load);
        (load.small_messages, load.large_bytes)
    }
}

impl Outgoing {
    pub(super) fn is_large(&self) -> bool {
        self.size == Size::Large
    }

    /// Records that its bytes are being sent now.
    pub(super) fn moves(&self) {
        if let Some(subject) = self.subject {
            lock(&self.load).subjects.insert(subject, UnderWay::Moves);
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut load = lock(&self.load);
        match self.size {
            Size::Small => load.small_messages -= 1,
            Size::Large => load.large_bytes -= self.payload.len(),
        }
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
    fn the_same_does_not_wait_twice() {
        let (queue, mut waiting) = Queue::new();
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Ok(()));
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Err(NotQueued::UnderWay));
        assert_eq!(queue.under_way(about(7)), UnderWay::Waits);
        let message = waiting.try_recv().unwrap();
        message.moves();
        assert_eq!(queue.under_way(about(7)), UnderWay::Moves);
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Err(NotQueued::UnderWay));
        drop(message);
        assert_eq!(queue.under_way(about(7)), UnderWay::No);
        assert_eq!(queue.push(vec![0; 10], Some(about(7)), &limits()), Ok(()));
    }

    #[test]
    fn what_waits_or_is_on_its_way_is_bounded_in_messages_and_in_bytes() {
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

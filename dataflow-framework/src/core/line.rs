//! A reliable, ordered line of messages to another node.
//!
//! The runtime may lose or reorder messages to companions. So messages are numbered, several per frame; the
//! receiver acknowledges those that it has received without a gap, in its own frames; unacknowledged messages
//! are sent again after a timeout. Each line has a name by which both sides detect a restart of the other:
//! frames of another line are ignored.
//!
//! A frame costs as much as hundreds of messages in it. So the first message is sent immediately, and those
//! that follow within a millisecond are sent together while it is in flight; an acknowledgement waits a while
//! for a message to share its frame.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The time after which unacknowledged messages are sent again, in milliseconds.
const REPEAT_MS: u64 = 250;

/// The maximum size of the messages of a frame, in bytes, unless a single one is larger.
const FRAME_BYTES_MAX: usize = 256 << 10;

/// The maximum size of unacknowledged messages in flight, in bytes.
const UNDER_WAY_BYTES_MAX: usize = 4 << 20;

/// The maximum number of messages that are kept because an earlier one is missing.
const EARLY_MAX: usize = 4_096;

/// The time for which messages wait for others while a frame is in flight, in milliseconds.
pub(crate) const HOLD_MS: u64 = 1;

/// The maximum delay of an acknowledgement that waits for a message, in milliseconds.
const OWE_MS: u64 = 20;

/// The size of received messages, in bytes, that is acknowledged immediately: a part of the maximum in flight.
const OWE_BYTES_MAX: usize = UNDER_WAY_BYTES_MAX / 8;

/// The messages and the acknowledgement that are sent at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frame {
    /// The number of the first message.
    first: u64,
    messages: Vec<Vec<u8>>,
    /// The number of messages received without a gap.
    received: u64,
}

/// This side of a line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The unacknowledged messages.
    messages: VecDeque<Vec<u8>>,
    /// The size of the messages, in bytes.
    bytes: usize,
    /// The number of acknowledged messages.
    acknowledged: u64,
    /// The number of `messages` in flight.
    sent: usize,
    /// The size of the messages in flight, in bytes.
    sent_bytes: usize,
    /// The time when messages were last sent, in milliseconds.
    sent_ms: u64,
    /// The time of the last message sent or acknowledgement received, in milliseconds.
    moved_ms: u64,
    /// Whether unsent messages wait for others.
    is_held: bool,
    /// The number of messages received without a gap.
    received: u64,
    /// The messages received after a gap.
    early: BTreeMap<u64, Vec<u8>>,
    /// The pending acknowledgement.
    owed: Option<Owed>,
}

/// Received messages that are not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Owed {
    /// The time when the first of the messages was received, in milliseconds.
    since_ms: u64,
    bytes: usize,
}

impl Line {
    pub(crate) fn push(&mut self, message: Vec<u8>) {
        self.bytes += message.len();
        self.messages.push_back(message);
    }

    /// Returns whether all messages are acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether messages waited for others at the last call of [`frame`](Self::frame). Call it again
    /// after [`HOLD_MS`].
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns a frame to send now, if there is one.
    pub(crate) fn frame(&mut self, now_ms: u64) -> Option<Frame> {
        if self.sent > 0 && now_ms >= self.moved_ms + REPEAT_MS {
            // All messages again: the receiver ignores duplicates.
            (self.sent, self.sent_bytes) = (0, 0);
        }
        let owes = self.owes(now_ms);
        self.is_held = !owes && self.holds(now_ms);
        if self.is_held {
            return None;
        }
        let first = self.acknowledged + self.sent as u64;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for message in self.messages.range(self.sent..) {
            let is_alone = messages.is_empty() && self.sent == 0;
            let fits = bytes + message.len() <= FRAME_BYTES_MAX || messages.is_empty();
            if !is_alone && (!fits || self.sent_bytes + bytes + message.len() > UNDER_WAY_BYTES_MAX) {
                break;
            }
            bytes += message.len();
            messages.push(message.clone());
        }
        if messages.is_empty() && !owes {
            return None;
        }
        if !messages.is_empty() {
            (self.sent_ms, self.moved_ms) = (now_ms, now_ms);
        }
        self.sent += messages.len();
        self.sent_bytes += bytes;
        self.owed = None;
        Some(Frame { first, messages, received: self.received })
    }

    /// Returns whether unsent messages should wait: the receiver is busy, and more may come.
    fn holds(&self, now_ms: u64) -> bool {
        let waits = self.sent > 0 && self.sent < self.messages.len() && now_ms < self.sent_ms + HOLD_MS;
        waits && self.bytes - self.sent_bytes < FRAME_BYTES_MAX
    }

    /// Returns whether an acknowledgement is due.
    fn owes(&self, now_ms: u64) -> bool {
        let is_due = |owed: &Owed| now_ms >= owed.since_ms + OWE_MS || owed.bytes >= OWE_BYTES_MAX;
        self.owed.as_ref().is_some_and(is_due)
    }

    /// Handles a frame, and returns the messages that continue the sequence.
    pub(crate) fn receive(&mut self, frame: Frame, now_ms: u64) -> Vec<Vec<u8>> {
        let Frame { first, messages, received } = frame;
        self.on_acknowledged(received, now_ms);
        if !messages.is_empty() {
            // Also for duplicates: the acknowledgement may have been lost.
            let owed = self.owed.get_or_insert(Owed { since_ms: now_ms, bytes: 0 });
            owed.bytes += messages.iter().map(Vec::len).sum::<usize>();
        }
        let mut next = Vec::new();
        for (number, message) in (first..).zip(messages) {
            if number == self.received {
                // Also without room for early messages: they wait for this one.
                next.push(message);
                self.received += 1;
                while let Some(message) = self.early.remove(&self.received) {
                    next.push(message);
                    self.received += 1;
                }
            } else if number > self.received && self.early.len() < EARLY_MAX {
                self.early.insert(number, message);
            }
        }
        next
    }

    fn on_acknowledged(&mut self, received: u64, now_ms: u64) {
        // An acknowledgement of unsent messages is invalid; a lower one was reordered.
        let new = received.saturating_sub(self.acknowledged);
        let Some(new) = usize::try_from(new).ok().filter(|new| *new > 0 && *new <= self.messages.len())
        else {
            return;
        };
        for message in self.messages.drain(..new) {
            self.bytes -= message.len();
            if self.sent > 0 {
                self.sent -= 1;
                self.sent_bytes -= message.len();
            }
        }
        self.acknowledged += new as u64;
        self.moved_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::{EARLY_MAX, FRAME_BYTES_MAX, Frame, HOLD_MS, Line, OWE_BYTES_MAX, OWE_MS, REPEAT_MS};

    /// An event at the two sides of a line.
    #[derive(Debug, Clone)]
    enum Event {
        Push {
            side: usize,
            bytes: usize,
        },
        /// A frame is sent, if there is one.
        Send {
            side: usize,
        },
        /// A frame in flight arrives, and perhaps again later.
        Arrive {
            which: Index,
            again: bool,
        },
        Lose {
            which: Index,
        },
        Wait {
            ms: u64,
        },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..2_usize, prop_oneof![Just(10), Just(200_000), Just(3_000_000)])
                .prop_map(|(side, bytes)| Event::Push { side, bytes }),
            4 => (0..2_usize).prop_map(|side| Event::Send { side }),
            4 => (any::<Index>(), any::<bool>()).prop_map(|(which, again)| Event::Arrive { which, again }),
            2 => any::<Index>().prop_map(|which| Event::Lose { which }),
            1 => (0..400_u64).prop_map(|ms| Event::Wait { ms }),
        ]
    }

    struct World {
        lines: [Line; 2],
        /// The receiving side, and the frame.
        under_way: Vec<(usize, Frame)>,
        pushed: [Vec<Vec<u8>>; 2],
        received: [Vec<Vec<u8>>; 2],
        now_ms: u64,
    }

    impl World {
        fn send(&mut self, side: usize) -> bool {
            let frame = self.lines[side].frame(self.now_ms);
            let is_sent = frame.is_some();
            self.under_way.extend(frame.map(|frame| (1 - side, frame)));
            is_sent
        }

        fn arrive(&mut self, which: usize, again: bool) {
            let (side, frame) =
                if again { self.under_way[which].clone() } else { self.under_way.swap_remove(which) };
            let messages = self.lines[side].receive(frame, self.now_ms);
            self.received[side].extend(messages);
        }

        fn on_event(&mut self, event: &Event) {
            match event {
                Event::Push { side, bytes } => {
                    let number = u8::try_from(self.pushed[*side].len() % 256).expect("it is less");
                    let message = vec![number; *bytes];
                    self.pushed[*side].push(message.clone());
                    self.lines[*side].push(message);
                }
                Event::Send { side } => drop(self.send(*side)),
                Event::Arrive { which, again } if !self.under_way.is_empty() => {
                    self.arrive(which.index(self.under_way.len()), *again);
                }
                Event::Lose { which } if !self.under_way.is_empty() => {
                    self.under_way.swap_remove(which.index(self.under_way.len()));
                }
                Event::Wait { ms } => self.now_ms += ms,
                Event::Arrive { .. } | Event::Lose { .. } => {}
            }
        }
    }

    proptest! {
        #[test]
        fn everything_arrives_once_and_in_order(events in vec(event(), 0..80)) {
            let mut world = World {
                lines: Default::default(),
                under_way: Vec::new(),
                pushed: Default::default(),
                received: Default::default(),
                now_ms: 0,
            };
            for event in &events {
                world.on_event(event);
            }
            // From now on nothing is lost.
            for _ in 0..1_000 {
                let is_sent = world.send(0) | world.send(1);
                while !world.under_way.is_empty() {
                    world.arrive(0, false);
                }
                if !is_sent {
                    world.now_ms += 300;
                }
            }
            prop_assert!(world.received[0] == world.pushed[1]);
            prop_assert!(world.received[1] == world.pushed[0]);
            prop_assert!(world.lines.iter().all(Line::is_empty));
        }
    }

    #[test]
    fn idle_line_sends_nothing() {
        let (mut here, mut there) = (Line::default(), Line::default());
        here.push(vec![1]);
        let frame = here.frame(0).expect("there is a message");
        assert_eq!(here.frame(100), None);
        assert_eq!(there.receive(frame, 100), [[1]]);
        assert_eq!(there.frame(100), None, "a message may come with which the acknowledgement can go");
        let acknowledgement = there.frame(100 + OWE_MS).expect("it acknowledges");
        assert!(here.receive(acknowledgement, 120).is_empty());
        for now_ms in [120, 10_000] {
            assert_eq!(here.frame(now_ms), None);
            assert_eq!(there.frame(now_ms), None);
        }
    }

    #[test]
    fn messages_pushed_while_others_are_in_flight_share_a_frame() {
        let (mut here, mut there) = (Line::default(), Line::default());
        here.push(vec![1]);
        let first = here.frame(7).expect("the first one goes at once");
        here.push(vec![2]);
        assert_eq!((here.frame(7), here.is_held()), (None, true));
        here.push(vec![3]);
        let second = here.frame(7 + HOLD_MS).expect("they have waited");
        assert!(!here.is_held());
        assert_eq!([there.receive(first, 8), there.receive(second, 8)], [vec![[1]], vec![[2], [3]]]);
        there.push(vec![4]);
        let answer = there.frame(8).expect("it goes at once, and acknowledges");
        assert_eq!(here.receive(answer, 8), [[4]]);
        here.push(vec![5]);
        assert!(here.frame(8).is_some(), "nothing is under way");
    }

    #[test]
    fn missing_message_is_accepted_without_room_for_early_ones() {
        let (mut here, mut there) = (Line::default(), Line::default());
        here.push(vec![0]);
        drop(here.frame(0).expect("it is lost"));
        (0..EARLY_MAX).for_each(|_| here.push(vec![1]));
        assert!(there.receive(here.frame(10).expect("they go together"), 10).is_empty());
        let again = here.frame(10 + REPEAT_MS).expect("it goes again");
        assert_eq!(there.receive(again, 300).len(), 1 + EARLY_MAX);
    }

    #[test]
    fn large_amounts_are_sent_and_acknowledged_immediately() {
        let (mut here, mut there) = (Line::default(), Line::default());
        here.push(vec![0]);
        let mut frames = vec![here.frame(0).expect("there is a message")];
        for _ in 0..2 * OWE_BYTES_MAX / FRAME_BYTES_MAX {
            here.push(vec![0; FRAME_BYTES_MAX]);
            frames.push(here.frame(0).expect("it is as much as goes at once"));
        }
        for frame in frames {
            there.receive(frame, 0);
        }
        assert!(there.frame(0).is_some());
    }
}

//! A line to another node, on which no message is lost, and all arrive in order.
//!
//! The runtime's messages to companions may be lost, and may overtake each other. So messages are numbered, several in
//! one frame; the other side acknowledges what it has got without a gap, with its own frames; and what is not
//! acknowledged in time is sent again. A line has a name by which both sides notice that the other one has begun anew:
//! frames of another line are passed over.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The time after which what was not acknowledged is sent again, in milliseconds.
const REPEAT_MS: u64 = 250;

/// The maximum size of the messages of a frame, in bytes, unless a single one is larger.
const FRAME_BYTES_MAX: usize = 256 << 10;

/// The maximum size of messages that were sent and are not acknowledged, in bytes.
const UNDER_WAY_BYTES_MAX: usize = 4 << 20;

/// The maximum number of messages that are kept because one before them is missing.
const EARLY_MAX: usize = 4_096;

/// What is sent on a line at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frame {
    /// The number of the first message.
    first: u64,
    messages: Vec<Vec<u8>>,
    /// The number of messages that were received without a gap.
    received: u64,
}

/// This side of a line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The messages that are not acknowledged.
    messages: VecDeque<Vec<u8>>,
    /// The number of messages that are acknowledged.
    acknowledged: u64,
    /// How many of the messages above were sent.
    sent: usize,
    /// Their size, in bytes.
    sent_bytes: usize,
    /// When something was last sent or acknowledged, in milliseconds.
    moved_ms: u64,
    /// The number of messages that were received without a gap.
    received: u64,
    /// What was received after a gap.
    early: BTreeMap<u64, Vec<u8>>,
    /// Whether something was received that the other side should know of.
    owes: bool,
}

impl Line {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: Vec<u8>) {
        self.messages.push_back(message);
    }

    /// Returns whether all messages are acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns a frame that should be sent now, if there is one.
    pub(crate) fn frame(&mut self, now_ms: u64) -> Option<Frame> {
        if self.sent > 0 && now_ms >= self.moved_ms + REPEAT_MS {
            // All of it: the receiver passes over what it has.
            (self.sent, self.sent_bytes) = (0, 0);
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
        if messages.is_empty() && !self.owes {
            return None;
        }
        if !messages.is_empty() {
            self.moved_ms = now_ms;
        }
        self.sent += messages.len();
        self.sent_bytes += bytes;
        self.owes = false;
        Some(Frame { first, messages, received: self.received })
    }

    /// Takes in a frame, and returns the messages that follow those before.
    pub(crate) fn receive(&mut self, frame: Frame, now_ms: u64) -> Vec<Vec<u8>> {
        let Frame { first, messages, received } = frame;
        self.is_acknowledged(received, now_ms);
        if !messages.is_empty() {
            // Also for those that were there before: the acknowledgement may have been lost.
            self.owes = true;
        }
        for (number, message) in (first..).zip(messages) {
            if number >= self.received && self.early.len() < EARLY_MAX {
                self.early.insert(number, message);
            }
        }
        let mut next = Vec::new();
        while let Some(message) = self.early.remove(&self.received) {
            self.received += 1;
            next.push(message);
        }
        next
    }

    fn is_acknowledged(&mut self, received: u64, now_ms: u64) {
        // More than was sent is nonsense; less than before has been overtaken.
        let new = received.saturating_sub(self.acknowledged);
        let Some(new) = usize::try_from(new).ok().filter(|new| *new > 0 && *new <= self.messages.len())
        else {
            return;
        };
        for message in self.messages.drain(..new) {
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

    use super::{Frame, Line};

    /// What happens to the two sides of a line.
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
        /// One of the frames under way arrives, and perhaps again later.
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
        /// To which side, and the frame.
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

        fn happens(&mut self, event: &Event) {
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
                world.happens(event);
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
    fn an_idle_line_is_silent() {
        let (mut here, mut there) = (Line::default(), Line::default());
        here.push(vec![1]);
        let frame = here.frame(0).expect("there is a message");
        assert_eq!(here.frame(100), None);
        assert_eq!(there.receive(frame, 100), [[1]]);
        let acknowledgement = there.frame(100).expect("it acknowledges");
        assert!(here.receive(acknowledgement, 100).is_empty());
        for now_ms in [100, 10_000] {
            assert_eq!(here.frame(now_ms), None);
            assert_eq!(there.frame(now_ms), None);
        }
    }
}

//! What a node on its way out remembers, and by when it must be gone. The way itself is in
//! [`leaving`](super::leaving).

use std::collections::BTreeSet;

use crate::{config::Limits, envelope::Envelope, id::NodeId};

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Workers stop, tasks are handed on.
    Handing,
    /// The leave is being committed.
    Leaving,
}

/// How a node is told to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// By a deadline.
    Drain,
    /// However long it takes.
    Retire,
    /// However long it takes; and nobody takes tasks now, so they are parked at once.
    Rest,
}

/// A node's way out.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) stage: Stage,
    /// From now on tasks are parked.
    pub(super) park_at: u64,
    /// From now on nothing is waited for.
    pub(super) abandon_at: Option<u64>,
    /// Tasks that nobody has been offered.
    pub(super) pile: Vec<Envelope>,
    /// Members that take no tasks: they are leaving too.
    pub(super) refusing: BTreeSet<NodeId>,
    /// When acknowledgements that may not have been heard are said again.
    pub(super) remind_at: u64,
}

/// How much of the time to leave is kept for parking: a third.
fn parking_ms(limits: &Limits) -> u64 {
    limits.drain_deadline_ms / 3
}

impl Drain {
    /// The node is told to leave.
    pub(super) fn begin(now: u64, word: Word, limits: &Limits) -> Self {
        let deadline_ms = limits.drain_deadline_ms;
        let handing_ms = if word == Word::Rest { 0 } else { deadline_ms - parking_ms(limits) };
        Self {
            stage: Stage::Handing,
            park_at: now + handing_ms,
            abandon_at: (word == Word::Drain).then_some(now + deadline_ms),
            pile: Vec::new(),
            refusing: BTreeSet::new(),
            remind_at: now + limits.grant_retry_ms,
        }
    }

    /// The node is told again: it leaves as soon as it can.
    pub(super) fn hurry(&mut self, now: u64, word: Word, limits: &Limits) {
        self.park_at = self.park_at.min(now);
        if word == Word::Drain {
            // The first word with a deadline has all of it: until now nothing pressed.
            let last =
                self.abandon_at.map_or(now + limits.drain_deadline_ms, |at| at.min(now + parking_ms(limits)));
            self.abandon_at = Some(last);
        }
    }

    pub(super) fn refused_by(&mut self, node: NodeId) {
        self.refusing.insert(node);
    }

    pub(super) fn joined(&mut self, node: NodeId) {
        self.refusing.remove(&node);
    }

    pub(super) fn pile(&mut self, tasks: Vec<Envelope>) {
        self.pile.extend(tasks);
    }

    /// Takes the next tasks from the pile: so many, and of so many bytes together, but one at least.
    pub(super) fn next_share(&mut self, tasks_max: usize, bytes_max: usize) -> Vec<Envelope> {
        let mut bytes = 0;
        let fits = |task: &&Envelope| {
            bytes += task.bytes();
            bytes <= bytes_max
        };
        let count = self.pile.iter().take(tasks_max).take_while(fits).count();
        let rest = self.pile.split_off(count.max(1).min(self.pile.len()));
        std::mem::replace(&mut self.pile, rest)
    }

    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Envelope> {
        self.pile.iter()
    }

    /// The times at which something is due.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        [self.remind_at, self.park_at].into_iter().chain(self.abandon_at)
    }
}

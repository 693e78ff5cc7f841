//! The state of a leaving node, and its deadline. The procedure is in [`leaving`](super::leaving).

use std::collections::BTreeSet;

use crate::{config::Limits, envelope::Envelope, holdings::Basis, id::NodeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainKind {
    /// With a deadline, which counts from the first request.
    Drain { ms_ago: u64, deadline_ms: u64 },
    /// Without a deadline.
    Retire,
    /// Without a deadline; no node accepts tasks, so they are parked immediately.
    Rest,
}

#[derive(Debug)]
pub(super) struct Drain {
    /// The time from which tasks are parked.
    pub(super) park_at: u64,
    /// The time at which the node stops waiting, even if work is unfinished.
    pub(super) abandon_at: Option<u64>,
    /// Tasks that were not offered to another node yet, with their bases.
    pub(super) pile: Vec<(Basis, Envelope)>,
    /// Members that accept no tasks: they are leaving, too.
    pub(super) refusing: BTreeSet<NodeId>,
    /// The time at which acknowledgements that may not have arrived are sent again.
    pub(super) remind_at: u64,
}

/// Returns the time reserved for parking: a third of the time to leave.
fn parking_ms(deadline_ms: u64) -> u64 {
    deadline_ms / 3
}

impl Drain {
    pub(super) fn begin(now: u64, kind: DrainKind, limits: &Limits) -> Self {
        let (all_ms, left_ms) = match kind {
            DrainKind::Drain { ms_ago, deadline_ms } => (deadline_ms, deadline_ms.saturating_sub(ms_ago)),
            DrainKind::Retire => (limits.drain_deadline_ms, limits.drain_deadline_ms),
            DrainKind::Rest => (0, 0),
        };
        Self {
            park_at: now + left_ms.saturating_sub(parking_ms(all_ms)),
            abandon_at: matches!(kind, DrainKind::Drain { .. }).then_some(now + left_ms),
            pile: Vec::new(),
            refusing: BTreeSet::new(),
            remind_at: now + limits.grant_retry_ms,
        }
    }

    /// Leaves as soon as possible, on a further request.
    pub(super) fn hurry(&mut self, now: u64, kind: DrainKind) {
        self.park_at = self.park_at.min(now);
        if let DrainKind::Drain { ms_ago, deadline_ms } = kind {
            // The first request with a deadline gets the full time: until now there was none.
            let left_ms = deadline_ms.saturating_sub(ms_ago);
            let last = self.abandon_at.map_or(now + left_ms, |at| at.min(now + parking_ms(deadline_ms)));
            self.abandon_at = Some(last);
        }
    }

    pub(super) fn refused_by(&mut self, node: NodeId) {
        self.refusing.insert(node);
    }

    pub(super) fn joined(&mut self, node: NodeId) {
        self.refusing.remove(&node);
    }

    /// Takes the next tasks from the pile, with one basis and limits on their number and bytes, but at least
    /// one.
    pub(super) fn next_share(&mut self, tasks_max: usize, bytes_max: usize) -> (Basis, Vec<Envelope>) {
        let first = self.pile.first().map_or(Basis::FIRM, |(basis, _)| *basis);
        let mut bytes = 0;
        let fits = |(basis, task): &&(Basis, Envelope)| {
            bytes += task.bytes();
            *basis == first && bytes <= bytes_max
        };
        let count = self.pile.iter().take(tasks_max).take_while(fits).count();
        let rest = self.pile.split_off(count.max(1).min(self.pile.len()));
        let share = std::mem::replace(&mut self.pile, rest);
        (first, share.into_iter().map(|(_, task)| task).collect())
    }

    /// Takes up to this number of tasks with such bases from the pile.
    pub(super) fn take(&mut self, max: usize, is_firm: impl Fn(Basis) -> bool) -> Vec<Envelope> {
        let mut taken = Vec::new();
        for (basis, task) in std::mem::take(&mut self.pile) {
            if taken.len() < max && is_firm(basis) {
                taken.push(task);
            } else {
                self.pile.push((basis, task));
            }
        }
        taken
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = (Basis, &Envelope)> {
        self.pile.iter().map(|(basis, task)| (*basis, task))
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        [self.remind_at, self.park_at].into_iter().chain(self.abandon_at)
    }
}

//! How much of a node's work would be lost with it, for people: the protocol does not depend on it.

use super::{
    action::Flush,
    run::{Enrolment, Run},
    surroundings::Surroundings,
};
use crate::{config::Limits, envelope::Envelope};

/// What stands in `ZooKeeper` of what a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LedgerState {
    /// Everything that the node had at this time stands there, in milliseconds of the node's clock: what it has
    /// done since would be lost. `None` if that was never so.
    pub(crate) written_at: Option<u64>,
    /// Whether the node holds nothing; then `written_at` is since when.
    pub(crate) empty: bool,
    /// Whether it holds more than it writes: then its loss ends the attempt.
    pub(crate) unprotected: bool,
    /// The size of everything that it held at its last cut, if it was encoded.
    pub(crate) bytes: Option<u64>,
}

impl LedgerState {
    /// Returns the state of a node that has just begun with an attempt.
    pub(super) fn begin(now: u64) -> Self {
        Self { written_at: Some(now), empty: true, unprotected: false, bytes: Some(0) }
    }
}

impl Run {
    /// Notes the size of what the next flush writes, or would write.
    pub(super) fn note_cut<'a>(&mut self, held: impl Iterator<Item = &'a Envelope>) {
        self.cut_bytes = held.map(|task| task.bytes() as u64).sum();
    }

    /// Notes a committed flush.
    pub(super) fn note_written(&mut self, flush: &Flush, limits: &Limits) {
        let unprotected = flush.held.unprotected;
        // Less than the maximum is unprotected only if tasks are missing that could not be encoded.
        let known = !unprotected || self.cut_bytes > limits.ledger_bytes_max as u64;
        self.ledger.bytes = known.then_some(self.cut_bytes);
        self.ledger.unprotected = unprotected;
        if !unprotected {
            // Everything that the node had when the cut was begun stands there now, and no later flush has
            // begun. Only what has come of tasks that are not the node's own yet is in no cut.
            let since = self.bases.open_since().unwrap_or(u64::MAX);
            self.ledger.written_at = Some(since.min(self.flushed_at));
        }
    }

    /// Notes whether the node holds anything now.
    pub(super) fn note_holding(&mut self, around: &Surroundings) {
        if around.limits.ledger_interval_ms == 0 {
            if self.enrolment == Enrolment::Done {
                self.ledger = LedgerState { unprotected: true, ..LedgerState::default() };
            }
            return;
        }
        let empty = self.holds_nothing(around);
        if empty != self.ledger.empty {
            self.ledger.empty = empty;
            self.ledger.written_at = Some(around.now);
        }
    }
}

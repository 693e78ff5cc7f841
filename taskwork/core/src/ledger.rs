//! The amount of work that the loss of a node would lose, for display: the protocol does not depend on it.

use super::{
    action::Flush,
    run::{Enrolment, Run},
    surroundings::Surroundings,
};
use crate::{config::Limits, envelope::Envelope};

/// The state of a node's holdings in `ZooKeeper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerState {
    /// The time, in milliseconds of the node's clock, up to which the node's work is written: later work would be lost.
    /// `None` if there was never such a time.
    pub written_at: Option<u64>,
    /// Whether the node holds nothing; then `written_at` is the start of that state.
    pub empty: bool,
    /// Whether it holds more than it can write: then its loss ends the attempt.
    pub unprotected: bool,
    /// The size of its holdings at its last cut, if it was encoded.
    pub bytes: Option<u64>,
}

impl LedgerState {
    /// Returns the state of a node that has just started with an attempt.
    pub(super) fn begin(now: u64) -> Self {
        Self { written_at: Some(now), empty: true, unprotected: false, bytes: Some(0) }
    }
}

impl Run {
    /// Records the size of the next flush, even if it is too large to be written.
    pub(super) fn note_cut<'a>(&mut self, held: impl Iterator<Item = &'a Envelope>) {
        self.cut_bytes = held.map(|task| task.bytes() as u64).sum();
    }

    /// Records a committed flush.
    pub(super) fn note_written(&mut self, flush: &Flush, limits: &Limits) {
        let unprotected = flush.held.unprotected;
        // Below the maximum it is unprotected only if tasks are missing that could not be encoded.
        let known = !unprotected || self.cut_bytes > limits.ledger_bytes() as u64;
        self.ledger.bytes = known.then_some(self.cut_bytes);
        self.ledger.unprotected = unprotected;
        if !unprotected {
            // The state at the start of the cut is written now, and no later flush has started. Only the effects of
            // tentative tasks are in no cut.
            let since = self.bases.open_since().unwrap_or(u64::MAX);
            self.ledger.written_at = Some(since.min(self.flushed_at));
        }
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Action, Cut, Event, Node, PoolView, Transaction, TransactionResult,
        envelope::Blob,
        holdings::Holdings,
        id::{Attempt, NodeId, TaskId},
    };

    const ATTEMPT: Attempt = Attempt(1);
    const IDLE: PoolView = PoolView::idle(1);
    const BUSY: PoolView = PoolView { idle: 0, ..IDLE };

    fn envelope(bytes: usize) -> Envelope {
        let task = Blob::from(vec![0; bytes]);
        Envelope::new(TaskId::ROOT, Blob::default(), task)
    }

    fn cut(tasks: Vec<Envelope>, unprotected: bool) -> Cut {
        Cut { tasks, unprotected, ..Cut::default() }
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn transaction(actions: &[Action]) -> Option<Transaction> {
        actions.iter().find_map(|action| match action {
            Action::Transact { transaction, .. } => Some(transaction.clone()),
            _ => None,
        })
    }

    /// Returns a node that has started with the root task at 100 ms.
    fn at_work(limits: Limits) -> Node {
        let mut node = Node::new(NodeId(1), limits, 1);
        node.handle(at(0), PoolView { stopped: true, ..IDLE }, Event::Attempt { attempt: ATTEMPT });
        node.handle(at(0), PoolView { stopped: true, ..IDLE }, Event::Look);
        assert_eq!(node.ledger(), Some(LedgerState::begin(0)));
        let parked = Event::Parked { attempt: ATTEMPT, tasks: vec![TaskId::ROOT] };
        let claim = transaction(&node.handle(at(50), IDLE, parked)).expect("it claims what is parked");
        assert!(node.ledger().unwrap().empty, "a claim is not certain");
        let claimed = TransactionResult::Claimed(Holdings::of(vec![envelope(8)]));
        node.handle(at(100), IDLE, Event::Transacted { txn: claim.txn, result: claimed });
        node.handle(at(100), BUSY, Event::Look);
        node
    }

    /// Flushes at a time, and returns the state before the commit and after it, 10 ms later.
    fn flush(node: &mut Node, ms: u64, pool: PoolView, cut: Cut) -> (LedgerState, LedgerState) {
        let actions = node.handle(at(ms), pool, Event::Tick);
        assert!(actions.iter().any(|action| matches!(action, Action::Cut { .. })), "{actions:?}");
        let flush = transaction(&node.handle(at(ms + 5), pool, Event::Cut(cut))).unwrap();
        let before = node.ledger().unwrap();
        let committed = Event::Transacted { txn: flush.txn, result: TransactionResult::Committed };
        node.handle(at(ms + 10), pool, committed);
        (before, node.ledger().unwrap())
    }

    #[test]
    fn written_time_is_that_of_the_committed_cut() {
        let mut node = at_work(Limits::default());
        let begun = node.ledger().unwrap();
        assert_eq!((begun.written_at, begun.empty), (Some(100), false));
        let task = envelope(8);
        let bytes = task.bytes() as u64;
        let (before, after) = flush(&mut node, 400, BUSY, cut(vec![task], false));
        assert_eq!((before, after.written_at, after.bytes), (begun, Some(400), Some(bytes)));
        // Its last task is complete.
        let done = PoolView { batch_ids: 1, ..IDLE };
        let mut last = cut(Vec::new(), false);
        last.toggles.complete(TaskId::ROOT, &[]);
        let actions = node.handle(at(500), done, Event::Tick);
        assert!(actions.iter().any(|action| matches!(action, Action::Cut { .. })), "{actions:?}");
        let flush = transaction(&node.handle(at(505), IDLE, Event::Cut(last))).unwrap();
        assert!(!node.ledger().unwrap().empty, "the completion is not committed");
        let committed = Event::Transacted { txn: flush.txn, result: TransactionResult::Committed };
        node.handle(at(510), IDLE, committed);
        let idle = LedgerState { written_at: Some(510), empty: true, unprotected: false, bytes: Some(0) };
        assert_eq!(node.ledger(), Some(idle));
        node.handle(at(900), IDLE, Event::Look);
        assert_eq!(node.ledger(), Some(idle), "an idle node has nothing new to report");
    }

    #[test]
    fn node_with_too_large_holdings_is_unprotected_until_the_next_complete_flush() {
        let limits = Limits { ledger_bytes_max: 100, ..Limits::default() };
        let mut node = at_work(limits);
        let large = envelope(200);
        let bytes = large.bytes() as u64;
        let (before, after) = flush(&mut node, 400, BUSY, cut(vec![large], true));
        assert!(!before.unprotected, "as long as what was written before stands");
        let unprotected =
            LedgerState { written_at: Some(100), empty: false, unprotected: true, bytes: Some(bytes) };
        assert_eq!(after, unprotected);
        let (_, after) = flush(&mut node, 2_000, BUSY, cut(vec![envelope(8)], true));
        assert_eq!(after, LedgerState { bytes: None, ..unprotected }, "not all could be encoded");
        let (_, after) = flush(&mut node, 4_000, BUSY, cut(vec![envelope(8)], false));
        assert_eq!((after.written_at, after.unprotected), (Some(4_000), false));
    }

    #[test]
    fn node_without_ledger_is_unprotected_once_enrolled() {
        let mut node = at_work(Limits { ledger_interval_ms: 0, ..Limits::default() });
        let unprotected = LedgerState { unprotected: true, ..LedgerState::default() };
        assert_eq!(node.ledger(), Some(unprotected));
        node.handle(at(200), BUSY, Event::JobOver);
        assert_eq!(node.ledger(), None);
    }
}

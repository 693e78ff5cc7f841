//! The coordination transactions of a node: one at a time, each with a number that stays the same at every
//! try.
//!
//! ```text
//!   None ──batch taken / task to claim──▶ InFlight ──written, or too late──▶ None
//!                                          │    ▲
//!                                       Unknown │ retry time
//!                                          ▼    │
//!                                         Waiting
//! ```
//!
//! One at a time, because each deletes the txn id of the previous one: so a node never has more than two in
//! `ZooKeeper`. A transaction with unknown outcome is tried again unchanged; it is never abandoned or
//! replaced.

use super::action::{Transaction, TransactionKind};
use crate::{envelope::Envelope, id::TaskId};

#[derive(Debug)]
enum State {
    None,
    /// The batch was requested for a commit that parks these tasks and may be the clean leave.
    Collecting {
        park: Vec<Envelope>,
        leave: bool,
    },
    InFlight(Transaction),
    Waiting {
        transaction: Transaction,
        until: u64,
    },
}

/// The transactions of one node in one attempt.
#[derive(Debug)]
pub(super) struct Accounting {
    state: State,
    next_txn: u64,
    settled: Option<u64>,
}

impl Accounting {
    pub(super) fn new(next_txn: u64) -> Self {
        Self { state: State::None, next_txn, settled: None }
    }

    /// Returns the number of the next transaction; numbers are never reused on a node.
    pub(super) fn next_txn(&self) -> u64 {
        self.next_txn
    }

    /// Returns whether another transaction can begin.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, State::None)
    }

    /// Begins a commit, for which the batch is to be taken now.
    pub(super) fn collect(&mut self) {
        self.collect_and_park(Vec::new(), false);
    }

    /// Begins a commit that parks tasks and, if `leave` is set, with which the node leaves.
    pub(super) fn collect_and_park(&mut self, park: Vec<Envelope>, leave: bool) {
        debug_assert!(self.is_free(), "one transaction at a time");
        self.state = State::Collecting { park, leave };
    }

    /// Returns the tasks that the current transaction parks.
    #[cfg(test)]
    pub(super) fn parks(&self) -> &[Envelope] {
        match &self.state {
            State::Collecting { park, .. } => park,
            State::InFlight(transaction) | State::Waiting { transaction, .. } => match &transaction.kind {
                TransactionKind::Commit { park, .. } => park,
                TransactionKind::Claim { .. } => &[],
            },
            State::None => &[],
        }
    }

    /// Returns the transaction for the batch that was taken, unless there is nothing to commit.
    pub(super) fn collected(&mut self, toggles: Vec<TaskId>, output: Vec<u8>) -> Option<Transaction> {
        let State::Collecting { park, leave } = std::mem::replace(&mut self.state, State::None) else {
            return None;
        };
        if toggles.is_empty() && park.is_empty() && !leave {
            return None;
        }
        Some(self.begin(TransactionKind::Commit { toggles, output, park, leave }))
    }

    /// Begins a claim.
    pub(super) fn claim(&mut self, task: TaskId, enrol: bool) -> Transaction {
        debug_assert!(self.is_free(), "one transaction at a time");
        self.begin(TransactionKind::Claim { task, enrol })
    }

    fn begin(&mut self, kind: TransactionKind) -> Transaction {
        let transaction = Transaction { txn: self.next_txn, settled: self.settled, kind };
        self.next_txn += 1;
        self.state = State::InFlight(transaction.clone());
        transaction
    }

    /// Notes that a transaction is written. Returns what it did, once.
    pub(super) fn written(&mut self, txn: u64) -> Option<TransactionKind> {
        let kind = self.end(txn)?;
        self.settled = Some(txn);
        Some(kind)
    }

    /// Notes that a claim came too late. It has left no txn id, so that of the previous transaction is still
    /// to be deleted. Returns what it was, once.
    pub(super) fn too_late(&mut self, txn: u64) -> Option<TransactionKind> {
        self.end(txn)
    }

    fn end(&mut self, txn: u64) -> Option<TransactionKind> {
        match std::mem::replace(&mut self.state, State::None) {
            State::InFlight(transaction) | State::Waiting { transaction, .. } if transaction.txn == txn => {
                Some(transaction.kind)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Notes that a try ended without an answer.
    pub(super) fn unknown(&mut self, txn: u64, until: u64) {
        self.state = match std::mem::replace(&mut self.state, State::None) {
            State::InFlight(transaction) if transaction.txn == txn => State::Waiting { transaction, until },
            other => other,
        };
    }

    /// Returns the transaction if it is due to be tried again.
    pub(super) fn retry(&mut self, now: u64) -> Option<Transaction> {
        match &self.state {
            State::Waiting { transaction, until } if now >= *until => {
                let transaction = transaction.clone();
                self.state = State::InFlight(transaction.clone());
                Some(transaction)
            }
            _ => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Waiting { until, .. } => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    #[test]
    fn an_unknown_outcome_is_tried_again_under_the_same_number() {
        let mut accounting = Accounting::new(3);
        accounting.collect();
        let first = accounting.collected(vec![TaskId::ROOT], vec![1]).unwrap();
        accounting.unknown(first.txn, 100);
        assert_eq!(accounting.retry(99), None);
        assert_eq!(accounting.retry(100), Some(first.clone()));
        assert_eq!(accounting.retry(100), None, "one try at a time");
        assert_eq!(accounting.written(first.txn), Some(first.kind));
    }

    #[test]
    fn the_next_transaction_clears_away_the_last_that_is_known_to_be_committed() {
        let mut accounting = Accounting::new(0);
        let claim = accounting.claim(TaskId::ROOT, false);
        assert_eq!((claim.txn, claim.settled), (0, None));
        accounting.written(0).unwrap();
        accounting.collect();
        let commit = accounting.collected(vec![TaskId::ROOT], vec![]).unwrap();
        assert_eq!((commit.txn, commit.settled), (1, Some(0)));
    }

    #[test]
    fn a_claim_that_came_too_late_leaves_the_txn_id_before_it_to_be_cleared_away() {
        let mut accounting = Accounting::new(0);
        accounting.claim(TaskId::ROOT, false);
        accounting.written(0).unwrap();
        accounting.claim(TaskId::ROOT, false);
        accounting.too_late(1).unwrap();
        assert_eq!(accounting.claim(TaskId::ROOT, false).settled, Some(0));
    }

    #[test]
    fn an_answer_that_comes_twice_counts_once() {
        let mut accounting = Accounting::new(0);
        accounting.claim(TaskId::ROOT, false);
        assert!(accounting.written(0).is_some());
        accounting.claim(TaskId::ROOT, false);
        assert!(accounting.written(0).is_none());
        assert!(!accounting.is_free());
    }

    #[test]
    fn an_empty_batch_is_not_committed_unless_to_leave() {
        let mut accounting = Accounting::new(0);
        accounting.collect();
        assert_eq!(accounting.collected(vec![], vec![]), None);
        accounting.collect_and_park(vec![], true);
        assert!(accounting.collected(vec![], vec![]).is_some());
    }
}

//! The coordination transactions of a node: one at a time, each with a number that stays the same at every
//! try.
//!
//! ```text
//!   None ──cut taken / something to claim──▶ InFlight ──written, or too late──▶ None
//!                                             │    ▲
//!                                          Unknown │ retry time
//!                                             ▼    │
//!                                            Waiting
//! ```
//!
//! One at a time, because each deletes the txn id of the previous one: so a node never has more than two in
//! `ZooKeeper`. A transaction with unknown outcome is retried unchanged; it is never abandoned or
//! replaced. Claims continue while a cut is being taken for a flush, which lasts until every running task has been
//! polled.

use super::{
    action::{Condemned, Flush, Transaction, TransactionKind},
    event::Cut,
    given::Gift,
};
use crate::{
    config::Limits,
    envelope::Envelope,
    holdings::{Holdings, Source, Suspect, Transit},
    toggles::Toggles,
};

#[derive(Debug)]
enum State {
    None,
    InFlight(Transaction),
    Waiting { transaction: Transaction, until: u64 },
}

/// A flush with a requested cut: the node's state outside the pool, as of that moment.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The transits that it makes this node's own.
    pub(super) take: Vec<Transit>,
    /// The grants that it writes, unless they have become void.
    pub(super) give: Vec<Gift>,
    /// Tasks of this node that are outside the pool.
    pub(super) beside: Vec<Envelope>,
    pub(super) park: Vec<Envelope>,
    pub(super) condemned: Vec<Condemned>,
    pub(super) suspect: Option<Suspect>,
    pub(super) leave: bool,
}

/// The transactions of one node in one attempt.
#[derive(Debug)]
pub(super) struct Accounting {
    state: State,
    next_txn: u64,
    settled: Option<u64>,
    drafted: Option<Draft>,
    /// A cut that waits for the end of a claim.
    cut: Option<Cut>,
    /// Ids of committed completions that are yet to be toggled: they do not fit into the current flush.
    owed: Toggles,
}

/// The maximum number of ids that one flush toggles, with the longest paths half of a request.
pub(super) const TOGGLES_MAX: usize = 1_000;

impl Accounting {
    pub(super) fn new(next_txn: u64) -> Self {
        let (drafted, cut, owed) = (None, None, Toggles::default());
        Self { state: State::None, next_txn, settled: None, drafted, cut, owed }
    }

    /// Returns the number of the next transaction; numbers are never reused on a node.
    pub(super) fn next_txn(&self) -> u64 {
        self.next_txn
    }

    /// Returns whether a claim can start.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, State::None) && self.cut.is_none()
    }

    /// Returns whether a flush has started and its cut was not sent.
    pub(super) fn drafts(&self) -> bool {
        self.drafted.is_some()
    }

    pub(super) fn can_flush(&self) -> bool {
        self.is_free() && self.drafted.is_none()
    }

    /// Returns whether a flush has started that is not known to be committed.
    pub(super) fn flushes(&self) -> bool {
        let under_way = match &self.state {
            State::InFlight(transaction) | State::Waiting { transaction, .. } => {
                matches!(transaction.kind, TransactionKind::Flush(_))
            }
            State::None => false,
        };
        under_way || self.drafted.is_some()
    }

    /// Returns whether ids of committed completions are yet to be toggled.
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Starts a flush, for which a cut must be taken now; `owed` are ids that come with the transits it absorbs.
    pub(super) fn draft(&mut self, draft: Draft, owed: Toggles) {
        debug_assert!(self.can_flush(), "one flush at a time");
        self.owed.merge(owed);
        self.drafted = Some(draft);
    }

    /// Returns whether the current flush absorbs this transit.
    pub(super) fn takes(&self, transit: Transit) -> bool {
        let drafted = self.drafted.iter().flat_map(|draft| &draft.take);
        let under_way = match &self.state {
            State::InFlight(transaction) | State::Waiting { transaction, .. } => match &transaction.kind {
                TransactionKind::Flush(flush) => flush.take.as_slice(),
                TransactionKind::Claim { .. } => &[],
            },
            State::None => &[],
        };
        drafted.chain(under_way).any(|taken| *taken == transit)
    }

    /// Returns the tasks that the current flush parks or will park.
    #[cfg(test)]
    pub(super) fn parks(&self) -> &[Envelope] {
        match (&self.drafted, &self.state) {
            (Some(draft), _) => &draft.park,
            (None, State::InFlight(transaction) | State::Waiting { transaction, .. }) => {
                match &transaction.kind {
                    TransactionKind::Flush(flush) => &flush.park,
                    TransactionKind::Claim { .. } => &[],
                }
            }
            (None, State::None) => &[],
        }
    }

    /// Stores the cut that was taken for the drafted flush.
    pub(super) fn cut(&mut self, cut: Cut) {
        if self.drafted.is_some() {
            self.cut = Some(cut);
        }
    }

    /// Returns the drafted flush and its cut, if it can be sent now.
    pub(super) fn ready(&mut self) -> Option<(Draft, Cut)> {
        if !matches!(self.state, State::None) || self.cut.is_none() {
            return None;
        }
        Some((self.drafted.take()?, self.cut.take()?))
    }

    /// Completes a flush and starts its transaction. `give` is the part of its grants that is not void; the tasks of
    /// the void ones are in `beside`. At most `batch_ids_max` ids are toggled with it. A node with holdings does not
    /// leave with it.
    pub(super) fn flush(&mut self, draft: Draft, cut: Cut, limits: &Limits) -> Transaction {
        let Draft { take, give, beside, park, condemned, suspect, leave } = draft;
        let Cut { mut tasks, unprotected, toggles, output, .. } = cut;
        self.owed.merge(toggles);
        for Condemned { task, .. } in &condemned {
            self.owed.add(&task.completed());
        }
        let toggles = self.owed.take(limits.batch_ids_max.min(TOGGLES_MAX));
        tasks.extend(beside);
        let bytes: usize = tasks.iter().map(Envelope::bytes).sum();
        let too_large = unprotected || bytes > limits.ledger_bytes();
        let mut held = if too_large { Holdings::unprotected() } else { Holdings::of(tasks) };
        held.owed = self.owed.clone();
        held.suspect = suspect;
        let leave = leave && held == Holdings::default();
        self.begin(TransactionKind::Flush(Box::new(Flush {
            toggles,
            output,
            held,
            give,
            take,
            park,
            condemned,
            leave,
        })))
    }

    pub(super) fn claim(&mut self, source: Source, enrol: bool) -> Transaction {
        debug_assert!(self.is_free(), "one transaction at a time");
        self.begin(TransactionKind::Claim { source, enrol })
    }

    fn begin(&mut self, kind: TransactionKind) -> Transaction {
        let transaction = Transaction { txn: self.next_txn, settled: self.settled, kind };
        self.next_txn += 1;
        self.state = State::InFlight(transaction.clone());
        transaction
    }

    /// Records that a transaction is written. Returns its effect, once.
    pub(super) fn written(&mut self, txn: u64) -> Option<TransactionKind> {
        let kind = self.end(txn)?;
        self.settled = Some(txn);
        Some(kind)
    }

    /// Records that a claim came too late. It has left no txn id, so that of the previous transaction is yet
    /// to be deleted. Returns the claim, once.
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

    /// Records that a try returned no answer.
    pub(super) fn unknown(&mut self, txn: u64, until: u64) {
        self.state = match std::mem::replace(&mut self.state, State::None) {
            State::InFlight(transaction) if transaction.txn == txn => State::Waiting { transaction, until },
            other => other,
        };
    }

    /// Returns the transaction if its retry is due.
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
    use crate::id::{NodeId, TaskId};

    const ROOT: Source = Source::Parked(TaskId::ROOT);

    fn task(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    fn limits(batch_ids_max: usize) -> Limits {
        Limits { batch_ids_max, ..Limits::default() }
    }

    fn flush(accounting: &mut Accounting, completed: &[u64], toggles_max: usize) -> Transaction {
        accounting.draft(Draft::default(), Toggles::default());
        let mut cut = Cut::default();
        for &number in completed {
            cut.toggles.complete(task(number), &[]);
        }
        accounting.cut(cut);
        let (draft, cut) = accounting.ready().unwrap();
        accounting.flush(draft, cut, &limits(toggles_max))
    }

    fn flushed(transaction: &Transaction) -> &Flush {
        match &transaction.kind {
            TransactionKind::Flush(flush) => flush,
            claim @ TransactionKind::Claim { .. } => panic!("no flush: {claim:?}"),
        }
    }

    #[test]
    fn transaction_with_unknown_outcome_is_retried_under_its_number() {
        let mut accounting = Accounting::new(3);
        let first = flush(&mut accounting, &[1], 9);
        accounting.unknown(first.txn, 100);
        assert_eq!(accounting.retry(99), None);
        assert_eq!(accounting.retry(100), Some(first.clone()));
        assert_eq!(accounting.retry(100), None, "one try at a time");
        assert_eq!(accounting.written(first.txn), Some(first.kind));
    }

    #[test]
    fn next_transaction_deletes_the_txn_id_of_the_committed_one() {
        let mut accounting = Accounting::new(0);
        let claim = accounting.claim(ROOT, false);
        assert_eq!((claim.txn, claim.settled), (0, None));
        accounting.written(0).unwrap();
        let commit = flush(&mut accounting, &[0], 9);
        assert_eq!((commit.txn, commit.settled), (1, Some(0)));
    }

    #[test]
    fn late_claim_leaves_the_previous_txn_id_to_delete() {
        let mut accounting = Accounting::new(0);
        accounting.claim(ROOT, false);
        accounting.written(0).unwrap();
        accounting.claim(ROOT, false);
        accounting.too_late(1).unwrap();
        assert_eq!(accounting.claim(ROOT, false).settled, Some(0));
    }

    #[test]
    fn repeated_answer_counts_once() {
        let mut accounting = Accounting::new(0);
        accounting.claim(ROOT, false);
        assert!(accounting.written(0).is_some());
        accounting.claim(ROOT, false);
        assert!(accounting.written(0).is_none());
        assert!(!accounting.is_free());
    }

    #[test]
    fn claim_does_not_wait_for_a_cut_and_the_flush_waits_for_the_claim() {
        let mut accounting = Accounting::new(0);
        accounting.draft(Draft::default(), Toggles::default());
        let claim = accounting.claim(ROOT, false);
        accounting.cut(Cut::default());
        assert!(accounting.ready().is_none());
        accounting.written(claim.txn).unwrap();
        assert!(!accounting.is_free(), "the flush is next");
        assert!(accounting.ready().is_some());
    }

    #[test]
    fn surplus_ids_are_owed_and_delay_the_leave() {
        let mut accounting = Accounting::new(0);
        accounting.draft(Draft { leave: true, ..Draft::default() }, Toggles::default());
        let mut cut = Cut::default();
        (0..3).for_each(|number| cut.toggles.complete(task(number), &[]));
        accounting.cut(cut);
        let (draft, cut) = accounting.ready().unwrap();
        let first = accounting.flush(draft, cut, &limits(2));
        let Flush { toggles, held, leave, .. } = flushed(&first);
        assert_eq!((toggles.len(), held.owed.len(), *leave), (2, 1, false));
        accounting.written(first.txn);
        assert!(accounting.owes());
        let second = flush(&mut accounting, &[], 2);
        assert_eq!(flushed(&second).toggles, [task(2)]);
        assert!(!accounting.owes());
    }
}

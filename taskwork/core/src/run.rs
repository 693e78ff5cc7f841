//! The state of a node's work on one attempt. Its steps are in [`stealing`](super::stealing),
//! [`leaving`](super::leaving) and [`node`](super::node).

use std::{collections::BTreeSet, time::Duration};

use super::{
    accounting::Accounting,
    bases::Bases,
    given::Given,
    ledger::LedgerState,
    orphans::{LOOK_START_MS, Looks},
    pace::Pace,
    receipts::{Granted, Receipts},
    thief::Thief,
    trials::Trials,
    victim::Victim,
};
use crate::{
    config::Limits,
    holdings::Transit,
    id::{Attempt, NodeId},
};

/// A node's part in one attempt.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) attempt: Attempt,
    pub(super) thief: Thief,
    pub(super) victim: Victim,
    pub(super) receipts: Receipts,
    pub(super) given: Given,
    pub(super) bases: Bases,
    pub(super) accounting: Accounting,
    pub(super) trials: Trials,
    pub(super) enrolment: Enrolment,
    /// The members that have sent a message about this attempt, so that they work on it: other members may have another
    /// job first.
    pub(super) heard_of: BTreeSet<NodeId>,
    /// Grants received before this node was enrolled: neither taken nor answered yet.
    pub(super) held_back: Vec<Granted>,
    /// The time from which they are refused: while ZooKeeper is unavailable, another node can run the tasks that this
    /// one cannot start.
    pub(super) held_back_until: u64,
    /// Written grants that were refused.
    pub(super) reclaim: Vec<Transit>,
    /// The time at which the last flush started.
    pub(super) flushed_at: u64,
    /// The rate limit of awaited flushes.
    pub(super) pace: Pace,
    /// The time before which no flush starts that can wait.
    pub(super) flush_after: u64,
    /// The time before which no flush starts that is not awaited, because the last one was large.
    pub(super) written_after: u64,
    pub(super) is_first_flush: bool,
    /// Whether a thief only waits for a flush.
    pub(super) pressed: bool,
    /// Whether the last cut was empty.
    pub(super) held_nothing: bool,
    /// The size of the tasks in the last cut, in bytes.
    pub(super) cut_bytes: u64,
    pub(super) ledger: LedgerState,
    pub(super) looks: Looks,
    /// The time of the next look for orphans, unless an event causes one earlier.
    pub(super) look_at: u64,
    pub(super) look_pause_ms: u64,
    /// The time of the last steal request, on the node's clock.
    pub(super) asked_at: Duration,
}

/// Numbers that are never reused in the life of a node, in any attempt.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) request: u64,
    pub(super) grant: u64,
    pub(super) txn: u64,
    pub(super) basis: u64,
}

/// Whether this node is enrolled in the attempt. It enrols when it gets work: before that it holds nothing, and
/// can leave at any time. So a small job involves only a few of many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enrolment {
    /// It is not enrolled.
    Open,
    /// Enrolment was requested.
    Asked,
    /// It is enrolled.
    Done,
}

impl Run {
    pub(super) fn new(now: u64, attempt: Attempt, numbers: Numbers) -> Self {
        Self {
            attempt,
            thief: Thief::new(numbers.request),
            victim: Victim::new(numbers.grant),
            receipts: Receipts::default(),
            given: Given::default(),
            bases: Bases::new(numbers.basis),
            accounting: Accounting::new(numbers.txn),
            trials: Trials::default(),
            enrolment: Enrolment::Open,
            heard_of: BTreeSet::new(),
            held_back: Vec::new(),
            held_back_until: 0,
            reclaim: Vec::new(),
            flushed_at: now,
            pace: Pace::default(),
            flush_after: 0,
            written_after: 0,
            is_first_flush: true,
            pressed: false,
            held_nothing: true,
            cut_bytes: 0,
            ledger: LedgerState::begin(now),
            looks: Looks::default(),
            look_at: now + LOOK_START_MS,
            look_pause_ms: 0,
            asked_at: Duration::ZERO,
        }
    }

    /// Returns the next unused numbers.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            request: self.thief.next_request(),
            grant: self.victim.next_grant(),
            txn: self.accounting.next_txn(),
            basis: self.bases.next(),
        }
    }

    pub(super) fn deadlines(&self, limits: &Limits) -> impl Iterator<Item = u64> {
        let asking = self.thief.deadline().into_iter().chain(self.thief.commits_at(limits));
        let held_back = (!self.held_back.is_empty()).then_some(self.held_back_until);
        let steals = asking.chain(self.victim.deadlines()).chain(held_back);
        steals.chain(self.accounting.deadline()).chain(self.bases.deadlines())
    }
}

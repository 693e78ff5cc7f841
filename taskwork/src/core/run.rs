//! What a node keeps while it is at work on one attempt. What is done with it is in
//! [`stealing`](super::stealing), [`leaving`](super::leaving) and [`node`](super::node).

use std::time::Duration;

use super::{
    accounting::Accounting,
    receipts::{Granted, Receipts},
    thief::Thief,
    victim::Victim,
};
use crate::{config::Limits, id::Attempt};

/// A node's part in one attempt.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) attempt: Attempt,
    pub(super) thief: Thief,
    pub(super) victim: Victim,
    pub(super) receipts: Receipts,
    pub(super) accounting: Accounting,
    pub(super) enrolment: Enrolment,
    /// Grants that came before this node was enrolled: neither taken nor answered yet.
    pub(super) held_back: Vec<Granted>,
    /// From then on they are refused: while ZooKeeper is away somebody else can do what this node cannot
    /// begin.
    pub(super) held_back_until: u64,
    /// When tasks were last asked for, on the node's clock.
    pub(super) asked_at: Duration,
}

/// Numbers that are never given twice in the life of a node, whatever attempts it goes through.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) request: u64,
    pub(super) grant: u64,
    pub(super) txn: u64,
}

/// Whether this node is written into the attempt. That is done when there is work for it: without, it holds
/// nothing, and can go at any time. A small job on many nodes so is the matter of a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enrolment {
    /// It is not.
    Open,
    /// It was asked for.
    Asked,
    /// It is.
    Done,
}

impl Run {
    /// A part in an attempt in which nothing was done yet.
    pub(super) fn new(attempt: Attempt, numbers: Numbers) -> Self {
        Self {
            attempt,
            thief: Thief::new(numbers.request),
            victim: Victim::new(numbers.grant),
            receipts: Receipts::default(),
            accounting: Accounting::new(numbers.txn),
            enrolment: Enrolment::Open,
            held_back: Vec::new(),
            held_back_until: 0,
            asked_at: Duration::ZERO,
        }
    }

    /// The numbers that are to be given next.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            request: self.thief.next_request(),
            grant: self.victim.next_grant(),
            txn: self.accounting.next_txn(),
        }
    }

    /// The times at which something is due.
    pub(super) fn deadlines(&self, limits: &Limits) -> impl Iterator<Item = u64> {
        let asking = self.thief.deadline().into_iter().chain(self.thief.commits_at(limits));
        let held_back = (!self.held_back.is_empty()).then_some(self.held_back_until);
        asking.chain(self.victim.deadlines()).chain(self.accounting.deadline()).chain(held_back)
    }
}

//! The znodes of a job: a partition of its work.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[derive(Debug)]
pub(super) struct Znodes {
    pub(super) members: BTreeSet<NodeId>,
    pub(super) list: BTreeSet<Mark>,
    pub(super) parked: BTreeMap<TaskId, Envelope>,
    pub(super) set_aside: BTreeMap<TaskId, Envelope>,
    pub(super) held: BTreeMap<NodeId, Holdings>,
    pub(super) transit: BTreeMap<Transit, Holdings>,
    /// The answer to each transaction, by its node and number.
    pub(super) txns: BTreeMap<(NodeId, u64), TransactionResult>,
    pub(super) outputs: BTreeMap<NodeId, u64>,
    pub(super) left: BTreeSet<NodeId>,
}

impl Znodes {
    pub(super) fn apply(&mut self, node: NodeId, transaction: &Transaction) -> TransactionResult {
        let key = (node, transaction.txn);
        if let Some(result) = self.txns.get(&key) {
            return result.clone();
        }
        if !self.members.contains(&node) {
            return TransactionResult::NotMember;
        }
        let result = match &transaction.kind {
            TransactionKind::Claim { source, enrol } => {
                let Some(mut claimed) = self.claim(node, *source) else { return TransactionResult::TooLate };
                if source.lost_at(node).is_some() {
                    claimed.count_loss(CRASHES_MAX);
                }
                assert!(*enrol || self.held.contains_key(&node), "{node} claims without taking part");
                self.enrol(node);
                self.transit.insert(Transit::claim(node, transaction.txn), claimed.clone());
                TransactionResult::Claimed(claimed)
            }
            TransactionKind::Flush(flush) => {
                self.flush(node, flush);
                TransactionResult::Committed
            }
        };
        if let Some(settled) = transaction.settled {
            self.txns.remove(&(node, settled));
        }
        self.txns.insert(key, result.clone());
        result
    }

    pub(super) fn enrol(&mut self, node: NodeId) {
        self.outputs.entry(node).or_default();
        self.held.entry(node).or_default();
    }

    pub(super) fn claim(&mut self, node: NodeId, source: Source) -> Option<Holdings> {
        let gone = match source {
            Source::Parked(_) | Source::Returned(_) => None,
            Source::Held(holder) => Some(holder),
            Source::Transit(Transit { from, to, .. }) => Some(if to == node { from } else { to }),
        };
        if gone.is_some_and(|gone| self.members.contains(&gone)) {
            return None;
        }
        match source {
            Source::Parked(task) => self.parked.remove(&task).map(|task| Holdings::of(vec![task])),
            Source::Held(holder) => self.held.remove(&holder),
            Source::Transit(transit) | Source::Returned(transit) => self.transit.remove(&transit),
        }
    }

    pub(super) fn flush(&mut self, node: NodeId, flush: &Flush) {
        let Flush { toggles, output, held, give, take, park, condemned, leave } = flush;
        for task in &held.tasks {
            let is_named = held.suspect.as_ref().is_some_and(|suspect| suspect.task == task.id);
            assert!(task.crashes < CRASHES_MAX, "{} should be set aside, {is_named}", task.id);
        }
        for Condemned { task, .. } in condemned {
            assert!(task.crashes >= CRASHES_MAX, "{} is set aside too early", task.id);
            assert!(self.set_aside.insert(task.id, task.clone()).is_none(), "{} is set aside twice", task.id);
        }
        assert!(!self.list.is_empty() || toggles.is_empty(), "a task was committed after the end");
        assert!(park.len() <= PARK_TASKS_MAX, "{} tasks are parked by one transaction", park.len());
        for &id in toggles {
            if !self.list.remove(&id) {
                self.list.insert(id);
            }
        }
        self.outputs.insert(node, u64::from_le_bytes(output.as_slice().try_into().unwrap()));
        assert!(self.held.insert(node, held.clone()).is_some(), "{node} holds tasks without taking part");
        for transit in take {
            assert!(self.transit.remove(transit).is_some(), "{transit} is taken and is not there");
        }
        for Gift { grant, to, tasks } in give {
            let transit = Transit::grant(node, *grant, *to);
            let before = self.transit.insert(transit, Holdings::of(tasks.clone()));
            assert!(before.is_none(), "{transit} is given twice");
        }
        self.parked.extend(park.iter().map(|envelope| (envelope.id, envelope.clone())));
        if *leave {
            assert_eq!(self.held.remove(&node), Some(Holdings::default()), "{node} leaves with tasks");
            self.members.remove(&node);
            self.left.insert(node);
        }
    }

    /// Checks that the znodes are a partition of the work (I10), and that the list is not empty before
    /// the end.
    pub(super) fn check(&self) {
        let holdings = self.held.values().chain(self.transit.values());
        let tasks = holdings.flat_map(|holdings| &holdings.tasks).chain(self.parked.values());
        let tasks = tasks.chain(self.set_aside.values());
        let mut ids = BTreeSet::new();
        let mut durable: u64 = self.outputs.values().sum();
        for task in tasks {
            assert!(ids.insert(task.id), "{} is there twice", task.id);
            let (left, done) = units(task);
            durable += left + done;
        }
        assert_eq!(durable, UNITS, "I10: {self:#?}");
        if self.list.is_empty() {
            let done: u64 = self.outputs.values().sum();
            let given_up = |task: &Envelope| {
                let (left, done) = units(task);
                left + done
            };
            let set_aside: u64 = self.set_aside.values().map(given_up).sum();
            assert_eq!(done + set_aside, UNITS, "the list is empty, but not all is done");
        }
    }
}

//! The victim's side of the ledger: tasks that this node has given away and not written to `transit/` yet.
//!
//! ```text
//!   granted ──▶ unwritten ──flush begun──▶ writing ──committed──▶ confirmed to the thief, and forgotten
//!                   │
//!                   └── void: the thief is gone or has refused it (the tasks come back), or the basis of the
//!                       tasks is void (they are dropped)
//! ```
//!
//! While a grant is unwritten, its tasks are among this node's holdings, and this node alone decides about them.
//! Once a flush with them has started, `ZooKeeper` decides: tasks that a thief has refused are then claimed back,
//! and those of a thief that is gone are claimed by any node.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    envelope::Envelope,
    holdings::{Basis, Transit},
    id::NodeId,
};

/// The maximum number of grants that one flush writes; the tasks of further ones remain among the holdings.
const WRITTEN_MAX: usize = 128;
/// The maximum number of unwritten grants.
const UNWRITTEN_MAX: usize = 65_536;

#[derive(Debug)]
struct Unwritten {
    to: NodeId,
    tasks: Vec<Envelope>,
    basis: Basis,
    since: u64,
    writing: bool,
    /// Whether the thief has refused it while it was being written.
    refused: bool,
}

/// A grant that a flush writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gift {
    pub grant: u64,
    pub to: NodeId,
    pub tasks: Vec<Envelope>,
}

/// The unwritten grants of one node in one attempt.
#[derive(Debug, Default)]
pub(super) struct Given {
    unwritten: BTreeMap<u64, Unwritten>,
    bytes: usize,
    /// Void grants by thief, because the thieves may still ask about them.
    void: BTreeMap<NodeId, BTreeSet<u64>>,
}

/// The outcome of a refused grant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Its tasks come back, on this basis.
    Back(Basis),
    /// It is being written: it can be claimed back later.
    Later,
    /// It is written: it can be claimed back.
    Claim(Transit),
}

/// The answer to a thief's question.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) confirmed: Vec<u64>,
    pub(super) void: Vec<u64>,
    /// The bases of the grants that are not written.
    pub(super) unwritten: BTreeSet<Basis>,
}

/// The effects of a committed flush on grants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// The grants to confirm to their thieves.
    pub(super) confirmed: BTreeMap<NodeId, Vec<u64>>,
    /// Transits of tasks that were refused during the write.
    pub(super) refused: Vec<Transit>,
}

impl Given {
    /// Records a grant of tasks with a common basis.
    pub(super) fn give(&mut self, now: u64, grant: u64, to: NodeId, tasks: Vec<Envelope>, basis: Basis) {
        self.bytes += bytes(&tasks);
        let given = Unwritten { to, tasks, basis, since: now, writing: false, refused: false };
        self.unwritten.insert(grant, given);
    }

    pub(super) fn has_room(&self, bytes_max: usize) -> bool {
        self.unwritten.len() < UNWRITTEN_MAX && self.bytes < bytes_max
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Returns the time of the oldest grant that can be written.
    pub(super) fn writable_since(&self, is_firm: impl Fn(Basis) -> bool) -> Option<u64> {
        let writable = |given: &&Unwritten| !given.writing && is_firm(given.basis);
        self.unwritten.values().filter(writable).map(|given| given.since).min()
    }

    /// Returns the grants for the next flush to write, and the tasks of the grants that it leaves out although
    /// they could be written.
    pub(super) fn select(&self, is_firm: impl Fn(Basis) -> bool) -> (Vec<Gift>, Vec<Envelope>) {
        let writable = |(_, given): &(&u64, &Unwritten)| !given.writing && is_firm(given.basis);
        let mut gifts: Vec<Gift> = Vec::new();
        let mut left_out = Vec::new();
        for (&grant, Unwritten { to, tasks, .. }) in self.unwritten.iter().filter(writable) {
            if gifts.len() < WRITTEN_MAX {
                gifts.push(Gift { grant, to: *to, tasks: tasks.clone() });
            } else {
                left_out.extend(tasks.iter().cloned());
            }
        }
        (gifts, left_out)
    }

    /// Starts to write a grant. Returns false if it has become void.
    #[must_use]
    pub(super) fn begin(&mut self, grant: u64) -> bool {
        let given = self.unwritten.get_mut(&grant);
        given.is_some_and(|given| !std::mem::replace(&mut given.writing, true))
    }

    pub(super) fn written(&mut self, me: NodeId, gifts: &[Gift]) -> Written {
        let mut written = Written::default();
        for Gift { grant, .. } in gifts {
            let Some(given) = self.remove(*grant) else { continue };
            if given.refused {
                written.refused.push(Transit::grant(me, *grant, given.to));
            } else {
                written.confirmed.entry(given.to).or_default().push(*grant);
            }
        }
        written
    }

    fn remove(&mut self, grant: u64) -> Option<Unwritten> {
        let given = self.unwritten.remove(&grant)?;
        self.bytes -= bytes(&given.tasks);
        Some(given)
    }

    /// Records that an open grant was refused.
    pub(super) fn refused(&mut self, me: NodeId, thief: NodeId, grant: u64) -> Refused {
        match self.unwritten.get_mut(&grant) {
            Some(given) if given.writing => {
                given.refused = true;
                Refused::Later
            }
            Some(_) => Refused::Back(self.remove(grant).map_or(Basis::FIRM, |given| given.basis)),
            None => Refused::Claim(Transit::grant(me, grant, thief)),
        }
    }

    /// Declares the unwritten grants to a node void, because it is gone. Returns their tasks with their bases.
    pub(super) fn left(&mut self, node: NodeId) -> Vec<(Basis, Vec<Envelope>)> {
        let void = self.declare_void(|given| given.to == node);
        void.into_iter().map(|(_, given)| (given.basis, given.tasks)).collect()
    }

    /// Declares the grants with a void basis void: the tasks never were this node's. Returns them by thief.
    pub(super) fn dropped(&mut self, bases: &[Basis]) -> BTreeMap<NodeId, Vec<u64>> {
        let mut thieves: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
        for (grant, given) in self.declare_void(|given| bases.contains(&given.basis)) {
            thieves.entry(given.to).or_default().push(grant);
        }
        thieves
    }

    fn declare_void(&mut self, which: impl Fn(&Unwritten) -> bool) -> Vec<(u64, Unwritten)> {
        let void = |(_, given): &(&u64, &Unwritten)| !given.writing && which(given);
        let grants: Vec<u64> = self.unwritten.iter().filter(void).map(|(&grant, _)| grant).collect();
        let mut declared = Vec::new();
        for grant in grants {
            if let Some(given) = self.remove(grant) {
                self.void.entry(given.to).or_default().insert(grant);
                declared.push((grant, given));
            }
        }
        declared
    }

    /// Answers a thief. Grants that are neither unwritten nor void were written.
    pub(super) fn answer(&self, thief: NodeId, grants: &[u64]) -> Answer {
        let mut answer = Answer::default();
        for &grant in grants {
            if self.void.get(&thief).is_some_and(|void| void.contains(&grant)) {
                answer.void.push(grant);
            } else if let Some(given) = self.unwritten.get(&grant) {
                answer.unwritten.insert(given.basis);
            } else {
                answer.confirmed.push(grant);
            }
        }
        answer
    }

    /// Forgets the void grants of nodes that are permanently gone.
    pub(super) fn gone(&mut self, is_gone: impl Fn(NodeId) -> bool) {
        self.void.retain(|&thief, _| !is_gone(thief));
    }
}

fn bytes(tasks: &[Envelope]) -> usize {
    tasks.iter().map(Envelope::bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    const ME: NodeId = NodeId(1);
    const THIEF: NodeId = NodeId(2);
    const TENTATIVE: Basis = Basis(7);

    fn task(number: u64) -> Envelope {
        let (output, task) = (Vec::new().into(), Vec::new().into());
        Envelope::new(TaskId { node: ME, number }, output, task)
    }

    fn given(grants: u64) -> Given {
        let mut given = Given::default();
        (0..grants).for_each(|grant| given.give(0, grant, THIEF, vec![task(grant)], Basis::FIRM));
        given
    }

    fn is_firm(basis: Basis) -> bool {
        basis == Basis::FIRM
    }

    #[test]
    fn grant_is_confirmed_once_written() {
        let mut given = given(2);
        let (gifts, left_out) = given.select(is_firm);
        assert_eq!((gifts.len(), left_out.len()), (2, 0));
        assert_eq!(given.answer(THIEF, &[0]).unwritten.len(), 1);
        assert!(gifts.iter().all(|gift| given.begin(gift.grant)));
        assert_eq!(given.select(is_firm).0, [], "once");
        assert_eq!(given.written(ME, &gifts).confirmed, [(THIEF, vec![0, 1])].into());
        assert_eq!(given.answer(THIEF, &[0, 1]).confirmed, [0, 1]);
        assert_eq!((given.is_empty(), given.bytes), (true, 0));
    }

    #[test]
    fn grant_on_a_tentative_basis_waits_for_it_and_is_dropped_with_it() {
        let mut given = Given::default();
        given.give(0, 0, THIEF, vec![task(0)], TENTATIVE);
        assert_eq!((given.select(is_firm).0.len(), given.writable_since(is_firm)), (0, None));
        assert_eq!(given.dropped(&[TENTATIVE]), [(THIEF, vec![0])].into());
        assert_eq!(given.answer(THIEF, &[0]).void, [0]);
        given.gone(|node| node == THIEF);
        assert!(given.void.is_empty());
    }

    #[test]
    fn refused_grant_during_its_write_does_not_come_back() {
        let mut given = given(4);
        let gifts = given.select(is_firm).0;
        assert!(given.begin(0) && given.begin(1) && given.begin(2));
        assert_eq!(given.refused(ME, THIEF, 0), Refused::Later);
        assert_eq!(given.refused(ME, THIEF, 3), Refused::Back(Basis::FIRM));
        assert_eq!(given.left(THIEF), []);
        let written = given.written(ME, &gifts[..3]);
        assert_eq!(written.confirmed, [(THIEF, vec![1, 2])].into());
        assert_eq!(written.refused, [Transit::grant(ME, 0, THIEF)]);
        assert_eq!(given.refused(ME, THIEF, 1), Refused::Claim(Transit::grant(ME, 1, THIEF)));
    }

    #[test]
    fn unwritten_grant_to_a_departed_node_comes_back() {
        let mut given = given(1);
        assert_eq!(given.left(THIEF), [(Basis::FIRM, vec![task(0)])]);
        assert!(!given.begin(0), "they are no longer given");
        assert_eq!(given.answer(THIEF, &[0]).void, [0], "if it was not gone after all");
    }

    #[test]
    fn grants_beyond_the_limit_of_a_flush_remain_holdings() {
        let (gifts, left_out) = given(130).select(is_firm);
        assert_eq!((gifts.len(), left_out.len()), (128, 2));
    }
}

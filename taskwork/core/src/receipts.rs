//! The grants that this node has received: each is decided once, and the decision never changes.
//!
//! A grant may arrive many times. The first time it is accepted or refused; later the same answer is
//! repeated. The memory is bounded, because every grant and every `Settled` contains a number below which all
//! grants are settled: those are ignored without being remembered.

use std::collections::{BTreeMap, BTreeSet};

use super::message::Message;
use crate::{envelope::Envelope, id::NodeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Accepted,
    Refused,
}

#[derive(Debug, Default)]
struct Book {
    /// All grants with lower numbers are settled.
    below: u64,
    /// Decisions that the victim may not have received.
    open: BTreeMap<u64, Decision>,
    /// Settled grants that are not below the limit.
    settled: BTreeMap<u64, Decision>,
    /// All grants that were refused. A node refuses few: it is about to leave, or cannot enrol.
    refused: BTreeSet<u64>,
}

/// A received grant and its sender.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) from: NodeId,
    pub(super) grant: u64,
    pub(super) request: Option<u64>,
    pub(super) settled_below: u64,
    pub(super) tasks: Vec<Envelope>,
}

impl Granted {
    /// Returns the encoded size of its tasks, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.tasks.iter().map(Envelope::bytes).sum()
    }
}

/// The receipts of one node in one attempt.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    books: BTreeMap<NodeId, Book>,
}

/// The reaction to a grant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// Take the tasks, and answer.
    Take(Message),
    /// Answer, and ignore the tasks.
    Answer(Message),
    /// Do not answer: the grant was settled long ago, or too many are remembered already.
    Pass,
}

impl Receipts {
    /// Handles a grant. `accepting` is the decision if it is new.
    pub(super) fn receive(
        &mut self,
        victim: NodeId,
        grant: u64,
        settled_below: u64,
        accepting: bool,
        open_max: usize,
    ) -> Receipt {
        let book = self.books.entry(victim).or_default();
        book.settle_below(settled_below);
        let known = book.open.get(&grant).or_else(|| book.settled.get(&grant));
        match known {
            _ if grant < book.below => Receipt::Pass,
            // Also if it was only claimed, and the claim came too late.
            None if book.refused.contains(&grant) => Receipt::Answer(Message::Refuse { grant }),
            Some(Decision::Accepted) => Receipt::Answer(Message::Ack { grant }),
            Some(Decision::Refused) => Receipt::Answer(Message::Refuse { grant }),
            None if book.open.len() + book.settled.len() >= open_max => Receipt::Pass,
            None if accepting => {
                book.open.insert(grant, Decision::Accepted);
                Receipt::Take(Message::Ack { grant })
            }
            None => {
                book.open.insert(grant, Decision::Refused);
                book.refused.insert(grant);
                Receipt::Answer(Message::Refuse { grant })
            }
        }
    }

    /// Records that the victim has received the decision.
    pub(super) fn settled(&mut self, victim: NodeId, grant: u64, settled_below: u64) {
        if let Some(book) = self.books.get_mut(&victim) {
            if let Some(decision) = book.open.remove(&grant) {
                book.settled.insert(grant, decision);
            }
            book.settle_below(settled_below);
        }
    }

    /// Forgets a member that has left cleanly, after receiving all decisions.
    pub(super) fn left_cleanly(&mut self, node: NodeId) {
        self.books.remove(&node);
    }

    /// Forgets the members that are permanently gone. (Not those that only seem to be gone: if one comes back,
    /// no grant of it may be taken twice.)
    pub(super) fn gone(&mut self, is_gone: impl Fn(NodeId) -> bool) {
        self.books.retain(|&victim, _| !is_gone(victim));
    }

    /// Decides against a grant that never arrived, because its tasks are claimed from `transit/`: if it arrives late,
    /// it is refused.
    pub(super) fn disown(&mut self, victim: NodeId, grant: u64) {
        self.books.entry(victim).or_default().refused.insert(grant);
    }

    /// Returns whether tasks in `transit/` to this node are not its own: the grant never arrived, or
    /// was refused.
    pub(super) fn never_took(&self, victim: NodeId, grant: u64) -> bool {
        self.books.get(&victim).is_none_or(|book| {
            let known = book.open.contains_key(&grant) || book.settled.contains_key(&grant);
            book.refused.contains(&grant) || (grant >= book.below && !known)
        })
    }

    /// Returns the acknowledgements that may not have arrived. While there are any, this node must not leave
    /// cleanly: the victim would take the tasks back.
    pub(super) fn unheard(&self) -> impl Iterator<Item = (NodeId, Message)> {
        self.books.iter().flat_map(|(&victim, book)| {
            let accepted = book.open.iter().filter(|&(_, &decision)| decision == Decision::Accepted);
            accepted.map(move |(&grant, _)| (victim, Message::Ack { grant }))
        })
    }
}

impl Book {
    fn settle_below(&mut self, mark: u64) {
        if mark > self.below {
            self.below = mark;
            self.open = self.open.split_off(&mark);
            self.settled = self.settled.split_off(&mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VICTIM: NodeId = NodeId(1);

    #[test]
    fn repeated_grant_is_acknowledged_and_not_taken_again() {
        let mut receipts = Receipts::default();
        assert_eq!(receipts.receive(VICTIM, 5, 0, true, 9), Receipt::Take(Message::Ack { grant: 5 }));
        assert_eq!(receipts.receive(VICTIM, 5, 0, true, 9), Receipt::Answer(Message::Ack { grant: 5 }));
        receipts.settled(VICTIM, 5, 5);
        assert_eq!(receipts.receive(VICTIM, 5, 0, true, 9), Receipt::Answer(Message::Ack { grant: 5 }));
        receipts.settled(VICTIM, 5, 6);
        assert_eq!(receipts.receive(VICTIM, 5, 0, true, 9), Receipt::Pass);
        assert_eq!(receipts.unheard().count(), 0);
    }

    #[test]
    fn refusal_of_a_grant_is_final() {
        let mut receipts = Receipts::default();
        assert_eq!(receipts.receive(VICTIM, 5, 0, false, 9), Receipt::Answer(Message::Refuse { grant: 5 }));
        assert_eq!(receipts.receive(VICTIM, 5, 0, true, 9), Receipt::Answer(Message::Refuse { grant: 5 }));
    }

    #[test]
    fn disowned_grant_that_arrives_late_is_refused() {
        let mut receipts = Receipts::default();
        receipts.disown(VICTIM, 5);
        for _ in 0..2 {
            let refused = Receipt::Answer(Message::Refuse { grant: 5 });
            assert_eq!(receipts.receive(VICTIM, 5, 0, true, 9), refused, "the victim may be there still");
        }
    }

    #[test]
    fn receipts_are_bounded() {
        let mut receipts = Receipts::default();
        for grant in 0..9 {
            assert!(matches!(receipts.receive(VICTIM, grant, 0, true, 9), Receipt::Take(_)));
        }
        assert_eq!(receipts.receive(VICTIM, 9, 0, true, 9), Receipt::Pass);
        assert!(matches!(receipts.receive(VICTIM, 9, 9, true, 9), Receipt::Take(_)));
    }

    #[test]
    fn receipts_of_departed_victims_are_forgotten() {
        let mut receipts = Receipts::default();
        for node in (0..1_000).map(NodeId) {
            assert!(matches!(receipts.receive(node, 5, 0, true, 9), Receipt::Take(_)));
            assert_eq!(receipts.receive(node, 6, 0, false, 9), Receipt::Answer(Message::Refuse { grant: 6 }));
            receipts.settled(node, 5, 5);
            receipts.left_cleanly(node);
        }
        assert!(receipts.books.is_empty(), "{} books", receipts.books.len());
    }
}

//! Decides which messages are also sent through ZooKeeper: those that decide about tasks, to a node that the
//! network does not reach.
//!
//! A grant in transit when the network between two nodes fails for good belongs to neither until one has
//! heard from the other. Either both reach ZooKeeper, and communicate there, or one of them soon ceases to be
//! a member. The protocol is unaware of this: to it a letter is a late message.

use std::collections::BTreeMap;

use super::transport::Subject;
use crate::{core::Message, id::NodeId};

/// The time for which a node must be out of reach, or a grant unanswered, before it is sent letters, in
/// milliseconds.
const OUT_OF_REACH_MS: u64 = 2_000;
/// The time after which a letter is repeated, in milliseconds.
const AGAIN_MS: u64 = 2_000;
/// The bytes that add one millisecond to this time, so that a large letter is not repeated while it may still
/// be in transit.
const BYTES_PER_MS: u64 = 1 << 10;
/// The maximum number of letters that are remembered.
const WRITTEN_MAX: usize = 1024;

/// A node's knowledge about the ways to the others.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// The times from which nodes have been out of reach.
    unreached: BTreeMap<NodeId, u64>,
    /// The times at which grants were first sent, by thief and grant.
    granted: BTreeMap<(NodeId, u64), u64>,
    /// The times at which letters about grants were last written, by addressee, grant and kind of message.
    written: BTreeMap<(NodeId, u64, u8), u64>,
}

impl Mail {
    /// Records that a message could not be sent to a node.
    pub(crate) fn unreachable(&mut self, node: NodeId, now: u64) {
        self.unreached.entry(node).or_insert(now);
    }

    /// Records that a message has come from a node over the network.
    pub(crate) fn heard_of(&mut self, node: NodeId) {
        self.unreached.remove(&node);
    }

    /// Records that a letter has come from a node: it cannot reach this one, and is answered by letter.
    pub(crate) fn letter_from(&mut self, node: NodeId, now: u64) {
        self.unreached.insert(node, now.saturating_sub(OUT_OF_REACH_MS));
    }

    /// Forgets a node that is no longer a member: it is sent nothing.
    pub(crate) fn left(&mut self, node: NodeId) {
        self.unreached.remove(&node);
        self.granted.retain(|&(to, _), _| to != node);
        self.written.retain(|&(to, ..), _| to != node);
    }

    /// Returns the subject of a message. `None` for a message that is not about a grant: a thief can ask
    /// another node, whereas all other messages decide to whom tasks belong.
    pub(crate) fn subject(job: u64, message: &Message) -> Option<Subject> {
        let (grant, kind) = match message {
            Message::Steal { .. } | Message::Deny { .. } => return None,
            Message::Grant { grant, .. } => (*grant, 0),
            Message::Ack { grant } => (*grant, 1),
            Message::Refuse { grant } => (*grant, 2),
            Message::Settled { grant, .. } => (*grant, 3),
            // All of them are repeated: one about the first of its grants is as good as another.
            Message::Pending { grants, .. } => (*grants.first()?, 4),
            Message::Confirmed { grants } => (*grants.first()?, 5),
            Message::Void { grants } => (*grants.first()?, 6),
        };
        Some(Subject { job, grant, kind })
    }

    /// Returns whether a message to a node should also be sent as a letter.
    pub(crate) fn is_due(&mut self, to: NodeId, message: &Message, now: u64) -> bool {
        let Some(Subject { grant, kind, .. }) = Self::subject(0, message) else { return false };
        if self.written.len().max(self.granted.len()) >= WRITTEN_MAX {
            self.written.clear();
            self.granted.clear();
        }
        // A grant is repeated until it is answered: after this time either the grant or its answer finds no
        // way through the network.
        let said_since = (kind == 0).then(|| *self.granted.entry((to, grant)).or_insert(now));
        let since = self.unreached.get(&to).copied().into_iter().chain(said_since).min();
        if since.is_none_or(|since| now < since + OUT_OF_REACH_MS) {
            return false;
        }
        let last = self.written.insert((to, grant, kind), now);
        match last {
            Some(last) if now < last + AGAIN_MS + bytes_of(message) / BYTES_PER_MS => {
                self.written.insert((to, grant, kind), last);
                false
            }
            _ => true,
        }
    }
}

fn bytes_of(message: &Message) -> u64 {
    let Message::Grant { tasks, .. } = message else { return 0 };
    tasks.iter().map(|task| task.bytes() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{envelope::Envelope, id::TaskId};

    const FAR: NodeId = NodeId(7);

    fn ack(grant: u64) -> Message {
        Message::Ack { grant }
    }

    #[test]
    fn letters_go_to_those_that_were_out_of_reach_for_a_while() {
        let mut mail = Mail::default();
        assert!(!mail.is_due(FAR, &ack(1), 0), "nothing is known against it");
        mail.unreachable(FAR, 100);
        mail.unreachable(FAR, 2_000);
        assert!(!mail.is_due(FAR, &ack(1), 2_099));
        assert!(mail.is_due(FAR, &ack(1), 2_100));
        assert!(!mail.is_due(FAR, &Message::Steal { request: 1 }, 2_100), "who steals can ask another");
        mail.heard_of(FAR);
        assert!(!mail.is_due(FAR, &ack(2), 9_000));
    }

    #[test]
    fn a_grant_that_finds_no_answer_is_written_although_nothing_says_that_it_was_lost() {
        let mut mail = Mail::default();
        let grant = Message::Grant { grant: 3, request: None, settled_below: 0, tasks: Vec::new() };
        assert!(!mail.is_due(FAR, &grant, 100));
        assert!(!mail.is_due(FAR, &grant, 2_099));
        assert!(mail.is_due(FAR, &grant, 2_100));
        assert!(!mail.is_due(FAR, &ack(1), 9_000), "that is said of the grant, not of the way");
    }

    #[test]
    fn the_same_is_not_written_again_at_once() {
        let mut mail = Mail::default();
        mail.letter_from(FAR, 5_000);
        assert!(mail.is_due(FAR, &ack(1), 5_000), "a letter is answered by a letter");
        assert!(!mail.is_due(FAR, &ack(1), 6_999));
        assert!(mail.is_due(FAR, &ack(2), 6_999));
        assert!(mail.is_due(FAR, &ack(1), 7_000));
    }

    #[test]
    fn a_large_letter_is_not_written_again_while_it_may_be_on_its_way() {
        let mut mail = Mail::default();
        mail.letter_from(FAR, 5_000);
        let (id, task) = (TaskId::ROOT, vec![0; 40 << 20].into());
        let tasks = vec![Envelope::new(id, Vec::new().into(), task)];
        let grant = Message::Grant { grant: 3, request: None, settled_below: 0, tasks };
        assert!(mail.is_due(FAR, &grant, 5_000));
        assert!(!mail.is_due(FAR, &grant, 5_000 + 40 * 1024));
        assert!(mail.is_due(FAR, &grant, 5_000 + 43 * 1024));
    }

    #[test]
    fn nothing_is_remembered_of_nodes_that_have_gone() {
        let mut mail = Mail::default();
        for number in 0..1_000 {
            let node = NodeId(number);
            mail.unreachable(node, 0);
            let grant = Message::Grant { grant: number, request: None, settled_below: 0, tasks: Vec::new() };
            assert!(!mail.is_due(node, &grant, 0));
            assert!(mail.is_due(node, &grant, 2_000));
            mail.left(node);
        }
        assert_eq!((mail.unreached.len(), mail.granted.len(), mail.written.len()), (0, 0, 0));
    }
}

//! Decides which messages are also sent through ZooKeeper: those that decide the ownership of tasks, to a node that
//! the network does not reach.
//!
//! If the network between two nodes fails permanently while a grant is in transit, its tasks belong to neither node
//! until one of them has received the other's answer. Either both reach ZooKeeper and communicate there, or one of
//! them soon ceases to be a member. The protocol is unaware of this: it treats a letter as a late message.

use std::collections::{BTreeMap, BTreeSet};

use super::transport::Subject;
use crate::{core::Message, id::NodeId};

/// The time for which a node must be unreachable, or a grant unanswered, before letters are sent, in
/// milliseconds.
const UNREACHABLE_MS: u64 = 2_000;
/// The time after which an unreachable node is reported to the user, in milliseconds: longer than the default session
/// timeout, after which a lost node is no longer a member.
const REPORT_MS: u64 = 15_000;
/// The time after which a letter is repeated, in milliseconds.
const REPEAT_MS: u64 = 2_000;
/// The number of bytes that extend this time by one millisecond, so that a large letter is not repeated while it may
/// still be in transit.
const BYTES_PER_MS: u64 = 1 << 10;
/// The maximum number of recorded letters.
const WRITTEN_MAX: usize = 1024;

/// The reachability of the other nodes.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// The times since which nodes have been unreachable.
    unreached: BTreeMap<NodeId, u64>,
    /// The unreachable nodes that were reported to the user.
    cut_off: BTreeSet<NodeId>,
    /// The times at which grants were first sent, by thief and grant.
    granted: BTreeMap<(NodeId, u64), u64>,
    /// The times at which letters about grants were last written, by addressee, grant and kind of message.
    written: BTreeMap<(NodeId, u64, u8), u64>,
}

impl Mail {
    /// Records that a message could not be sent to a node. Returns whether the node is now to be reported.
    pub(crate) fn unreachable(&mut self, node: NodeId, now: u64) -> bool {
        let since = *self.unreached.entry(node).or_insert(now);
        now >= since + REPORT_MS && self.cut_off.insert(node)
    }

    /// Records that a message was received from a node over the network. Returns whether the node was reported before.
    pub(crate) fn on_message(&mut self, node: NodeId) -> bool {
        self.unreached.remove(&node);
        self.cut_off.remove(&node)
    }

    pub(crate) fn cut_off(&self) -> &BTreeSet<NodeId> {
        &self.cut_off
    }

    /// Records a letter from a node: the network does not connect it to this node, so it is answered by letter.
    pub(crate) fn on_letter(&mut self, node: NodeId, now: u64) {
        let due = now.saturating_sub(UNREACHABLE_MS);
        let since = self.unreached.entry(node).or_insert(due);
        *since = (*since).min(due);
    }

    /// Forgets a node that is no longer a member: nothing is sent to it. Returns whether it was reported before.
    pub(crate) fn left(&mut self, node: NodeId) -> bool {
        self.granted.retain(|&(to, _), _| to != node);
        self.written.retain(|&(to, ..), _| to != node);
        self.on_message(node)
    }

    /// Returns the subject of a message. `None` for a message that is not about a grant: a thief can ask another
    /// node, but all other messages decide the ownership of tasks.
    pub(crate) fn subject(job: u64, message: &Message) -> Option<Subject> {
        let (grant, kind) = match message {
            Message::Steal { .. } | Message::Deny { .. } => return None,
            Message::Grant { grant, .. } => (*grant, 0),
            Message::Ack { grant } => (*grant, 1),
            Message::Refuse { grant } => (*grant, 2),
            Message::Settled { grant, .. } => (*grant, 3),
            // These messages are repeated, so the first of their grants can identify them.
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
        // A grant is repeated until it is answered. If it is still unanswered after this time, the network loses
        // either the grant or its answer.
        let said_since = (kind == 0).then(|| *self.granted.entry((to, grant)).or_insert(now));
        let since = self.unreached.get(&to).copied().into_iter().chain(said_since).min();
        if since.is_none_or(|since| now < since + UNREACHABLE_MS) {
            return false;
        }
        let last = self.written.insert((to, grant, kind), now);
        match last {
            Some(last) if now < last + REPEAT_MS + bytes_of(message) / BYTES_PER_MS => {
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
    fn unreachable_node_is_reported_once_until_it_answers() {
        let mut mail = Mail::default();
        assert!(!mail.unreachable(FAR, 1_000));
        assert!(!mail.unreachable(FAR, 15_999));
        mail.on_letter(FAR, 15_999);
        assert!(mail.unreachable(FAR, 16_000));
        assert!(!mail.unreachable(FAR, 30_000), "it was reported before");
        assert_eq!(mail.cut_off().iter().collect::<Vec<_>>(), [&FAR]);
        assert!(mail.on_message(FAR));
        assert!(!mail.unreachable(FAR, 31_000));
        assert!(mail.unreachable(FAR, 46_000));
        assert!(mail.left(FAR));
        assert!(mail.cut_off().is_empty());
    }

    #[test]
    fn letters_are_sent_after_a_node_was_unreachable_for_two_seconds() {
        let mut mail = Mail::default();
        assert!(!mail.is_due(FAR, &ack(1), 0), "it is not unreachable");
        mail.unreachable(FAR, 100);
        mail.unreachable(FAR, 2_000);
        assert!(!mail.is_due(FAR, &ack(1), 2_099));
        assert!(mail.is_due(FAR, &ack(1), 2_100));
        assert!(!mail.is_due(FAR, &Message::Steal { request: 1 }, 2_100), "a thief can ask another node");
        mail.on_message(FAR);
        assert!(!mail.is_due(FAR, &ack(2), 9_000));
    }

    #[test]
    fn unanswered_grant_is_sent_as_a_letter() {
        let mut mail = Mail::default();
        let grant = Message::Grant { grant: 3, request: None, settled_below: 0, tasks: Vec::new() };
        assert!(!mail.is_due(FAR, &grant, 100));
        assert!(!mail.is_due(FAR, &grant, 2_099));
        assert!(mail.is_due(FAR, &grant, 2_100));
        assert!(!mail.is_due(FAR, &ack(1), 9_000), "only the grant is unanswered, the node is reachable");
    }

    #[test]
    fn letter_is_not_repeated_within_two_seconds() {
        let mut mail = Mail::default();
        mail.on_letter(FAR, 5_000);
        assert!(mail.is_due(FAR, &ack(1), 5_000), "a letter is answered by a letter");
        assert!(!mail.is_due(FAR, &ack(1), 6_999));
        assert!(mail.is_due(FAR, &ack(2), 6_999));
        assert!(mail.is_due(FAR, &ack(1), 7_000));
    }

    #[test]
    fn large_letter_is_not_repeated_while_it_may_be_in_transit() {
        let mut mail = Mail::default();
        mail.on_letter(FAR, 5_000);
        let (id, task) = (TaskId::ROOT, vec![0; 40 << 20].into());
        let tasks = vec![Envelope::new(id, Vec::new().into(), task)];
        let grant = Message::Grant { grant: 3, request: None, settled_below: 0, tasks };
        assert!(mail.is_due(FAR, &grant, 5_000));
        assert!(!mail.is_due(FAR, &grant, 5_000 + 40 * 1024));
        assert!(mail.is_due(FAR, &grant, 5_000 + 43 * 1024));
    }

    #[test]
    fn departed_nodes_leave_no_records() {
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

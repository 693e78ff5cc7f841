//! Everything that can happen to a node.

use super::message::Message;
use crate::{
    envelope::Envelope,
    id::{Attempt, NodeId, TaskId},
};

/// An input of the protocol. With each comes the time and the state of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Look again: the pool has changed, or an action has changed it.
    Look,
    /// The time asked for by [`Node::deadline`](super::Node::deadline) has come.
    Tick,
    /// Another node is a member now.
    Joined { node: NodeId },
    /// Another node is no member any more.
    Left {
        node: NodeId,
        /// The attempt in which it had nothing in its hands, if that is so.
        clean_in: Option<Attempt>,
    },
    /// This attempt at the job is the current one.
    Attempt { attempt: Attempt },
    /// This node takes part in the attempt.
    Enrolled { attempt: Attempt },
    /// These tasks are parked, and no others.
    Parked { attempt: Attempt, tasks: Vec<TaskId> },
    /// The job is over, whatever its end.
    JobOver,
    /// A message from a member, about an attempt.
    Message { from: NodeId, attempt: Attempt, message: Message },
    /// A message to this node could not be delivered.
    Unreachable { to: NodeId },
    /// The answer to [`Action::Take`](super::Action::Take).
    Taken { thief: NodeId, request: u64, tasks: Vec<Envelope> },
    /// The answer to [`Action::Unload`](super::Action::Unload).
    Unloaded { tasks: Vec<Envelope> },
    /// The answer to [`Action::TakeBatch`](super::Action::TakeBatch).
    Batch { toggles: Vec<TaskId>, output: Vec<u8> },
    /// The answer to [`Action::Transact`](super::Action::Transact).
    Transacted { txn: u64, result: TransactionResult },
    /// Leave by a deadline, and hand on what is unfinished. The second time: leave at once.
    Drain,
    /// Leave, and hand on what is unfinished, however long that takes. The second time: as soon as tasks have
    /// stopped.
    Retire,
    /// The job is put aside: park what is unfinished as soon as it has stopped, however long that takes, and
    /// leave.
    Rest,
    /// The session is over: this node is no member any more.
    Expired,
}

/// What came of a try of a transaction. The shell has seen it and says it; the core guesses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionResult {
    /// A commit is written, by this try or an earlier one.
    Committed,
    /// The claimed task is this node's, by this try or an earlier one, and the node is enrolled.
    Claimed(Envelope),
    /// Another node has claimed the task before: nothing is written.
    TooLate,
    /// The claimed task is this node's, but cannot be read. The shell has failed the job.
    Unreadable,
    /// It may or may not be written: to be tried again as it is.
    Unknown,
    /// It was refused: this node is no member any more.
    NotMember,
    /// It was refused: the attempt is over.
    AttemptOver,
    /// It would be refused for ever, such as an output that no znode can hold. The shell has failed the job.
    Unrecordable,
}

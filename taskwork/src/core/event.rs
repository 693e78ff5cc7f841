//! The events of a node.

use super::message::Message;
use crate::{
    envelope::Envelope,
    id::{Attempt, NodeId, TaskId},
};

/// An input of the protocol. Each comes with the time and the state of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The pool has changed, by itself or by an action.
    Look,
    /// The time asked for by [`Node::deadline`](super::Node::deadline) has come.
    Tick,
    /// Another node is a member now.
    Joined { node: NodeId },
    /// Another node is no longer a member.
    Left {
        node: NodeId,
        /// The attempt that it has left cleanly, if any.
        clean_in: Option<Attempt>,
    },
    /// This attempt at the job is the current one.
    Attempt { attempt: Attempt },
    /// This node takes part in the attempt.
    Enrolled { attempt: Attempt },
    /// These tasks are parked, and no others.
    Parked { attempt: Attempt, tasks: Vec<TaskId> },
    /// The job is over, with or without a result.
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
    /// Leave by a deadline, and hand on unfinished tasks. The second time: park them at once.
    Drain,
    /// Leave, and hand on unfinished tasks, however long that takes. The second time: park them as soon as
    /// they have stopped.
    Retire,
    /// The job is suspended: park unfinished tasks as soon as they have stopped, however long that takes, and
    /// leave.
    Rest,
    /// The session has expired: this node is no longer a member.
    Expired,
}

/// The result of a try of a transaction, as observed by the shell; the core guesses nothing.
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
    /// It may or may not be written, and must be tried again unchanged.
    Unknown,
    /// It was rejected: this node is no longer a member.
    NotMember,
    /// It was rejected: the attempt is over.
    AttemptOver,
    /// It would be rejected for ever, for example because no znode can hold the output. The shell has failed
    /// the job.
    Unrecordable,
}

//! The events of a node.

use std::collections::BTreeSet;

use super::message::Message;
use crate::{
    envelope::Envelope,
    holdings::{Basis, Holdings, Transit},
    id::{Attempt, NodeId, TaskId},
    toggles::Toggles,
};

/// An input of the protocol. Each comes with the time and the state of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The pool has changed, by itself or by an action.
    Look,
    /// The time asked for by [`Node::deadline`](super::Node::deadline) has come.
    Tick,
    /// Another node is a member now. It may turn out that it cannot work on the job.
    Joined { node: NodeId },
    /// Another node, perhaps joined before, works on jobs like this one. It is near by the label that says
    /// so, or not.
    Known { node: NodeId, near: bool },
    /// A node that has joined does not work on jobs like this one.
    Apart { node: NodeId },
    /// There are this many other nodes, also such as cannot work on the job. Not among them are those that
    /// are known to be of another release.
    Roster { nodes: usize },
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
    /// The answer to [`Action::LookForOrphans`](super::Action::LookForOrphans). The members were read first.
    Orphans {
        attempt: Attempt,
        /// The last look that was requested before the reading began.
        look: u64,
        /// All members, this node included.
        members: BTreeSet<NodeId>,
        transits: BTreeSet<Transit>,
        /// The nodes that are gone and have left holdings behind.
        held: Vec<NodeId>,
    },
    /// The job is over, with or without a result.
    JobOver,
    /// A message from a member, about an attempt.
    Message { from: NodeId, attempt: Attempt, message: Message },
    /// A message to this node could not be delivered.
    Unreachable { to: NodeId },
    /// The answer to [`Action::Take`](super::Action::Take).
    Taken { thief: NodeId, request: u64, tasks: Vec<Envelope>, basis: Basis },
    /// The answer to [`Action::Unload`](super::Action::Unload).
    Unloaded { tasks: Vec<(Basis, Envelope)> },
    /// The answer to [`Action::Cut`](super::Action::Cut).
    Cut(Cut),
    /// The answer to [`Action::Transact`](super::Action::Transact).
    Transacted { txn: u64, result: TransactionResult },
    /// Leave by a deadline, and hand on unfinished tasks. The second time: park them at once. The deadline counts
    /// from the first time at which somebody asked for it, `ms_ago`.
    Drain { ms_ago: u64, deadline_ms: u64 },
    /// Leave, and hand on unfinished tasks, however long that takes. The second time: park them as soon as
    /// they have stopped.
    Retire,
    /// The job is suspended: park unfinished tasks as soon as they have stopped, however long that takes, and
    /// leave.
    Rest,
    /// The session has expired: this node is no longer a member.
    Expired,
}

/// The state of a pool at one moment, as far as it is the node's own: every task in it is among `tasks`, or
/// complete and counted in `toggles` and `output`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cut {
    pub(crate) tasks: Vec<Envelope>,
    /// Those of them that wait for something outside: nobody knows for how long.
    pub(crate) waiting_outside: BTreeSet<TaskId>,
    /// Those of them that have waited, could go on, and wait for their trials.
    pub(crate) untried: BTreeSet<TaskId>,
    /// Whether there are tasks that are too large to be written.
    pub(crate) unprotected: bool,
    /// The ids to be toggled since the last cut.
    pub(crate) toggles: Toggles,
    /// The output of all tasks completed here, encoded.
    pub(crate) output: Vec<u8>,
}

/// The result of a try of a transaction, as observed by the shell; the core guesses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionResult {
    /// A commit is written, by this try or an earlier one.
    Committed,
    /// What was claimed is this node's, by this try or an earlier one, and the node is enrolled.
    Claimed(Holdings),
    /// It is gone or cannot be claimed, for example because another node was faster: nothing is written.
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

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
pub enum Event {
    /// The pool has changed, spontaneously or by an action.
    Look,
    /// The time returned by [`Node::deadline`](super::Node::deadline) has come.
    Tick,
    /// Another node has become a member. It may be unable to work on the job.
    Joined { node: NodeId },
    /// Another node, which may have joined before, works on jobs like this one. `near` depends on its
    /// label.
    Known { node: NodeId, near: bool },
    /// A node that has joined does not work on jobs like this one.
    Apart { node: NodeId },
    /// The number of other nodes, including nodes that cannot work on the job, but not nodes that
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
    /// The complete list of parked tasks.
    Parked { attempt: Attempt, tasks: Vec<TaskId> },
    /// The answer to [`Action::LookForOrphans`](super::Action::LookForOrphans). The members were read first.
    Orphans {
        attempt: Attempt,
        /// The last look that was requested before the read started.
        look: u64,
        /// All members, this node included.
        members: BTreeSet<NodeId>,
        transits: BTreeSet<Transit>,
        /// The nodes that are gone, with holdings left.
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
    /// Request to leave by a deadline and hand over unfinished tasks. A second request: park them immediately. The
    /// deadline counts from the first request, `ms_ago`.
    Drain { ms_ago: u64, deadline_ms: u64 },
    /// Request to leave and hand over unfinished tasks, without a deadline. A second request: park them as soon as
    /// they have stopped.
    Retire,
    /// The job is suspended: park unfinished tasks as soon as they have stopped, without a deadline, and
    /// leave.
    Rest,
    /// Whether an operator has cordoned this node: then it takes no more tasks, except those that only it can take.
    Cordon { is_cordoned: bool },
    /// The session has expired: this node is no longer a member.
    Expired,
}

/// The part of a pool that is the node's own at one moment: every task in it is among `tasks`, or
/// complete and counted in `toggles` and `output`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cut {
    pub tasks: Vec<Envelope>,
    /// The tasks that wait for an external event, for an unknown time.
    pub waiting_outside: BTreeSet<TaskId>,
    /// The tasks that have waited, could continue, and wait for their trials.
    pub untried: BTreeSet<TaskId>,
    /// Whether there are tasks that are too large to be written.
    pub unprotected: bool,
    /// The ids to toggle since the last cut.
    pub toggles: Toggles,
    /// The output of all tasks completed here, encoded.
    pub output: Vec<u8>,
}

/// The result of a try of a transaction, as observed by the shell; the core guesses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionResult {
    /// A commit is written, by this try or an earlier one.
    Committed,
    /// The claimed tasks are this node's, by this try or an earlier one, and the node is enrolled.
    Claimed(Holdings),
    /// The source is gone or cannot be claimed, for example because another node was faster: nothing is written.
    TooLate,
    /// The claimed task is this node's, but cannot be read. The shell has failed the job.
    Unreadable,
    /// The outcome is unknown: it must be retried unchanged.
    Unknown,
    /// It was rejected: this node is no longer a member.
    NotMember,
    /// It was rejected: the attempt is over.
    AttemptOver,
    /// It would always be rejected, for example because the output exceeds the size of a znode. The shell has failed
    /// the job.
    Unrecordable,
}

//! The actions that the protocol can request from the shell.

use std::time::Duration;

use super::message::Message;
use crate::{
    envelope::Envelope,
    id::{Attempt, NodeId, TaskId},
};

/// An action. The shell performs the actions for one event in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends a message about an attempt, which may be lost.
    Send { to: NodeId, attempt: Attempt, message: Message },
    /// Puts tasks into the pool.
    Put {
        tasks: Vec<Envelope>,
        /// The time of the request for them, on the node's clock, if they answer one.
        asked: Option<Duration>,
    },
    /// Takes at most this number of queued tasks and bytes out of the pool for a thief; answered by
    /// `Event::Taken`. A larger task goes alone.
    Take { thief: NodeId, request: u64, tasks_max: usize, bytes_max: usize },
    /// Sets the number of thieves that wait for a split.
    Thieves { waiting: usize },
    /// Asks running tasks to stop and lets none begin.
    Stop,
    /// Lets tasks begin.
    Resume,
    /// Discards all tasks, the batch and the outputs of a quiet pool.
    Discard,
    /// Takes every queued task out of a pool in which none begins; answered by `Event::Unloaded`.
    Unload,
    /// Takes the batch; answered by `Event::Batch`.
    TakeBatch,
    /// Enrols this node in the attempt, before it accepts a task from another node; answered by
    /// `Event::Enrolled`.
    Enrol { attempt: Attempt },
    /// Tries a transaction once; answered by `Event::Transacted`.
    Transact { attempt: Attempt, transaction: Transaction },
    /// Ends the node.
    Leave { departure: Departure },
}

/// One coordination transaction of this node. There is never more than one under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Its number, unique on this node and the same at every try.
    pub(crate) txn: u64,
    /// The last transaction that is known to be committed, whose txn id can be deleted.
    pub(crate) settled: Option<u64>,
    pub(crate) kind: TransactionKind,
}

/// The effect of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionKind {
    /// Claims a parked task, and enrols this node if it is not enrolled yet.
    Claim { task: TaskId, enrol: bool },
    /// Toggles ids in the global task list and writes this node's output; parks tasks; leaves, if it is the
    /// last.
    Commit { toggles: Vec<TaskId>, output: Vec<u8>, park: Vec<Envelope>, leave: bool },
}

/// How a node's part in the cluster ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It holds nothing of the current attempt and is no longer a member, or never took part.
    Clean,
    /// Its deadline passed before everything was handed on: its tasks are lost, a new attempt begins.
    Abandoned,
    /// Its session has expired.
    Expelled,
}

impl Action {
    /// Returns whether the action changes the pool, so that the protocol must look at it again.
    pub(crate) fn touches_pool(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Transact { .. } | Self::Enrol { .. } | Self::Leave { .. })
    }
}

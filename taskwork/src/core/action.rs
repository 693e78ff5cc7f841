//! Everything that the protocol can ask the shell to do.

use std::time::Duration;

use super::message::Message;
use crate::{
    envelope::Envelope,
    id::{Attempt, NodeId, TaskId},
};

/// An effect. The shell performs the actions of one event in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends a message about an attempt, as well as it can: it may be lost.
    Send { to: NodeId, attempt: Attempt, message: Message },
    /// Puts tasks into the pool.
    Put {
        tasks: Vec<Envelope>,
        /// When they were asked for, on the node's clock, if they answer a request.
        asked: Option<Duration>,
    },
    /// Takes up to so many queued tasks, of so many bytes together, out of the pool for a thief; answered by
    /// `Event::Taken`. A task of more bytes goes alone.
    Take { thief: NodeId, request: u64, tasks_max: usize, bytes_max: usize },
    /// So many thieves wait for a split.
    Thieves { waiting: usize },
    /// Asks running tasks to stop and lets none begin.
    Stop,
    /// Lets tasks begin.
    Resume,
    /// Forgets all tasks, the batch and the outputs of a quiet pool.
    Discard,
    /// Takes every queued task out of a pool in which none begins; answered by `Event::Unloaded`.
    Unload,
    /// Takes the batch; answered by `Event::Batch`.
    TakeBatch,
    /// Writes this node into the attempt, before it takes a task of it from another; answered by
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
    /// Its number, unique on this node: the same at every try.
    pub(crate) txn: u64,
    /// The last transaction that is known to be committed, whose txn id can go.
    pub(crate) settled: Option<u64>,
    pub(crate) kind: TransactionKind,
}

/// What a transaction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionKind {
    /// Takes a parked task, and enrols this node if it is not yet.
    Claim { task: TaskId, enrol: bool },
    /// Toggles ids in the global task list and writes this node's output; parks tasks; leaves, if it is the
    /// last.
    Commit { toggles: Vec<TaskId>, output: Vec<u8>, park: Vec<Envelope>, leave: bool },
}

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It holds nothing of the current attempt and is no member any more, or never took part.
    Clean,
    /// Its time was up before everything was handed on: its tasks are lost, a new attempt begins.
    Abandoned,
    /// Its session is over.
    Expelled,
}

impl Action {
    /// Whether the pool is another one after this action, so that the protocol must look at it again.
    pub(crate) fn touches_pool(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Transact { .. } | Self::Enrol { .. } | Self::Leave { .. })
    }
}

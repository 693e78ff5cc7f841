//! The actions that the protocol can request from the shell.

use std::time::Duration;

use super::{given::Gift, message::Message};
use crate::{
    envelope::Envelope,
    holdings::{Basis, Holdings, Source, Transit},
    id::{Attempt, NodeId, TaskId},
    scope::Mark,
};

/// An action. The shell performs the actions for one event in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Sends a message about an attempt, which may be lost.
    Send { to: NodeId, attempt: Attempt, message: Message },
    Put {
        tasks: Vec<Envelope>,
        basis: Basis,
        /// The time of the request for them, on the node's clock, if they answer one.
        asked: Option<Duration>,
    },
    /// Takes at most this number of queued tasks and bytes, with one basis, out of the pool for a thief;
    /// answered by `Event::Taken`. A larger task is taken alone.
    Take { thief: NodeId, request: u64, tasks_max: usize, bytes_max: usize },
    /// Sets the number of thieves that wait for a split.
    Thieves { waiting: usize },
    /// Asks running tasks to stop and lets no task start.
    Stop,
    /// Lets tasks start.
    Resume,
    /// Discards all tasks, the batch and the outputs of a quiet pool.
    Discard,
    /// Takes every queued task out of a stopped pool; answered by `Event::Unloaded`.
    Unload,
    /// Makes tasks and completions on these bases the node's own, then takes a cut of everything that is its
    /// own; answered by `Event::Cut`.
    Cut { firm: Vec<Basis> },
    /// Lets a task continue that has waited for its trial.
    Try { task: TaskId },
    /// Drops all tasks and completions on these bases.
    Void { bases: Vec<Basis> },
    /// Looks for orphans: holdings and transits of nodes that are gone; answered by `Event::Orphans`. One answer may
    /// cover several looks, if it is read after the last of them was requested.
    LookForOrphans { look: u64 },
    /// Enrols this node in the attempt, before it accepts a task from another node; answered by
    /// `Event::Enrolled`.
    Enrol { attempt: Attempt },
    /// Tries a transaction once; answered by `Event::Transacted`.
    Transact { attempt: Attempt, transaction: Transaction },
    /// Ends the node's work on the job.
    Leave { departure: Departure },
}

/// One coordination transaction of this node. There is never more than one in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its number, unique on this node and the same at every try.
    pub txn: u64,
    /// The last transaction that is known to be committed, whose txn id can be deleted.
    pub settled: Option<u64>,
    pub kind: TransactionKind,
}

/// The effect of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionKind {
    /// Claims tasks, and enrols this node if it is not enrolled yet.
    Claim {
        source: Source,
        enrol: bool,
    },
    Flush(Box<Flush>),
}

/// A write of a node's state at one moment: its completions and its holdings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flush {
    /// The ids to toggle in the global task list.
    pub toggles: Vec<Mark>,
    /// The output of all tasks completed here so far.
    pub output: Vec<u8>,
    pub held: Holdings,
    /// Grants whose tasks are no longer among the holdings.
    pub give: Vec<Gift>,
    /// Transits that become this node's own.
    pub take: Vec<Transit>,
    pub park: Vec<Envelope>,
    /// Tasks to set aside. In the global task list they count as completed.
    pub condemned: Vec<Condemned>,
    /// Whether the node leaves with it.
    pub leave: bool,
}

/// A task that has reached the limit of lost nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condemned {
    pub task: Envelope,
    /// The cause as far as known, for display; empty if unknown.
    pub reason: String,
}

/// The end of a node's part in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It has left the current attempt and holds nothing of it, or never took part.
    Clean,
    /// Its deadline passed before everything was handed over: other nodes continue from its last written state.
    Abandoned,
    /// Its session has expired.
    Expelled,
}

impl Action {
    /// Returns whether the action changes the pool, so that the protocol must look at it again. Continuing a task
    /// does not.
    pub fn touches_pool(&self) -> bool {
        !matches!(
            self,
            Self::Send { .. }
                | Self::Transact { .. }
                | Self::Enrol { .. }
                | Self::LookForOrphans { .. }
                | Self::Try { .. }
                | Self::Leave { .. }
        )
    }
}

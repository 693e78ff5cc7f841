//! The inner seam of the runtime: what it sees of a program's type of task.
//!
//! A program's [`Task`](crate::Task) has types of its own: itself, its shared data, its output, its
//! variables. Two of the three layers must not know them: the protocol and the I/O are the same for every
//! program, and one process runs jobs of several types of task. So these types end in the pool. Everything
//! above it (the driver, the coordination, the seat, the serving loop) is compiled once, and sees a task as
//! four things:
//!
//! | what | is | made by |
//! |---|---|---|
//! | [`Kind`] | a type of task: opens a pool for it | `shell/kinds.rs`; `local.rs`, within a process; `simulation.rs`, for virtual time |
//! | [`Work`] | a pool with tasks of that type in it | `Pool`, with threads; `Slices`, in virtual time |
//! | [`Envelope`] | one task as bytes, with all that goes where it goes | the pool, which gives it away |
//! | [`Part`] | a node's part in one job: pool, workers, limits | the shell, from what a kind has opened |
//!
//! ```text
//!   job's record: kind ─▶ Kind::open ─▶ Opened { pool: dyn Work, workers } ─▶ Part ─▶ driver, coordination
//!                                          │ take, unload: tasks become envelopes
//!                                          │ put: envelopes become tasks
//!   core: PoolView in, actions out ◀──────▶│
//! ```
//!
//! # Who calls the program's own code, and where
//!
//! The program's code is slow, or wrong, whenever it likes. It must not hold the thread that keeps the
//! session longer than it takes to read or write one value, and what panics must not take the node with it.
//!
//! | the program's | is called by | on |
//! |---|---|---|
//! | `Task::search`, `Task::split` | a worker | the worker's thread; a panic fails the job |
//! | `Output::merge`, of a completed task | a worker | the worker's thread |
//! | `Serialize`, of tasks and outputs | `take`, `unload`, `take_batch` | the driver's |
//! | `Deserialize`, of tasks; `Task::outlook` | `put` | the driver's |
//! | `Deserialize`, of the shared data | `Kind::open` | a thread of its own: it may be large |
//! | `Output::merge`, for the result | `merge` | a thread of its own: it may take long |
//! | `Task::suggest` | `suggest` | a thread of its own, with a limit of time |
//! | `Variable::improves`, and its values' serde | `variables` | that of whoever has the value |
//!
//! While a worker merges an output into the batch, `take_batch` says that it is ready later: the driver does
//! not wait for it, and the worker encodes the batch. Everything else of [`Work`] (`view`, `figures`, `stop`,
//! `resume`, `set_thieves` and so on) is the runtime's own and takes a lock for microseconds; the driver
//! calls it between two events. In virtual time there is one thread, and all of it is there.
//!
//! [`Envelope`]: crate::envelope::Envelope
//! [`Part`]: crate::shell::node::Part

use std::{future::Future, io, pin::Pin, sync::Arc};

use thiserror::Error;

use crate::{
    id::NodeId,
    pool::{PoolLimits, Work, Workers},
    wire::codec::DecodeError,
};

/// A type of task with the type forgotten.
pub(crate) trait Kind: Send + Sync {
    /// Opens a pool for tasks of this kind, and starts its workers.
    ///
    /// # Cancellation safety
    /// Dropping the future before it is ready leaves no worker behind.
    fn open(&self, setup: PoolSetup) -> PoolOpening<'_>;
}

/// What a pool is opened with.
pub(crate) struct PoolSetup {
    pub(crate) node: NodeId,
    pub(crate) workers: usize,
    pub(crate) limits: PoolLimits,
    /// The job's shared data, encoded; empty for a kind that has it already.
    pub(crate) shared: Vec<u8>,
}

/// A pool, with those that work it.
pub(crate) struct Opened {
    pub(crate) pool: Arc<dyn Work>,
    pub(crate) workers: Workers,
}

/// A pool, to come.
pub(crate) type PoolOpening<'a> = Pin<Box<dyn Future<Output = Result<Opened, OpenError>> + Send + 'a>>;

/// Why a pool was not opened.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("the shared data of the job cannot be read: {reason}")]
    Shared { reason: String },
    #[error("no thread could be started: {0}")]
    Thread(#[source] io::Error),
}

impl OpenError {
    pub(crate) fn unreadable(error: &DecodeError) -> Self {
        Self::Shared { reason: error.to_string() }
    }
}

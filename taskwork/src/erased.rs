//! The type-erased interface between the runtime and a program's type of task.
//!
//! A program's [`Task`](crate::Task) has its own types: itself, its shared data, its output, its variables.
//! Two of the three layers must not depend on them: the protocol and the I/O are the same for every program,
//! and one process runs jobs of several types of task. Therefore only the pool is generic. Everything above
//! it (the driver, the coordination, the seat, the serving loop) is compiled once, and sees a task as four
//! things:
//!
//! | name | meaning | created by |
//! |---|---|---|
//! | name | meaning | created by |
//! | [`Work`] | a pool with tasks of that type in it | `Pool`, with threads; `Slices`, in virtual time |
//! | [`Envelope`] | one task as bytes, with all its belongings | the pool, when it gives a task away |
//! | [`Part`] | a node's part in one job: pool, workers, limits | the shell, from an opened kind and the node's crew |
//!
//! ```text
//!   job's record: kind ─▶ Kind::open ─▶ pool: dyn Work ─▶ Crew::add ─▶ Part ─▶ driver, coordination
//!                                          │ take, unload: tasks become envelopes
//!                                          │ put: envelopes become tasks
//!   core: PoolView in, actions out ◀──────▶│
//! ```
//!
//! # Callers and threads of the program's own code
//!
//! The program's code may be slow or panic at any time. It must not block the thread that maintains the
//! session longer than it takes to read or write the values of one step, and a panic must not bring down the
//! node.
//!
//! | program code | called by | on the thread |
//! |---|---|---|
//! | `Task::search`, `Task::split` | a worker | of the worker; a panic fails the job |
//! | `Output::merge`, of a completed task | a worker | of the worker |
//! | `Output::merge`, of outputs completed on a basis, or after a cut | `ready_cut`, or a worker | of the caller |
//! | `Serialize`, of queued tasks | `take`, `unload`, `begin_cut` | of the driver |
//! | `Serialize`, of a running task and its children, for a cut | a worker | of the worker |
//! | `Serialize`, of outputs | `ready_cut`, or a worker | of the caller |
//! | `Deserialize`, of tasks; `Hooks::outlook` | `put` | of the driver |
//! | `Deserialize`, of the shared data; `Hooks::companion` | `Kind::open` | a separate one: it may be large |
//! | the future of the companion | `Host::start` | of the companion; a panic fails the job |
//! | `Output::merge`, for the result | `merge` | a separate one: it may take long |
//! | `Hooks::suggest` | `suggest` | a separate one, with a time limit |
//! | `Variable::improves`, and its values' serde | `variables` | of the caller that has the value |
//!
//! While a worker merges an output into the batch, `ready_cut` returns that the cut will be ready later: the
//! driver does not wait, and the worker finishes the cut. The rest of [`Work`] (`view`, `figures`, `stop`,
//! `resume`, `set_thieves` and so on) is the runtime's own code and holds a lock for microseconds; the driver
//! calls it between two events. In virtual time everything runs on one thread.
//!
//! [`Envelope`]: crate::envelope::Envelope
//! [`Part`]: crate::shell::node::Part

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
};

use bytes::Bytes;
use thiserror::Error;

use crate::{
    id::NodeId,
    pool::{PoolLimits, Work},
    wire::codec::DecodeError,
};

/// A type of task with the type erased.
pub(crate) trait Kind: Send + Sync {
    /// Returns the name of the type in the program's source.
    fn task_type(&self) -> &'static str;
    /// Opens a pool for tasks of this kind. No worker is in it.
    fn open(&self, setup: PoolSetup) -> PoolOpening<'_>;
}

pub(crate) struct PoolSetup {
    pub(crate) node: NodeId,
    pub(crate) job: u64,
    pub(crate) workers: usize,
    pub(crate) limits: PoolLimits,
    /// The number of tasks that the node has created so far, for any job: an attempt at a job may start with tasks
    /// that the node has made in an earlier one.
    pub(crate) tasks_made: Arc<AtomicU64>,
    /// The job's shared data, [encoded](crate::wire::large), in pieces; none for a kind that has it already.
    pub(crate) shared: Vec<Bytes>,
}

pub(crate) type PoolOpening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Work>, OpenError>> + Send + 'a>>;

#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("the shared data of the job cannot be read: {reason}")]
    Shared { reason: String },
}

impl OpenError {
    pub(crate) fn unreadable(error: &DecodeError) -> Self {
        Self::Shared { reason: error.to_string() }
    }
}

//! What a framework runs beside the pool of a job, on each node that works on the job.
//!
//! Tasks are moved, split and repeated as the runtime needs; some things are not: a store of results, warm
//! processes of another language, a scheduler that knows which data is where. Such a part of a framework is a
//! [`Companion`]. It begins with the node's work on a job and ends with it, learns which other nodes there are,
//! exchanges messages with its like on them over the connections that exist anyway, and is asked to rescue what
//! it has before its node leaves.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
//! use taskwork::{Companion, CompanionContext, CompanionEvent, Context, Outcome, Task};
//!
//! /// Greets every node that joins, and counts the greetings.
//! async fn greet(mut cx: CompanionContext, heard: Arc<AtomicUsize>) -> Result<(), String> {
//!     while let Some(event) = cx.next().await {
//!         match event {
//!             // A companion that begins later greets, too.
//!             CompanionEvent::Joined { node } => drop(cx.messenger().send(node, b"hello".to_vec())),
//!             CompanionEvent::Message { .. } => drop(heard.fetch_add(1, Relaxed)),
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//!
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! struct Count;
//!
//! impl Task for Count {
//!     type Shared = ();
//!     type Output = u64;
//!
//!     fn companion(_shared: &Arc<()>) -> Option<Companion> {
//!         let heard = Arc::new(AtomicUsize::new(0));
//!         Some(Companion::new(Arc::clone(&heard), |cx| greet(cx, heard)))
//!     }
//!
//!     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
//!         // A task reaches the companion of the node that it is on.
//!         let heard = cx.companion::<AtomicUsize>().map_or(0, |heard| heard.load(Relaxed));
//!         *cx.output() += heard as u64;
//!         Outcome::Complete
//!     }
//!
//!     fn split(&mut self, _: &()) -> Option<Self> {
//!         None
//!     }
//! }
//! ```

mod desk;
mod journal;
mod sight;

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
};

use thiserror::Error;
use tokio::{sync::oneshot, time::Instant};
use zk::Labels;

pub(crate) use self::{desk::Desk, journal::Request as JournalRequest, sight::highest};
pub use self::{
    journal::{Journal, JournalError, Written},
    sight::{Load, Sight, Witness},
};
use crate::id::{JobId, NodeId};

/// The maximum size of a message to a companion, in bytes.
pub(crate) const COMPANION_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A part of a framework that runs beside the pool of a job on a node.
pub struct Companion {
    pub(crate) handle: Handle,
    pub(crate) run: Run,
}

/// What tasks reach of a companion.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// Begins to run a companion.
pub(crate) type Run = Box<dyn FnOnce(CompanionContext) -> Running + Send>;

/// Where a companion runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On a thread of its own, so that it can block no other part of the node.
    Thread,
    /// On the thread of the node: in virtual time there is only one.
    Here,
}

/// A companion that runs.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

impl Companion {
    /// Creates a companion. Tasks on its node reach `handle` by [`Context::companion`](crate::Context::companion).
    ///
    /// `run` is called when the node begins to work on the job, and has a thread of its own with a tokio runtime:
    /// it may compute, but what it receives waits meanwhile. It should end soon after
    /// [`CompanionContext::next`] has returned `None`; a thread that does not end within some seconds is left
    /// behind. If it returns an error, or panics, the job fails with that as its reason.
    pub fn new<H, R>(handle: Arc<H>, run: impl FnOnce(CompanionContext) -> R + Send + 'static) -> Self
    where
        H: Send + Sync + 'static,
        R: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { handle, run: Box::new(|cx| Box::pin(run(cx))) }
    }
}

impl fmt::Debug for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Companion").finish_non_exhaustive()
    }
}

/// A companion's interface to its node.
#[derive(Debug)]
pub struct CompanionContext {
    job: JobId,
    means: Means,
    desk: Arc<Desk>,
    messenger: Messenger,
    journal: Journal,
}

/// What the node of a companion has.
#[derive(Debug, Clone)]
pub(crate) struct Means {
    pub(crate) workers: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) labels: Labels,
    /// Whether the job runs on a cluster.
    pub(crate) is_public: bool,
}

impl CompanionContext {
    pub(crate) fn new(
        job: JobId,
        (node, means): (NodeId, Means),
        desk: Arc<Desk>,
        outbox: Arc<dyn Outbox>,
        journal: Journal,
    ) -> Self {
        Self { job, means, desk, messenger: Messenger { node, outbox }, journal }
    }

    /// Returns the job.
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// Returns the node.
    pub fn node(&self) -> NodeId {
        self.messenger.node
    }

    /// Returns the number of workers of the node. They are those of all jobs on which it works.
    pub fn workers(&self) -> usize {
        self.means.workers
    }

    /// Returns the memory that the node may use, in bytes; 0 if that is not known.
    pub fn memory_bytes(&self) -> u64 {
        self.means.memory_bytes
    }

    /// Returns the labels of the node.
    pub fn labels(&self) -> &Labels {
        &self.means.labels
    }

    /// Returns whether others can look at the job: it runs on a cluster, and not within one process.
    pub fn is_public(&self) -> bool {
        self.means.is_public
    }

    /// Names who tells people what this companion knows of the job, as long as that is there. The first one stays.
    pub fn is_witnessed_by(&self, witness: Weak<dyn Witness>) {
        self.desk.witness.take(witness);
    }

    /// Returns what sends messages, also from other threads: clones are the same.
    pub fn messenger(&self) -> &Messenger {
        &self.messenger
    }

    /// Returns the journal of the job, in which stands what must not happen twice.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Waits for the next event; `None` when the node's work on the job is over.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<CompanionEvent> {
        self.desk.next().await
    }
}

/// An event for a companion.
#[derive(Debug)]
pub enum CompanionEvent {
    /// This attempt at the job has begun. The first one is reported, too.
    Attempt {
        /// Its number, from 1.
        number: u32,
    },
    /// A node is there that works on the job, or is about to; or that could. Its companion may begin later: then
    /// messages to it are [refused](Refusal::Absent).
    Joined {
        /// The node.
        node: NodeId,
    },
    /// A node is not there any more. If it comes back, it has another id.
    Left {
        /// The node.
        node: NodeId,
    },
    /// The companion on another node, or this one, has sent a message. What is under way when a connection breaks
    /// is lost, and messages may overtake each other, and the news of their node and attempt.
    Message {
        /// The node from which it comes.
        from: NodeId,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// A message of this companion was not accepted. It is not repeated by itself.
    Refused {
        /// The node to which it was sent.
        to: NodeId,
        /// The number that [`Messenger::send`] has returned.
        number: u64,
        /// Why.
        why: Refusal,
    },
    /// The node is about to leave the job, because it is told to leave or the job is suspended.
    Rescue(Rescue),
}

/// The reason for which a message was not accepted by the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Refusal {
    /// Its companion does not read fast enough: too many messages wait for it. Send less, or later.
    Full,
    /// It does not work on the job now, or its companion has ended.
    Absent,
}

/// The request to bring everything to other nodes that would be lost with this one. The node leaves when this is
/// dropped, or when its time is up.
///
/// Tasks run on meanwhile, and until they are next polled after that. So from this event on a companion should pass on
/// at once what comes from them.
#[derive(Debug)]
pub struct Rescue {
    until: Instant,
    /// Completed by dropping it.
    _done: oneshot::Sender<()>,
}

impl Rescue {
    /// Returns the time until which the node waits. It waits shorter if it is told meanwhile to leave by a deadline.
    pub fn until(&self) -> Instant {
        self.until
    }
}

/// Sends messages to companions of the same job on other nodes. Clones are the same.
#[derive(Clone)]
pub struct Messenger {
    node: NodeId,
    outbox: Arc<dyn Outbox>,
}

/// The way of messages to other nodes.
pub(crate) trait Outbox: Send + Sync {
    /// Sends a message, and returns its number.
    fn send(&self, to: NodeId, bytes: Vec<u8>) -> Result<u64, NotSent>;
}

impl Messenger {
    /// Sends a message of up to 1 MiB to the companion on a node, which may be this one, and returns its number on
    /// this node. Never blocks, and works on any thread.
    ///
    /// The message may be lost, as with a connection, and is not repeated. If the receiver does not accept it,
    /// [`CompanionEvent::Refused`] tells that, unless that is lost.
    ///
    /// # Errors
    /// If it cannot be sent at all. See [`NotSent`].
    pub fn send(&self, to: NodeId, bytes: Vec<u8>) -> Result<u64, NotSent> {
        match bytes.len() {
            bytes if bytes > COMPANION_MESSAGE_BYTES_MAX => Err(NotSent::TooLarge { bytes }),
            _ => self.outbox.send(to, bytes),
        }
    }
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messenger").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The reason for which a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotSent {
    /// The message is too large.
    #[error("a message of {bytes} bytes is larger than {COMPANION_MESSAGE_BYTES_MAX}, the maximum")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
    },
    /// Too many messages to this node wait to be sent.
    #[error("too many messages to this node wait to be sent")]
    Full,
    /// There is no such node, as far as is known.
    #[error("there is no such node")]
    Unknown,
    /// The node's work on the job is over.
    #[error("the work on the job is over")]
    Over,
}

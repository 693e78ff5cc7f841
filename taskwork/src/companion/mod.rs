//! Companions: the part of a framework that runs next to the pool of a job, on each node that works on the job.
//!
//! Tasks are moved, split and repeated as the runtime needs. That does not suit a store of results, warm processes
//! of another language, or a scheduler that knows where data is. Such a part of a framework is a [`Companion`]. It
//! lives as long as the node's work on a job, is notified of other nodes, exchanges messages with their companions
//! over the existing connections, and is asked to rescue its data before its node leaves. Data of any size is not sent
//! in messages, but offered and fetched as [objects](Objects).
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
//! use taskwork::{companion::{Companion, CompanionContext, CompanionEvent}, Context, Hooks, Outcome, Task};
//!
//! /// Greets every node that joins, and counts the greetings.
//! async fn greet(mut cx: CompanionContext, heard: Arc<AtomicUsize>) -> Result<(), String> {
//!     while let Some(event) = cx.next().await {
//!         match event {
//!             // A companion that starts later greets, too.
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
//!     const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|_shared| {
//!         let heard = Arc::new(AtomicUsize::new(0));
//!         Some(Companion::new(Arc::clone(&heard), |cx| greet(cx, heard)))
//!     });
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

mod content;
mod desk;
mod journal;
mod objects;
mod places;
mod status;

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

pub use self::{
    content::{ObjectContent, ObjectHasher, ObjectName, ObjectNameError},
    journal::{Journal, JournalError, Written},
    objects::{FetchError, Fetching, Objects, Offer},
    places::Places,
    status::{JobStatus, Load, StatusProvider},
};
pub(crate) use self::{
    desk::Desk,
    journal::Request as JournalRequest,
    objects::{Exchange, Owners, Work},
    places::Supply,
    status::highest,
};
use crate::id::{JobId, NodeId};

/// The maximum size of a message to a companion, in bytes.
pub(crate) const COMPANION_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A part of a framework that runs next to the pool of a job on a node.
pub struct Companion {
    pub(crate) handle: Handle,
    pub(crate) run: Run,
}

/// The part of a companion that tasks can access.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// Starts a companion.
pub(crate) type Run = Box<dyn FnOnce(CompanionContext) -> Running + Send>;

/// The thread of a companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A separate thread, so that it cannot block other parts of the node.
    Thread,
    /// The thread of the node: virtual time has only one.
    Here,
}

/// The future of a running companion.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

impl Companion {
    /// Creates a companion. Tasks on its node access `handle` with [`Context::companion`](crate::Context::companion).
    ///
    /// `run` is called when the node starts to work on the job, on a separate thread with a tokio runtime: it may
    /// compute, but delays its own events while it does. It should complete soon after [`CompanionContext::next`] has
    /// returned `None`; a thread that does not exit within a few seconds is abandoned. If it returns an error, or
    /// panics, the job fails with that as its reason.
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
    objects: Objects,
}

/// The resources of a companion's node.
#[derive(Debug, Clone)]
pub(crate) struct Means {
    pub(crate) workers: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) labels: Labels,
    /// Whether the job runs on a cluster.
    pub(crate) is_public: bool,
    pub(crate) places: Places,
}

impl CompanionContext {
    pub(crate) fn new(
        job: JobId,
        (node, means): (NodeId, Means),
        desk: Arc<Desk>,
        outbox: Arc<dyn Outbox>,
        journal: Journal,
        objects: Objects,
    ) -> Self {
        Self { job, means, desk, messenger: Messenger { node, outbox }, journal, objects }
    }

    /// Returns the job.
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// Returns the node.
    pub fn node(&self) -> NodeId {
        self.messenger.node
    }

    /// Returns the number of workers of the node, which all its jobs share.
    pub fn workers(&self) -> usize {
        self.means.workers
    }

    /// Returns the places of workers that this companion may use for computing threads of its own. They have the weight and
    /// the priority of the job, like its tasks. The function given to [`Places::open`] must not own this context.
    pub fn places(&self) -> &Places {
        &self.means.places
    }

    /// Returns the memory that the node may use, in bytes; 0 if unknown.
    pub fn memory_bytes(&self) -> u64 {
        self.means.memory_bytes
    }

    /// Returns the labels of the node.
    pub fn labels(&self) -> &Labels {
        &self.means.labels
    }

    /// Returns whether other programs can observe the job: true on a cluster, false within one process.
    pub fn is_public(&self) -> bool {
        self.means.is_public
    }

    /// Sets the provider of this companion's job status, as long as that exists. Further calls have no effect.
    pub fn set_status_provider(&self, provider: Weak<dyn StatusProvider>) {
        self.desk.provider.set(provider);
    }

    /// Returns the messenger, which can be cloned and used on other threads.
    pub fn messenger(&self) -> &Messenger {
        &self.messenger
    }

    /// Returns the access to byte objects, which can be cloned and used on other threads.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the journal of the job.
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
#[non_exhaustive]
pub enum CompanionEvent {
    /// An attempt at the job has started. The first one is reported, too.
    Attempt {
        /// Its number, from 1.
        number: u32,
    },
    /// A node works on the job, is about to, or could. Its companion may start later: until then
    /// messages to it are [refused](Refusal::Absent).
    Joined {
        /// The node.
        node: NodeId,
    },
    /// A node has left. If it comes back, it has another id.
    Left {
        /// The node.
        node: NodeId,
    },
    /// A message from the companion on another node, or from this one. Messages in flight are lost when a connection
    /// breaks, and they may overtake each other and the events about their node and attempt.
    Message {
        /// The sending node.
        from: NodeId,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// A message of this companion was not accepted. It is not repeated automatically.
    Refused {
        /// The receiving node.
        to: NodeId,
        /// The number that [`Messenger::send`] has returned.
        number: u64,
        /// The reason.
        why: Refusal,
    },
    /// An operator has cordoned or uncordoned the node. A cordoned node completes its work, and should take no more.
    Cordon {
        /// Whether it is cordoned now. A node that is not cordoned when the companion starts reports nothing.
        is_cordoned: bool,
    },
    /// The node is about to leave the job, because it was asked to leave or the job is suspended.
    Rescue(Rescue),
}

/// The reason for which a message was not accepted by the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many messages wait for the receiving companion. Send less, or later.
    Full,
    /// The node does not currently work on the job, or its companion has exited.
    Absent,
}

/// The request to move data to other nodes that would be lost with this one. The node leaves when this value is
/// dropped, or when its time is up.
///
/// Tasks continue to run during that, until their next poll afterwards. So after this event a companion should
/// forward all new data from tasks immediately.
#[derive(Debug)]
pub struct Rescue {
    until: Instant,
    /// Completed by being dropped.
    _done: oneshot::Sender<()>,
}

impl Rescue {
    /// Returns the time until which the node waits. It waits shorter if it is asked to leave by a deadline.
    pub fn until(&self) -> Instant {
        self.until
    }
}

/// Sends messages to companions of the same job on other nodes. Clones share the connections.
#[derive(Clone)]
pub struct Messenger {
    node: NodeId,
    outbox: Arc<dyn Outbox>,
}

/// The transport of messages to other nodes.
pub(crate) trait Outbox: Send + Sync {
    /// Sends a message, and returns its number.
    fn send(&self, to: NodeId, bytes: Vec<u8>) -> Result<u64, NotSent>;
}

impl Messenger {
    /// Sends a message of up to 1 MiB to the companion on a node, which may be this one, and returns its number on
    /// this node. Never blocks, and works on any thread.
    ///
    /// The message may be lost, for example with a connection, and is not repeated. If the receiver does not accept it,
    /// [`CompanionEvent::Refused`] reports that, unless that report is lost.
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
#[non_exhaustive]
pub enum NotSent {
    /// The message is too large.
    #[error("a message of {bytes} bytes exceeds the maximum of {COMPANION_MESSAGE_BYTES_MAX}")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
    },
    /// Too many messages to this node wait to be sent.
    #[error("too many messages to this node wait to be sent")]
    Full,
    /// No such node is known.
    #[error("there is no such node")]
    Unknown,
    /// The node's work on the job is over.
    #[error("the work on the job is over")]
    Over,
}

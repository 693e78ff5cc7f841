//! Byte objects: nodes fetch them from the nodes that own them.
//!
//! ```text
//!   fetcher: for each owner in turn              owner
//!     ask on a stream, {name, offset} ──────────▶ is it offered? is a slot free?
//!     block: hash, sink.take ◀── QUIC's window ── slices of the object, at the lowest priority
//!     cut off: continue at the next owner; wrong hash: restart from offset 0
//! ```
//!
//! **Names.** An object is named by its BLAKE3 hash and its length, so the name verifies the content.
//!
//! **Content.** An object is in memory, or is read in parts from a file or another [`ObjectContent`] while it is served.
//!
//! **Trees.** A node can offer an object while fetching it, as far as it was received. Each fetcher verifies the
//! content itself. Nodes must not wait for each other in a cycle: the caller orders them.
//!
//! **Flow control.** While the sink does not accept data, nothing is read, and the owner sends no more than QUIC's
//! stream window. The stream has a lower priority than all messages: a fetch uses the remaining bandwidth.
//!
//! **Bounds.** A node serves and fetches a limited number of objects at a time. Requests over the limit are
//! rejected; the fetcher tries another owner or retries later. Each step of a transfer has a deadline; the whole
//! transfer has none.
//!
//! **Cancellation.** Dropping a fetch stops the stream, and with it the owner.

mod blocking;
#[cfg(test)]
mod companion_tests;
mod exchange;
mod fetch;
mod hashing;
mod object;
mod objects;
mod reach;
mod serve;
mod sink;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Weak, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

pub(crate) use self::blocking::Blocking;
use self::{fetch::Fetch, object::ObjectReader, objects::Objects};
pub(crate) use self::{
    object::{Filling, Object},
    objects::Offer,
    sink::{FileSink, Sink},
    streams::{Opening, Reading, Stream, Streams},
};
pub(super) use self::{
    reach::{Dials, OverQuic},
    serve::serve,
};
use super::TransportLimits;
pub(crate) use crate::companion::{FetchError, ObjectContent, ObjectHasher};
use crate::{
    id::NodeId,
    wire::{
        bulk::{Answer, Ask, ObjectName},
        codec,
    },
};

/// A node's objects, and their exchange with other nodes. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Bulk {
    streams: Arc<dyn Streams>,
    state: Arc<BulkState>,
    /// Runs the fetches of threads that have another runtime, or none.
    runtime: Handle,
}

/// A [`Bulk`] that does not keep the node's endpoint open.
#[derive(Debug, Clone)]
pub(crate) struct WeakBulk {
    streams: Weak<dyn Streams>,
    state: Arc<BulkState>,
    runtime: Handle,
}

/// The state of the exchange of a node.
#[derive(Debug)]
pub(crate) struct BulkState {
    objects: Arc<Objects>,
    /// Permits for serving requests.
    serving: Arc<Semaphore>,
    #[cfg(test)]
    served_max: usize,
    /// Permits for transfers from owners. A fetch that pauses between its rounds has none.
    fetching: Semaphore,
    /// The timeout for the next bytes of an object, on both sides.
    progress: Duration,
    blocking: Blocking,
    /// The bytes of objects passed to the transport for sending.
    sent: AtomicU64,
    /// The bytes of objects received.
    received: AtomicU64,
}

/// Figures of a node's exchange of objects, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkFigures {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// The number of requests being served.
    pub(crate) served: usize,
}

/// The reason why a request was not served.
#[derive(Debug)]
pub(crate) struct Refusal(String);

/// A request that is being served.
pub(crate) struct Serving {
    object: Object,
    pub(crate) reader: ObjectReader,
    /// Shared with reads on other threads: a read that hangs keeps its slot after the request has been given up, so
    /// that such threads do not accumulate.
    _place: Arc<OwnedSemaphorePermit>,
}

impl Bulk {
    /// Must be called on the runtime of the node.
    pub(crate) fn new(streams: Arc<dyn Streams>, state: Arc<BulkState>) -> Self {
        Self { streams, state, runtime: Handle::current() }
    }

    pub(crate) fn downgrade(&self) -> WeakBulk {
        let Self { streams, state, runtime } = self;
        WeakBulk { streams: Arc::downgrade(streams), state: Arc::clone(state), runtime: runtime.clone() }
    }

    pub(crate) fn blocking(&self) -> Blocking {
        self.state.blocking
    }

    /// Returns the runtime of the node.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Offers an object to the other members until the offer is dropped.
    pub(crate) fn offer(&self, object: Object) -> Offer {
        self.state.objects.offer(object)
    }

    /// Fetches an object into a sink, from each owner in turn; `owners` is called in each round. If one fails, the
    /// next one continues at the same offset. Fails when no byte has been received for `patience`, in addition to the
    /// time that an owner takes to answer, and to the wait for a permit.
    ///
    /// # Errors
    /// [`FetchError::Busy`] if an owner was busy in the last round, otherwise the error of the last owner; the sink is
    /// dropped.
    ///
    /// # Cancellation safety
    /// Dropping the future stops the transfer on both sides.
    pub(crate) async fn fetch<S: Sink>(
        &self,
        name: ObjectName,
        sink: S,
        owners: impl Fn() -> Vec<NodeId>,
        patience: Duration,
    ) -> Result<S, FetchError> {
        Fetch::new(&*self.streams, &self.state, name, sink).run(owners, patience).await
    }

    /// Lets an owner know that this node has the whole object, as if it had fetched it there.
    ///
    /// # Errors
    /// If the owner cannot be asked, or does not offer the object.
    pub(crate) async fn confirm(&self, name: ObjectName, owner: NodeId) -> Result<(), FetchError> {
        Fetch::new(&*self.streams, &self.state, name, Vec::<u8>::new()).confirm(owner).await
    }

    #[cfg(test)]
    pub(crate) fn figures(&self) -> BulkFigures {
        use std::sync::atomic::Ordering::Relaxed;
        let BulkState { sent, received, serving, served_max, .. } = &*self.state;
        BulkFigures {
            sent_bytes: sent.load(Relaxed),
            received_bytes: received.load(Relaxed),
            served: served_max - serving.available_permits(),
        }
    }
}

impl WeakBulk {
    /// Offers an object, as [`Bulk::offer`].
    pub(crate) fn offer(&self, object: Object) -> Offer {
        self.state.objects.offer(object)
    }

    /// Returns the exchange, unless the node has given up its seat.
    pub(crate) fn upgrade(&self) -> Option<Bulk> {
        let (streams, state) = (self.streams.upgrade()?, Arc::clone(&self.state));
        Some(Bulk { streams, state, runtime: self.runtime.clone() })
    }
}

impl BulkState {
    pub(crate) fn new(limits: &TransportLimits) -> Self {
        Self {
            objects: Arc::default(),
            serving: Arc::new(Semaphore::new(limits.bulk_served_max)),
            #[cfg(test)]
            served_max: limits.bulk_served_max,
            fetching: Semaphore::new(limits.bulk_fetched_max),
            progress: limits.bulk_progress,
            blocking: limits.blocking,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// Returns the answer to an encoded request, and if it is [`Answer::Here`], the content.
    pub(crate) fn answer(&self, question: &[u8]) -> Result<(Answer, Option<Serving>), Refusal> {
        let Ask { object: name, offset } = codec::decode(question).map_err(Refusal::because)?;
        if offset > name.bytes {
            return Err(Refusal::because("the offset is beyond the end of the object"));
        }
        let Some(object) = self.objects.get(name) else { return Ok((Answer::Unknown, None)) };
        let Ok(place) = Arc::clone(&self.serving).try_acquire_owned() else {
            return Ok((Answer::Busy, None));
        };
        let place = Arc::new(place);
        let reader = object.read_from(offset, self.blocking, &place);
        Ok((Answer::Here, Some(Serving { object, reader, _place: place })))
    }
}

impl Serving {
    /// Records that a member has received the whole object.
    pub(crate) fn on_taken(&self, by: NodeId) {
        self.object.add_taker(by);
    }
}

impl Refusal {
    fn because(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

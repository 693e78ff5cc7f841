//! Byte objects between nodes: fetched by those that need them, from those that have them.
//!
//! ```text
//!   fetcher: for each owner in turn              owner
//!     ask on a stream, {name, offset} ──────────▶ has it? a place free?
//!     block: hash, sink.take ◀── QUIC's window ── slices of the object, below every message
//!     cut off: the next owner goes on at the offset; garbled: from the beginning
//! ```
//!
//! **Names.** An object is named by its BLAKE3 hash and its length, so the name is the check.
//!
//! **Trees.** A node offers what it fetches from the beginning, as far as it has come. Who checks it is each
//! fetcher, for itself. Nodes must not wait for each other in a circle: the caller orders them.
//!
//! **Flow.** What the sink does not take is not read, and the owner sends no more than QUIC's window of a
//! stream. The stream has a lower priority than messages, large ones too: a fetch uses what they leave.
//!
//! **Bounds.** A node serves and fetches a limited number of objects at a time. Who comes in excess is told
//! so, and asks another owner, or again later. No step of a transfer waits without a deadline; the whole has
//! none.
//!
//! **Cancellation.** A dropped fetch stops the stream, and the owner ends.

mod fetch;
mod hashing;
mod object;
mod objects;
mod reach;
mod serve;
mod sink;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Semaphore;

pub(super) use self::serve::serve;
use self::{fetch::Fetch, objects::Objects, reach::Dials};
pub(crate) use self::{
    fetch::FetchError,
    object::{Filling, Object},
    objects::Offer,
    sink::Sink,
};
use super::{Hub, TransportLimits};
use crate::{id::NodeId, wire::bulk::ObjectName};

/// Below messages, small and large.
const BULK_PRIORITY: i32 = -1;

/// A node's objects, and its exchange of them with others. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Bulk(Arc<Hub>);

/// The part of it that belongs to the endpoint.
#[derive(Debug)]
pub(super) struct BulkState {
    objects: Arc<Objects>,
    /// The requests that may be served at a time.
    serving: Semaphore,
    /// The objects that may be fetched at a time.
    fetching: Semaphore,
    dials: Dials,
    /// The bytes of objects that were given to QUIC to be sent.
    sent: AtomicU64,
    /// The bytes of objects that were received.
    received: AtomicU64,
}

/// What a node has exchanged so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkFigures {
    /// The bytes of objects that it has sent to others.
    pub(crate) sent_bytes: u64,
    /// The bytes of objects that it has received.
    pub(crate) received_bytes: u64,
    /// The number of requests that it serves now.
    pub(crate) served: usize,
}

/// The reason for which a request was not served.
#[derive(Debug)]
struct Refusal(String);

impl Bulk {
    pub(super) fn new(hub: &Arc<Hub>) -> Self {
        Self(Arc::clone(hub))
    }

    /// Offers an object to the other members until the offer is dropped.
    pub(crate) fn offer(&self, object: Object) -> Offer {
        self.0.bulk.objects.offer(object)
    }

    /// Fetches an object into a sink, from one owner after another; `owners` is asked for them in each round.
    /// When one fails, the next one goes on where it has ended. Gives up when no byte has come for as long as
    /// `patience`, besides the time that an owner takes to answer.
    ///
    /// # Errors
    /// What the last owner said; the sink is lost.
    ///
    /// # Cancellation safety
    /// Dropping the future ends the transfer on both sides.
    pub(crate) async fn fetch<S: Sink>(
        &self,
        name: ObjectName,
        sink: S,
        owners: impl Fn() -> Vec<NodeId>,
        patience: Duration,
    ) -> Result<S, FetchError> {
        // Whoever fetches ends within a bound, so this wait does.
        let _place = self.0.bulk.fetching.acquire().await.expect("it is never closed");
        Fetch::new(Arc::clone(&self.0), name, sink).run(owners, patience).await
    }

    /// Returns what the node has exchanged so far.
    pub(crate) fn figures(&self) -> BulkFigures {
        let BulkState { sent, received, serving, .. } = &self.0.bulk;
        BulkFigures {
            sent_bytes: sent.load(Relaxed),
            received_bytes: received.load(Relaxed),
            served: self.0.limits.bulk_served_max - serving.available_permits(),
        }
    }
}

impl BulkState {
    pub(super) fn new(limits: &TransportLimits) -> Self {
        Self {
            objects: Arc::default(),
            serving: Semaphore::new(limits.bulk_served_max),
            fetching: Semaphore::new(limits.bulk_fetched_max),
            dials: Dials::default(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
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

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
    sync::{Arc, atomic::AtomicU64},
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

/// A lower priority than that of messages of any size.
const BULK_PRIORITY: i32 = -1;

/// A node's objects, and their exchange with other nodes. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Bulk(Arc<Hub>);

/// The state of the exchange in the endpoint.
#[derive(Debug)]
pub(super) struct BulkState {
    objects: Arc<Objects>,
    /// Permits for serving requests.
    serving: Semaphore,
    /// Permits for fetching objects.
    fetching: Semaphore,
    dials: Dials,
    /// The bytes of objects passed to QUIC for sending.
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
struct Refusal(String);

impl Bulk {
    pub(super) fn new(hub: &Arc<Hub>) -> Self {
        Self(Arc::clone(hub))
    }

    /// Offers an object to the other members until the offer is dropped.
    pub(crate) fn offer(&self, object: Object) -> Offer {
        self.0.bulk.objects.offer(object)
    }

    /// Fetches an object into a sink, from each owner in turn; `owners` is called in each round. If one fails, the
    /// next one continues at the same offset. Fails when no byte has been received for `patience`, in addition to the
    /// time that an owner takes to answer.
    ///
    /// # Errors
    /// The error of the last owner; the sink is dropped.
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
        // Fetches take a bounded time, so this wait does as well.
        let _place = self.0.bulk.fetching.acquire().await.expect("it is never closed");
        Fetch::new(Arc::clone(&self.0), name, sink).run(owners, patience).await
    }

    #[cfg(test)]
    pub(crate) fn figures(&self) -> BulkFigures {
        use std::sync::atomic::Ordering::Relaxed;
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

//! Messages between nodes, over QUIC.
//!
//! ```text
//!   send(to, payload) ─▶ queue of that peer ─▶ link: a connection, dialled when first needed
//!                        bounded in bytes        │ a stream per message, large ones in parallel
//!   arrivals ◀── reader of the connection ◀──────┘
//!                room for it is reserved first
//! ```
//!
//! **Best effort.** A message may be lost with its connection; the protocol core repeats the messages that
//! matter. Failures to send are reported ([`Arrival::Unreachable`]), so that a thief can immediately ask another
//! node. A repeated message that is still being sent is not sent twice ([`Carrier::under_way`]).
//!
//! **Any size.** A message may be as large as any encoded value. Large ones are sent in parallel with small ones,
//! with a deadline for each piece. Queued and arriving messages are bounded in bytes; an overloaded node stops
//! reading.
//!
//! **Objects.** Byte objects of any size are not sent but fetched, on separate streams: [`bulk`].
//!
//! **Trust.** Each node creates a key pair when it starts and publishes the fingerprint of its certificate in its
//! member znode. Both sides of a connection accept only a fingerprint that a current member has published, so
//! trust is rooted in write access to the tree. The sender of a message is the owner of the connection's
//! certificate, regardless of the content. When a member leaves, its connections are closed and its queue is
//! removed. A member's fingerprint may be read only on demand (see [`Peers::find`]); until then its connection is
//! limited to the hello.

mod accept;
pub(crate) mod bulk;
mod connection;
mod errors;
mod identity;
mod limits;
mod link;
mod locks;
mod outgoing;
mod peers;
mod refusals;
mod rooms;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod tests;
mod verify;

use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
};

use quinn::{Connection, Endpoint};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet, time};

use self::{
    bulk::{Bulk, BulkState, Dials, OverQuic},
    link::Link,
    locks::lock,
    outgoing::{NotQueued, Queue},
    refusals::Refusals,
};
pub(crate) use self::{
    errors::TransportError,
    identity::{Fingerprint, Identity},
    limits::TransportLimits,
    outgoing::{Subject, UnderWay},
    peers::{PeerAddress, Peers},
    rooms::{Room, Rooms},
};
use crate::{companion::NotSent, id::NodeId, wire::payload::Payload};

/// An event from the network.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A message, its sender (a member), and the room that it occupies until it has been handled.
    Message { from: NodeId, payload: Vec<u8>, room: Room },
    /// A message could not be sent to this node.
    Unreachable { to: NodeId },
}

/// A best-effort carrier of messages to other nodes.
pub(crate) trait Carrier: Send + Sync {
    /// Sends a message, unless one about the same subject is under way to that node. Never blocks; the
    /// message may be lost.
    fn send(&self, to: NodeId, subject: Option<Subject>, payload: Payload);
    /// Sends a message of a companion. Never blocks; the message may be lost.
    fn send_note(&self, to: NodeId, payload: Payload) -> Result<(), NotSent>;
    /// Returns the progress of the message to a node about a subject.
    fn under_way(&self, to: NodeId, subject: Subject) -> UnderWay;
    /// Delivers queued messages as far as possible within a time limit, and closes all connections.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A node's endpoint with all its connections.
#[derive(Debug)]
pub(crate) struct Transport {
    hub: Arc<Hub>,
    links: Mutex<JoinSet<()>>,
    /// Runs the links: messages are also sent from threads that have another runtime, or none.
    runtime: Handle,
    accepting: JoinSet<()>,
    local: SocketAddr,
}

/// The state shared by all connections of a node.
#[derive(Debug)]
struct Hub {
    me: NodeId,
    endpoint: Endpoint,
    identity: Identity,
    peers: Arc<Peers>,
    arrivals: mpsc::Sender<Arrival>,
    rooms: Rooms,
    limits: TransportLimits,
    refusals: Refusals,
    bulk: Arc<BulkState>,
    /// The owners of objects that are being dialled.
    dials: Dials,
    /// The queue of each peer; a link reads it.
    queues: Mutex<BTreeMap<NodeId, Queue>>,
    /// The open connections with each peer, dialled by either side, from the oldest to the newest.
    connections: Mutex<BTreeMap<NodeId, Vec<Connection>>>,
}

impl Transport {
    /// Listens at an address; port 0 selects any free port. Messages go to `arrivals`; while that is full, nothing
    /// is read.
    ///
    /// # Errors
    /// If the address is in use or does not belong to this machine.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(crate) fn bind(
        me: NodeId,
        identity: Identity,
        listen: SocketAddr,
        peers: Arc<Peers>,
        arrivals: mpsc::Sender<Arrival>,
        limits: TransportLimits,
    ) -> Result<Self, TransportError> {
        let server = verify::server_config(&identity, &peers, &limits)?;
        let not_there = |cause| TransportError::Listen { address: listen, cause };
        let endpoint = Endpoint::server(server, listen).map_err(not_there)?;
        let local = endpoint.local_addr().map_err(not_there)?;
        let hub = Arc::new(Hub {
            me,
            endpoint,
            identity,
            peers,
            arrivals,
            rooms: Rooms::new(&limits),
            bulk: Arc::new(BulkState::new(&limits)),
            dials: Dials::default(),
            limits,
            refusals: Refusals::default(),
            queues: Mutex::default(),
            connections: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept::accept_all(Arc::clone(&hub)));
        Ok(Self { hub, links: Mutex::default(), runtime: Handle::current(), accepting, local })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn bulk(&self) -> Bulk {
        Bulk::new(Arc::new(OverQuic(Arc::clone(&self.hub))), Arc::clone(&self.hub.bulk))
    }

    /// Sends a message on a best-effort basis. Never blocks.
    pub(crate) fn send(&self, to: NodeId, subject: Option<Subject>, payload: impl Into<Payload>) {
        if !self.hub.peers.has(to) {
            tracing::debug!(node = %self.hub.me, %to, "a message could not be sent: the recipient is not a member");
            return self.hub.unreachable(to);
        }
        let mut queues = lock(&self.hub.queues);
        let queue = queues.entry(to).or_insert_with(|| self.link(to));
        match queue.push(payload, subject, &self.hub.limits) {
            Ok(()) | Err(NotQueued::UnderWay) => return,
            Err(NotQueued::Full) => {
                tracing::debug!(node = %self.hub.me, %to, "too many messages are queued; one was dropped");
            }
            // Its link has panicked or was aborted.
            Err(NotQueued::Closed) => *queue = self.link(to),
        }
        drop(queues);
        self.hub.unreachable(to);
    }

    /// Creates the queue of a peer, and starts the link that sends its messages.
    fn link(&self, to: NodeId) -> Queue {
        let (queue, waiting) = Queue::new();
        let mut links = lock(&self.links);
        while links.try_join_next().is_some() {}
        links.spawn_on(Link::new(Arc::clone(&self.hub), to, waiting).run(), &self.runtime);
        queue
    }

    /// Delivers queued messages as far as possible within the time limit, and closes all connections.
    pub(crate) async fn close(mut self) {
        let mut links = std::mem::take(&mut *lock(&self.links));
        lock(&self.hub.queues).clear();
        let delivered = async { while links.join_next().await.is_some() {} };
        if time::timeout(self.hub.limits.close, delivered).await.is_err() {
            tracing::debug!(node = %self.hub.me, "messages were not delivered before the transport closed");
        }
        self.accepting.shutdown().await;
        self.hub.endpoint.close(0_u32.into(), b"closing");
        // Notifies the peers, which would otherwise notice later.
        let _ = time::timeout(self.hub.limits.farewell, self.hub.endpoint.wait_idle()).await;
    }
}

impl Carrier for Transport {
    fn send(&self, to: NodeId, subject: Option<Subject>, payload: Payload) {
        Self::send(self, to, subject, payload);
    }

    fn send_note(&self, to: NodeId, payload: Payload) -> Result<(), NotSent> {
        if !self.hub.peers.has(to) {
            return Err(NotSent::Unknown);
        }
        let mut queues = lock(&self.hub.queues);
        let queue = queues.entry(to).or_insert_with(|| self.link(to));
        match queue.push_note(payload, &self.hub.limits) {
            Ok(()) => Ok(()),
            Err(NotQueued::Full | NotQueued::UnderWay) => Err(NotSent::Full),
            // Its link has panicked or was aborted. The message is lost like others in its queue.
            Err(NotQueued::Closed) => {
                *queue = self.link(to);
                Ok(())
            }
        }
    }

    fn under_way(&self, to: NodeId, subject: Subject) -> UnderWay {
        lock(&self.hub.queues).get(&to).map_or(UnderWay::No, |queue| queue.under_way(subject))
    }

    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Self::close(*self))
    }
}

impl Hub {
    /// Reports that a message was not sent. If there is no room for the report, the thief's timeout takes effect.
    fn unreachable(&self, to: NodeId) {
        let _ = self.arrivals.try_send(Arrival::Unreachable { to });
    }

    /// Removes the queue of a link that wants to stop, provided that `may_end` returns true. It is called under the
    /// lock, so nothing can be queued in between. Returns whether the queue was removed.
    fn retire(&self, to: NodeId, may_end: impl FnOnce() -> bool) -> bool {
        let mut queues = lock(&self.queues);
        let ends = may_end();
        if ends {
            queues.remove(&to);
        }
        ends
    }

    /// Returns the newest open connection with a peer.
    fn connection(&self, peer: NodeId) -> Option<Connection> {
        let connections = lock(&self.connections);
        connections.get(&peer)?.iter().rev().find(|open| open.close_reason().is_none()).cloned()
    }

    /// Adds a connection. If there are too many with the same peer, the oldest one is closed.
    fn remember(&self, peer: NodeId, connection: Connection) {
        let mut connections = lock(&self.connections);
        let its = connections.entry(peer).or_default();
        its.retain(|known| known.close_reason().is_none());
        its.push(connection);
        if its.len() > self.limits.connections_max {
            its.remove(0).close(4_u32.into(), b"too many connections");
        }
    }

    /// Removes a connection that has ended.
    fn forget(&self, peer: NodeId, ended: &Connection) {
        let mut connections = lock(&self.connections);
        if let Some(its) = connections.get_mut(&peer) {
            its.retain(|known| known.stable_id() != ended.stable_id());
            if its.is_empty() {
                connections.remove(&peer);
            }
        }
    }
}

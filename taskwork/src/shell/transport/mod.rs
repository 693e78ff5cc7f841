//! Messages from node to node, over QUIC.
//!
//! ```text
//!   send(to, payload) ─▶ queue of that peer ─▶ link: a connection, dialled when first needed
//!                        bounded in bytes        │ a stream per message, what is not small beside
//!   arrivals ◀── reader of the connection ◀──────┘
//!                room for it is taken first
//! ```
//!
//! **Best effort.** A message may be lost with its connection; the protocol core repeats what matters. What
//! cannot be sent is reported ([`Arrival::Unreachable`]), so that a thief can ask somebody else at once. What
//! is said again while it is still under way is not sent twice ([`Carrier::under_way`]).
//!
//! **Any size.** A message has as many bytes as can be encoded. Large ones go beside the small ones, and have
//! a deadline for each piece. What waits to be sent and what arrives are bounded in bytes; a node that is
//! behind does not read.
//!
//! **Trust.** Each node makes a key pair when it starts; the fingerprint of its certificate stands in its
//! member znode. Both sides of a connection accept only a fingerprint that a current member has published, so
//! trust is rooted in who may write to the tree. A message is from the node whose certificate the connection
//! has, whatever it says itself. When a member goes, its connections are closed, and nothing is kept for it.

mod accept;
mod connection;
mod identity;
mod limits;
mod link;
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
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quinn::{Connection, Endpoint, crypto::rustls::NoInitialCipherSuite};
use thiserror::Error;
use tokio::{sync::mpsc, task::JoinSet, time};

pub(crate) use self::{
    identity::{Fingerprint, Identity},
    limits::TransportLimits,
    peers::{PeerAddress, Peers},
    rooms::{Room, Rooms},
};
use self::{
    link::Link,
    outgoing::{NotQueued, Queue},
    refusals::Refusals,
};
use crate::{id::NodeId, wire::payload::Payload};

/// Why a node cannot listen.
#[derive(Debug, Error)]
pub(crate) enum TransportError {
    #[error("no key pair could be made: {0}")]
    Identity(rcgen::Error),
    #[error("the certificate cannot be used: {0}")]
    Tls(rustls::Error),
    #[error("the ciphers that QUIC needs are missing: {0}")]
    Ciphers(NoInitialCipherSuite),
    #[error("{address}: cannot listen there: {cause}")]
    Listen { address: SocketAddr, cause: io::Error },
}

impl From<rcgen::Error> for TransportError {
    fn from(error: rcgen::Error) -> Self {
        Self::Identity(error)
    }
}

impl From<rustls::Error> for TransportError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl From<NoInitialCipherSuite> for TransportError {
    fn from(error: NoInitialCipherSuite) -> Self {
        Self::Ciphers(error)
    }
}

/// What comes from other nodes.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A message, from the member that sent it, with the room it takes until it was looked at.
    Message { from: NodeId, payload: Vec<u8>, room: Room },
    /// A message could not be sent to this node.
    Unreachable { to: NodeId },
}

/// What a message is about: of several about the same to one node, one at a time is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    /// The job, by its number.
    pub(crate) job: u64,
    /// A grant of it.
    pub(crate) grant: u64,
    /// What is said of the grant.
    pub(crate) kind: u8,
}

/// How far a message is.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnderWay {
    /// There is none: it has arrived, or is lost, or was never sent.
    No,
    /// It waits to be sent.
    Waits,
    /// It is being sent, and nothing says that it does not get on.
    Moves,
}

/// What carries messages to other nodes, as well as it can.
pub(crate) trait Carrier: Send + Sync {
    /// Sends a message, unless one about the same is under way to that node. Never waits; the message may be
    /// lost.
    fn send(&self, to: NodeId, subject: Option<Subject>, payload: Payload);
    /// How far the message to a node about something is.
    fn under_way(&self, to: NodeId, subject: Subject) -> UnderWay;
    /// Delivers what waits, as far as that is possible within a limit, and ends all connections.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A node's end of all its connections.
#[derive(Debug)]
pub(crate) struct Transport {
    hub: Arc<Hub>,
    links: Mutex<JoinSet<()>>,
    accepting: JoinSet<()>,
    local: SocketAddr,
}

/// What all connections of a node share.
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
    /// What waits for each peer; a link takes it from there.
    queues: Mutex<BTreeMap<NodeId, Queue>>,
    /// The connections with each peer, whoever dialled them; the latest is the last.
    connections: Mutex<BTreeMap<NodeId, Vec<Connection>>>,
}

impl Transport {
    /// Listens at an address; port 0 takes any. What arrives goes to `arrivals`; while that is full, nothing
    /// is read.
    ///
    /// # Errors
    /// If the address is taken or not of this machine.
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
            limits,
            refusals: Refusals::default(),
            queues: Mutex::default(),
            connections: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept::accept_all(Arc::clone(&hub)));
        Ok(Self { hub, links: Mutex::default(), accepting, local })
    }

    /// Where this node listens.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Sends a message, as well as it can. Never waits.
    pub(crate) fn send(&self, to: NodeId, subject: Option<Subject>, payload: impl Into<Payload>) {
        if self.hub.peers.get(to).is_none() {
            tracing::debug!(node = %self.hub.me, %to, "a message could not be sent: it is no member");
            return self.hub.unreachable(to);
        }
        let mut queues = lock(&self.hub.queues);
        let queue = queues.entry(to).or_insert_with(|| self.link(to));
        match queue.push(payload, subject, &self.hub.limits) {
            Ok(()) | Err(NotQueued::UnderWay) => return,
            Err(NotQueued::Full) => {
                tracing::debug!(node = %self.hub.me, %to, "too many messages wait; one was dropped");
            }
            // Its link has come to a bad end.
            Err(NotQueued::Closed) => *queue = self.link(to),
        }
        drop(queues);
        self.hub.unreachable(to);
    }

    /// Begins to send to a peer what will be put into a queue.
    fn link(&self, to: NodeId) -> Queue {
        let (queue, waiting) = Queue::new();
        let mut links = lock(&self.links);
        while links.try_join_next().is_some() {}
        links.spawn(Link::new(Arc::clone(&self.hub), to, waiting).run());
        queue
    }

    /// Delivers what waits, as far as that is possible within the limit, and closes all connections.
    pub(crate) async fn close(mut self) {
        let mut links = std::mem::take(&mut *lock(&self.links));
        lock(&self.hub.queues).clear();
        let delivered = async { while links.join_next().await.is_some() {} };
        if time::timeout(self.hub.limits.close, delivered).await.is_err() {
            tracing::debug!(node = %self.hub.me, "messages were left undelivered at the end");
        }
        self.accepting.shutdown().await;
        self.hub.endpoint.close(0_u32.into(), b"closing");
        // So that the others hear of it; they would find out by themselves, only later.
        let _ = time::timeout(self.hub.limits.farewell, self.hub.endpoint.wait_idle()).await;
    }
}

impl Carrier for Transport {
    fn send(&self, to: NodeId, subject: Option<Subject>, payload: Payload) {
        Self::send(self, to, subject, payload);
    }

    fn under_way(&self, to: NodeId, subject: Subject) -> UnderWay {
        lock(&self.hub.queues).get(&to).map_or(UnderWay::No, |queue| queue.under_way(subject))
    }

    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Self::close(*self))
    }
}

impl Hub {
    /// Says that a message did not go. If nobody has room to hear it, the asker's own deadline will say so.
    fn unreachable(&self, to: NodeId) {
        let _ = self.arrivals.try_send(Arrival::Unreachable { to });
    }

    /// The link to a peer wants to end; it does if nothing can have been put into its queue since it looked.
    fn retire(&self, to: NodeId, may_end: impl FnOnce() -> bool) -> bool {
        let mut queues = lock(&self.queues);
        let ends = may_end();
        if ends {
            queues.remove(&to);
        }
        ends
    }

    /// The latest connection with a peer that is not closed.
    fn connection(&self, peer: NodeId) -> Option<Connection> {
        let connections = lock(&self.connections);
        connections.get(&peer)?.iter().rev().find(|open| open.close_reason().is_none()).cloned()
    }

    /// Keeps a connection. Of too many with the same peer the oldest is closed.
    fn remember(&self, peer: NodeId, connection: Connection) {
        let mut connections = lock(&self.connections);
        let its = connections.entry(peer).or_default();
        its.retain(|known| known.close_reason().is_none());
        its.push(connection);
        if its.len() > self.limits.connections_max {
            its.remove(0).close(4_u32.into(), b"too many connections");
        }
    }

    /// Forgets a connection that has ended.
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

/// Locks; nothing that can panic is done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

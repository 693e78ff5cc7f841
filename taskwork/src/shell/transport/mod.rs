//! Messages from node to node, over QUIC.
//!
//! ```text
//!   send(to, payload) ─▶ queue of that peer ─▶ link: a connection, dialled when first needed
//!                                                │ a stream per message
//!   arrivals ◀── reader of the connection ◀──────┘
//! ```
//!
//! **Best effort.** A message may be lost with its connection; the protocol core repeats what matters. What cannot be
//! sent is reported ([`Arrival::Unreachable`]), so that a thief can ask somebody else at once.
//!
//! **Trust.** Each node makes a key pair when it starts; the fingerprint of its certificate stands in its member znode.
//! Both sides of a connection accept only a fingerprint that a current member has published, so trust is rooted in who may
//! write to the tree. A message is from the node whose certificate the connection has, whatever it says itself. When a member
//! goes, its connections are closed.

mod connection;
mod identity;
mod limits;
mod link;
mod peers;
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

use quinn::{Connection, Endpoint};
use thiserror::Error;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinSet,
    time,
};

pub(crate) use self::{
    identity::{Fingerprint, Identity},
    limits::TransportLimits,
    peers::{PeerAddress, Peers},
};
use crate::id::NodeId;

/// Why a node cannot listen.
#[derive(Debug, Error)]
pub(crate) enum TransportError {
    #[error("no key pair could be made: {0}")]
    Identity(#[from] rcgen::Error),
    #[error("the certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the ciphers that QUIC needs are missing: {0}")]
    Ciphers(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
    #[error("{address}: cannot listen there: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// What comes from other nodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A message, from the member that sent it.
    Message { from: NodeId, payload: Vec<u8> },
    /// A message could not be sent to this node.
    Unreachable { to: NodeId },
}

/// What carries messages to other nodes, as well as it can.
pub(crate) trait Carrier: Send + Sync {
    /// Sends a message. Never waits; the message may be lost.
    fn send(&self, to: NodeId, payload: Vec<u8>);
    /// Delivers what waits, as far as that is possible within a limit, and ends all connections.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A node's end of all its connections.
#[derive(Debug)]
pub(crate) struct Transport {
    hub: Arc<Hub>,
    links: Mutex<Links>,
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
    limits: TransportLimits,
    /// The latest connection with each peer, whoever dialled it.
    connections: Mutex<BTreeMap<NodeId, Connection>>,
}

#[derive(Debug, Default)]
struct Links {
    queues: BTreeMap<NodeId, mpsc::Sender<Vec<u8>>>,
    tasks: JoinSet<()>,
}

impl Transport {
    /// Listens at an address; port 0 takes any. What arrives goes to `arrivals`; while that is full, nothing is read.
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
        let not_there = |source| TransportError::Listen { address: listen, source };
        let endpoint = Endpoint::server(server, listen).map_err(not_there)?;
        let local = endpoint.local_addr().map_err(not_there)?;
        let connections = Mutex::default();
        let hub = Arc::new(Hub { me, endpoint, identity, peers, arrivals, limits, connections });
        let mut accepting = JoinSet::new();
        accepting.spawn(connection::accept_all(Arc::clone(&hub)));
        Ok(Self { hub, links: Mutex::default(), accepting, local })
    }

    /// Where this node listens.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Sends a message, as well as it can. Never waits.
    pub(crate) fn send(&self, to: NodeId, payload: Vec<u8>) {
        let mut links = lock(&self.links);
        let refused = match links.queues.get(&to) {
            None => Some(payload),
            Some(queue) => match queue.try_send(payload) {
                Ok(()) => None,
                Err(TrySendError::Closed(payload)) => Some(payload),
                Err(TrySendError::Full(_)) => {
                    tracing::debug!(node = %self.hub.me, %to, "too many messages wait; one was dropped");
                    return self.hub.unreachable(to);
                }
            },
        };
        let Some(payload) = refused else { return };
        let (queue, waiting) = mpsc::channel(self.hub.limits.queued_messages_max);
        // The channel is new, and takes at least one.
        let _ = queue.try_send(payload);
        links.queues.insert(to, queue);
        while links.tasks.try_join_next().is_some() {}
        links.tasks.spawn(link::run(Arc::clone(&self.hub), to, waiting));
    }

    /// Delivers what waits, as far as that is possible within the limit, and closes all connections.
    pub(crate) async fn close(mut self) {
        let mut links = std::mem::take(&mut *lock(&self.links));
        links.queues.clear();
        let delivered = async { while links.tasks.join_next().await.is_some() {} };
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
    fn send(&self, to: NodeId, payload: Vec<u8>) {
        Self::send(self, to, payload);
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

    /// A connection with a peer that is not closed.
    fn connection(&self, peer: NodeId) -> Option<Connection> {
        lock(&self.connections).get(&peer).filter(|open| open.close_reason().is_none()).cloned()
    }

    fn remember(&self, peer: NodeId, connection: Connection) {
        lock(&self.connections).insert(peer, connection);
    }

    /// Forgets a connection that has ended, unless a newer one has taken its place.
    fn forget(&self, peer: NodeId, ended: &Connection) {
        let mut connections = lock(&self.connections);
        if connections.get(&peer).is_some_and(|known| known.stable_id() == ended.stable_id()) {
            connections.remove(&peer);
        }
    }
}

/// Locks; nothing that can panic is done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What a node process stands on: how it comes to the tree of znodes and to the other nodes. On machines that
//! is a session with ZooKeeper and a QUIC endpoint; everything above does not know.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use rand::Rng as _;
use tokio::sync::mpsc;
use zk::{Connect, Store};

use super::{
    seat::SeatError,
    serve::ServeError,
    transport::{Arrival, Carrier, Identity, Peers, Transport, TransportLimits},
};
use crate::id::NodeId;

/// The result of connecting, to come.
pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Store>, ServeError>> + Send + 'a>>;

/// What a node process stands on.
pub(crate) trait Platform: Send + Sync {
    /// Opens a session on the tree.
    fn connect(&self) -> Connecting<'_>;
    /// A seed for what is left to chance when nodes fail together. The same each time where all is to be
    /// replayed.
    fn chance(&self) -> u64 {
        0
    }
    /// An id that no node has had.
    fn new_id(&self) -> NodeId;
    /// Opens a node's way to the others.
    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError>;
}

/// A node's way to the others.
pub(crate) struct Network {
    pub(crate) carrier: Box<dyn Carrier>,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
}

/// A way that is open, with what the others must know to use it.
pub(crate) struct Endpoint {
    pub(crate) network: Network,
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: String,
    /// Those that are let in; the seat keeps the table.
    pub(crate) peers: Arc<Peers>,
}

/// Where the others find a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advertise {
    pub(crate) ip: IpAddr,
    /// `None` is the port that the node listens on.
    pub(crate) port: Option<u16>,
}

/// How many messages of peers may wait.
pub(crate) const ARRIVALS_MAX: usize = 1024;

/// Listens for other nodes, by QUIC.
pub(crate) fn listen(
    node: NodeId,
    listen: SocketAddr,
    advertise: Option<Advertise>,
) -> Result<Endpoint, SeatError> {
    if listen.ip().is_unspecified() && advertise.is_none() {
        return Err(SeatError::NoAddress { listen });
    }
    let identity = Identity::generate(node)?;
    let fingerprint = identity.fingerprint().to_string();
    let peers = Arc::new(Peers::default());
    let (sender, arrivals) = mpsc::channel(ARRIVALS_MAX);
    let limits = TransportLimits::default();
    let transport = Transport::bind(node, identity, listen, Arc::clone(&peers), sender, limits)?;
    let local = transport.local_address();
    let found = |at: Advertise| SocketAddr::new(at.ip, at.port.unwrap_or(local.port()));
    let address = advertise.map_or(local, found);
    Ok(Endpoint { network: Network { carrier: Box::new(transport), arrivals }, address, fingerprint, peers })
}

/// A machine: ZooKeeper and QUIC.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) connect: Connect,
    pub(crate) listen: SocketAddr,
    pub(crate) advertise: Option<Advertise>,
}

impl Platform for Machine {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Ok(self.connect.open().await? as Arc<dyn Store>) })
    }

    fn chance(&self) -> u64 {
        rand::rng().random()
    }

    fn new_id(&self) -> NodeId {
        NodeId(rand::rng().random_range(1..=u64::MAX))
    }

    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError> {
        listen(node, self.listen, self.advertise)
    }
}

//! The platform of a node process: its access to the znode tree and to the other nodes. On a machine these
//! are a session with ZooKeeper and a QUIC endpoint; the layers above are independent of it.

use std::{
    future::Future,
    io,
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
    transport::{Arrival, Carrier, Identity, Peers, Transport, TransportLimits, bulk::Bulk},
};
use crate::{id::NodeId, pool::Crew};

/// The future of a connection to the tree.
pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Store>, ServeError>> + Send + 'a>>;

/// The platform of a node process.
pub(crate) trait Platform: Send + Sync {
    /// Opens a session on the tree.
    fn connect(&self) -> Connecting<'_>;
    /// Returns a seed for random choices that separate nodes which fail together. It is the same each time
    /// where runs must be replayed.
    fn chance(&self) -> u64 {
        0
    }
    /// Returns an id that no node has had.
    fn new_id(&self) -> NodeId;
    /// Starts a node's workers.
    fn start_crew(&self, workers: usize) -> io::Result<Crew> {
        Crew::start(workers)
    }
    /// Opens a node's endpoint.
    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError>;
}

/// A node's connection to the other nodes.
pub(crate) struct Network {
    pub(crate) carrier: Box<dyn Carrier>,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
}

/// An open endpoint, with the data that other nodes need to reach it.
pub(crate) struct Endpoint {
    pub(crate) network: Network,
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: String,
    /// The accepted peers; the seat maintains the table.
    pub(crate) peers: Arc<Peers>,
    /// The exchange of byte objects, where there is one.
    pub(crate) bulk: Option<Bulk>,
}

/// The address at which others reach a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advertise {
    pub(crate) ip: IpAddr,
    /// `None` means the port that the node listens on.
    pub(crate) port: Option<u16>,
}

/// The maximum number of queued messages of peers.
pub(crate) const ARRIVALS_MAX: usize = 1024;

/// Listens for other nodes by QUIC.
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
    let bulk = Some(transport.bulk());
    let network = Network { carrier: Box::new(transport), arrivals };
    Ok(Endpoint { network, address, fingerprint, peers, bulk })
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

//! Entry points for the project's benchmarks: the exchange of byte objects, without a cluster.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    companion::ObjectNameError,
    id::NodeId,
    shell::transport::{
        Arrival, Identity, PeerAddress, Peers, Transport, TransportError, TransportLimits,
        bulk::{Object, Offer, Sink},
    },
};

/// A node's endpoint, which offers and fetches objects.
pub struct Exchange {
    transport: Transport,
    peers: Arc<Peers>,
    card: Card,
    _arrivals: mpsc::Receiver<Arrival>,
}

/// The contact data of a node: its number, its address, and the fingerprint of its certificate.
pub type Card = (u64, SocketAddr, String);

/// An offered object, until it is dropped.
pub struct Offered {
    name: String,
    _offer: Offer,
}

/// A sink that counts bytes.
struct Counts(u64);

impl Sink for Counts {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }

    async fn clear(&mut self) -> io::Result<()> {
        self.0 = 0;
        Ok(())
    }
}

/// The maximum time of a fetch without progress.
const PATIENCE: Duration = Duration::from_secs(60);

impl Exchange {
    /// Listens on the loopback interface, in the current runtime.
    ///
    /// # Errors
    /// If the address is unavailable.
    pub fn open(number: u64) -> Result<Self, String> {
        let opening = || {
            let (node, peers) = (NodeId(number), Arc::new(Peers::default()));
            let identity = Identity::generate(node)?;
            let fingerprint = identity.fingerprint().to_string();
            let (sender, arrivals) = mpsc::channel(1);
            let (listen, limits) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), TransportLimits::default());
            let transport = Transport::bind(node, identity, listen, Arc::clone(&peers), sender, limits)?;
            let card = (number, transport.local_address(), fingerprint);
            Ok(Self { transport, peers, card, _arrivals: arrivals })
        };
        opening().map_err(|error: TransportError| error.to_string())
    }

    /// Returns the contact data of this node.
    pub fn card(&self) -> Card {
        self.card.clone()
    }

    /// Makes another node a member.
    ///
    /// # Errors
    /// If its fingerprint is invalid.
    pub fn meet(&self, (number, address, fingerprint): Card) -> Result<(), String> {
        let fingerprint = fingerprint.parse().map_err(|_| format!("{fingerprint} is no fingerprint"))?;
        self.peers.set(NodeId(number), PeerAddress { address, fingerprint });
        Ok(())
    }

    /// Offers an object.
    pub fn offer(&self, pieces: Vec<Bytes>) -> Offered {
        let object = Object::new(pieces);
        Offered { name: object.name().to_string(), _offer: self.transport.bulk().offer(object) }
    }

    /// Fetches an object, drops its bytes, and returns their number.
    ///
    /// # Errors
    /// If the fetch fails.
    pub async fn fetch(&self, name: &str, owners: &[u64]) -> Result<u64, String> {
        let name = name.parse().map_err(|error: ObjectNameError| error.to_string())?;
        let owners = || owners.iter().map(|&number| NodeId(number)).collect();
        let fetched = self.transport.bulk().fetch(name, Counts(0), owners, PATIENCE).await;
        fetched.map(|counts| counts.0).map_err(|error| error.to_string())
    }
}

impl Offered {
    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("card", &self.card).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Offered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offered").field("name", &self.name).finish_non_exhaustive()
    }
}

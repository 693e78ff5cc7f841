//! The platform of a node process: its access to the znode tree and to other nodes. On a machine these are a
//! session with ZooKeeper and a QUIC endpoint; the layers above do not depend on it.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::Rng as _;
use tokio::{net, sync::mpsc, time};
use zk::{Connect, Store, figures::ProcessNow};

use super::{
    errors::{SeatError, ServeError},
    process,
    transport::{Arrival, Carrier, Identity, Peers, Transport, TransportLimits, bulk::Bulk},
};
use crate::{core, id::NodeId, pool::Crew};

pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Store>, ServeError>> + Send + 'a>>;

pub(crate) trait Platform: Send + Sync {
    /// Opens a session on the tree.
    fn connect(&self) -> Connecting<'_>;
    /// Returns a seed for random choices of nodes that fail together, so that they differ. It is constant where runs
    /// must be replayable.
    fn chance(&self) -> u64 {
        0
    }
    /// Returns an id that no node has ever had.
    fn new_id(&self) -> NodeId;
    fn start_crew(&self, workers: usize) -> io::Result<Crew> {
        Crew::start(workers)
    }
    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError>;
    fn probe(&self) -> Arc<dyn Probe> {
        Arc::new(Process)
    }
}

/// The platform's hooks into a node.
pub(crate) trait Probe: Send + Sync {
    fn process(&self) -> ProcessNow {
        process::now()
    }
    /// Returns the name of the machine and the id of the process.
    fn place(&self) -> (String, u32) {
        (process::host(), std::process::id())
    }
    /// Receives the core after each event.
    fn on_event(&self, core: &core::Node) {
        let _ = core;
    }
}

/// The probe of nodes that run as a process or within one.
pub(crate) struct Process;

impl Probe for Process {}

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
    /// The exchange of byte objects, if there is one.
    pub(crate) bulk: Option<Bulk>,
}

/// A host, by address or name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostName {
    Ip(IpAddr),
    Name(String),
}

/// The address at which other nodes reach this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertise {
    pub(crate) host: HostName,
    /// `None` means the port on which the node listens.
    pub(crate) port: Option<u16>,
}

/// The maximum number of queued messages of peers.
pub(crate) const ARRIVALS_MAX: usize = 1024;

/// Listens for other nodes over QUIC.
pub(crate) fn listen(
    node: NodeId,
    listen: SocketAddr,
    advertise: Option<(IpAddr, Option<u16>)>,
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
    let found = |(ip, port): (IpAddr, Option<u16>)| SocketAddr::new(ip, port.unwrap_or(local.port()));
    let address = advertise.map_or(local, found);
    // A socket for all addresses of IPv6 usually accepts IPv4 as well.
    if address.is_ipv4() != local.is_ipv4() && local.is_ipv4() {
        tracing::warn!(%local, %address, "the node listens on IPv4 and advertises an address of IPv6: check --listen");
    }
    let bulk = Some(transport.bulk());
    let network = Network { carrier: Box::new(transport), arrivals };
    Ok(Endpoint { network, address, fingerprint, peers, bulk })
}

/// The time limit for resolving the node's advertised name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A machine: ZooKeeper and QUIC.
#[derive(Debug)]
pub(crate) struct Machine {
    connect: Connect,
    listen: SocketAddr,
    advertise: Option<Advertise>,
    /// The address of the advertised name at the last lookup.
    found: Mutex<Option<IpAddr>>,
}

impl Machine {
    pub(crate) fn new(connect: Connect, listen: SocketAddr, advertise: Option<Advertise>) -> Self {
        Self { connect, listen, advertise, found: Mutex::default() }
    }

    /// Resolves the address at which other nodes reach this node.
    async fn find(&self) -> Result<(), SeatError> {
        let ip = match self.advertise.as_ref().map(|at| &at.host) {
            None => return Ok(()),
            Some(HostName::Ip(ip)) => *ip,
            Some(HostName::Name(name)) => {
                let lookup = time::timeout(LOOKUP_TIMEOUT, net::lookup_host((name.as_str(), 0))).await;
                let lookup = lookup.map(|found| found.map(|all| all.map(|at| at.ip()).collect()));
                let all: Vec<IpAddr> = looked_up(name, lookup.ok())?;
                self.best_of(&all).map_err(|why| SeatError::UnknownName { name: name.clone(), why })?
            }
        };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(ip);
        Ok(())
    }

    /// Chooses among the addresses of a name. On many machines, the machine's own name resolves to a loopback address.
    fn best_of(&self, all: &[IpAddr]) -> Result<IpAddr, String> {
        let first = all.first().ok_or("the name server returned no address")?;
        let is_reached = |ip: &&IpAddr| self.listen.ip().is_loopback() || !ip.is_loopback();
        let mut reached = all.iter().filter(is_reached).peekable();
        let Some(&&first_reached) = reached.peek() else {
            return Err(format!("on this machine it resolves to {first}, which other machines cannot reach"));
        };
        match reached.find(|ip| ip.is_ipv4() == self.listen.is_ipv4()) {
            Some(best) => Ok(*best),
            // A socket for IPv6 usually accepts IPv4 as well.
            None if self.listen.is_ipv6() => Ok(first_reached),
            None => Err(format!(
                "on this machine it resolves to {first_reached}, an IPv6 address, but the node listens on {}, an IPv4 \
                 address: listen on an IPv6 address such as [::] (--listen), or specify a host with an IPv4 address",
                self.listen.ip()
            )),
        }
    }
}

/// Error messages of the standard library for temporary failures of the name service, which have no error kind.
const LATER: [&str; 2] = ["Temporary failure", "Try again"];

/// Returns the addresses found for a name; `found` is `None` after a timeout.
fn looked_up(name: &str, found: Option<io::Result<Vec<IpAddr>>>) -> Result<Vec<IpAddr>, SeatError> {
    let name = name.to_owned();
    match found {
        Some(Ok(all)) => Ok(all),
        None => Err(SeatError::NoNameService { name, why: "the name server does not answer".to_owned() }),
        Some(Err(error)) => {
            let why = error.to_string();
            let is_timeout = error.kind() == io::ErrorKind::TimedOut;
            if is_timeout || LATER.iter().any(|later| why.contains(later)) {
                Err(SeatError::NoNameService { name, why })
            } else {
                Err(SeatError::UnknownName { name, why })
            }
        }
    }
}

impl Platform for Machine {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            // Before a session is opened, which would have to be kept alive during the lookup.
            self.find().await?;
            Ok(self.connect.open().await?)
        })
    }

    fn chance(&self) -> u64 {
        rand::rng().random()
    }

    fn new_id(&self) -> NodeId {
        NodeId(rand::rng().random_range(1..=u64::MAX))
    }

    fn open_endpoint(&self, node: NodeId) -> Result<Endpoint, SeatError> {
        let found = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        listen(node, self.listen, found.map(|ip| (ip, self.advertise.as_ref().and_then(|at| at.port))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, listen: &str) -> Machine {
        let advertise = Advertise { host: HostName::Name(name.to_owned()), port: None };
        Machine::new(Connect::new("127.0.0.1:1"), listen.parse().unwrap(), Some(advertise))
    }

    #[tokio::test]
    async fn advertised_name_is_resolved_to_its_address() {
        let machine = machine("localhost", "127.0.0.1:0");
        machine.find().await.unwrap();
        let endpoint = machine.open_endpoint(NodeId(7)).unwrap();
        assert_eq!(endpoint.address.ip(), IpAddr::from([127, 0, 0, 1]));
        assert_ne!(endpoint.address.port(), 0);
    }

    #[test]
    fn reachable_address_of_the_name_is_chosen() {
        let best = |listen: &str, all: &[&str]| {
            let all: Vec<IpAddr> = all.iter().map(|ip| ip.parse().unwrap()).collect();
            machine("name", listen).best_of(&all).map(|ip| ip.to_string())
        };
        assert_eq!(best("0.0.0.0:0", &["127.0.1.1", "2001:db8::1", "192.0.2.1"]), Ok("192.0.2.1".to_owned()));
        assert_eq!(best("[::]:0", &["192.0.2.1", "2001:db8::1"]), Ok("2001:db8::1".to_owned()));
        assert_eq!(best("[::]:0", &["192.0.2.1"]), Ok("192.0.2.1".to_owned()));
        let other_kind = best("0.0.0.0:0", &["::1", "2001:db8::1"]).unwrap_err();
        assert!(
            other_kind.contains("2001:db8::1, an IPv6 address") && other_kind.contains("--listen"),
            "{other_kind}"
        );
        assert_eq!(best("127.0.0.1:0", &["127.0.1.1"]), Ok("127.0.1.1".to_owned()));
        assert!(best("0.0.0.0:0", &["127.0.1.1"]).unwrap_err().contains("127.0.1.1"));
        assert!(best("0.0.0.0:0", &[]).is_err());
    }

    #[tokio::test]
    async fn unknown_name_is_reported() {
        let error = machine("no-such-host.invalid", "127.0.0.1:0").find().await.unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid") && error.contains("--advertise"), "{error}");
    }

    #[test]
    fn unanswered_name_lookup_is_temporary() {
        let is_temporary = |found| ServeError::from(looked_up("name", found).unwrap_err()).is_temporary();
        let said =
            |text: &str| Some(Err(io::Error::other(format!("failed to lookup address information: {text}"))));
        assert!(is_temporary(None));
        assert!(is_temporary(Some(Err(io::ErrorKind::TimedOut.into()))));
        assert!(is_temporary(said("Temporary failure in name resolution")));
        assert!(!is_temporary(said("Name or service not known")));
    }
}

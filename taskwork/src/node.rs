//! Being a node of a cluster, in any process.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    str::FromStr,
    thread,
    time::Duration,
};

use thiserror::Error;
use tokio::{sync::mpsc, task::JoinHandle};
use zk::{ClusterPaths, Connect};

use crate::{
    client::{Client, ClientError},
    config::{Limits, WORKERS_MAX},
    job::ONLY_KIND,
    local::check,
    release::Release,
    shell::{
        kinds::Kinds,
        platform::{Advertise, Machine},
        seat::SeatError,
        serve::{ServeError, ServeSetup, serve},
    },
    task::Task,
};

/// How a [`Node`] is made.
///
/// By default it has a worker for each processor, listens on the loopback interface at any free port, and
/// takes at most 30 s to leave.
pub struct NodeBuilder {
    connect: Connect,
    cluster: ClusterPaths,
    release: Result<Release, ClientError>,
    trusts_network: bool,
    kinds: Kinds,
    workers: usize,
    listen: SocketAddr,
    advertise: Option<Address>,
    limits: Limits,
}

/// A node of a cluster that runs within this process: it works on jobs of its release, one after another,
/// until it is [told to leave](Self::drain).
///
/// Dropping it aborts it, which for the others is as if its machine were lost: a job that it worked on begins
/// another attempt.
pub struct Node {
    leave: mpsc::Sender<()>,
    /// `None` once its end was told.
    serving: Option<JoinHandle<Result<(), ServeError>>>,
}

/// Where the other nodes find a node: an IP address, or an IP address and a port. Without a port it is the
/// one that the node listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(Advertise);

/// Why a node did not start, or has ended other than by leaving.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// What it was given makes no sense.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// It could not be reached from other machines safely: see [`NodeBuilder::serve`].
    #[error(
        "this node would be reached from other machines (it listens on {listen}), and without credentials everybody who \
         reaches ZooKeeper could join the cluster"
    )]
    Open {
        /// Where it listens.
        listen: SocketAddr,
    },
    /// ZooKeeper could not be reached at the start, or refuses the node.
    #[error(transparent)]
    Client(ClientError),
    /// Its time to leave was up before everything was handed on.
    #[error("{reason}")]
    Abandoned {
        /// What was waited for.
        reason: String,
    },
    /// A mistake of the node's own code, or of the process that it runs in.
    #[error("{reason}")]
    BrokenDown {
        /// What has happened.
        reason: String,
    },
}

impl NodeBuilder {
    fn new(connect: Connect, cluster: ClusterPaths, release: Result<Release, ClientError>) -> Self {
        Self {
            connect,
            cluster,
            release,
            trusts_network: false,
            kinds: Kinds::default(),
            workers: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            limits: Limits::default(),
        }
    }

    /// Lets the node be reached from other machines although no credentials are needed. Only for a network
    /// that can be trusted.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.trusts_network = true;
        self
    }

    /// Adds the type of task that jobs are made of by default.
    ///
    /// # Panics
    /// If it is called twice: a mistake in the program, which has to give its [kinds](Self::kinds) names.
    #[must_use]
    pub fn task<T: Task>(mut self) -> Self {
        self.kinds.add::<T>(ONLY_KIND);
        self
    }

    /// Adds several types of task, each under the name that [`Job::kind`](crate::Job::kind) gives.
    #[must_use]
    pub fn kinds(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// Sets the number of workers, 1 to [`WORKERS_MAX`].
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets where to listen for other nodes; port 0 takes any that is free.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets where the other nodes find this one, if not where it listens.
    #[must_use]
    pub fn advertise(mut self, address: Address) -> Self {
        self.advertise = Some(address);
        self
    }

    /// Sets by when to be gone after being told to leave by [`Node::drain`]. In the last third of it what no
    /// other node has taken is put into ZooKeeper; what cannot be put there by the end is lost, and the job
    /// begins another attempt.
    #[must_use]
    pub fn drain_deadline(mut self, deadline: Duration) -> Self {
        self.limits.drain_deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Sets limits other than the defaults.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Begins to be a node, on the threads of the tokio runtime that this is called in, and on a thread for
    /// each worker. Its session with ZooKeeper is its own.
    ///
    /// # Errors
    /// If what it was given makes no sense; or if other machines could reach it although nobody needs
    /// credentials, and the client was not made [for a network that can be
    /// trusted](crate::ClientBuilder::insecure).
    pub fn serve(self) -> Result<Node, NodeError> {
        let release = self.release.map_err(NodeError::Client)?.inner().clone();
        let invalid = |reason: String| NodeError::Invalid { reason };
        check("workers", self.workers, WORKERS_MAX).map_err(|error| invalid(error.to_string()))?;
        if self.kinds.is_empty() {
            return Err(invalid("a node needs a type of task: NodeBuilder::task".to_owned()));
        }
        let advertise = self.advertise.map(|Address(advertise)| advertise);
        let beyond = |ip: IpAddr| !ip.is_loopback();
        let reached = beyond(self.listen.ip()) || advertise.is_some_and(|at| beyond(at.ip));
        if reached && self.connect.credentials.is_none() && !self.trusts_network {
            return Err(NodeError::Open { listen: self.listen });
        }
        let setup = ServeSetup {
            platform: Box::new(Machine { connect: self.connect, listen: self.listen, advertise }),
            cluster: self.cluster,
            release,
            kinds: self.kinds,
            workers: self.workers,
            limits: self.limits,
        };
        // With more than a few waiting, one more says nothing new.
        let (leave, told) = mpsc::channel(8);
        let serving = tokio::spawn(async move { serve(&setup, told).await });
        Ok(Node { leave, serving: Some(serving) })
    }
}

impl Node {
    /// Begins to make a node of a client's cluster and release, with the same way to ZooKeeper.
    pub fn builder(client: &Client) -> NodeBuilder {
        let settings = client.connection_settings().clone();
        let builder = NodeBuilder::new(settings, client.cluster().clone(), client.release().cloned());
        if client.trusts_network() { builder.insecure() } else { builder }
    }

    /// Begins to make a node of a cluster at this ZooKeeper, in a process that needs no client.
    ///
    /// # Errors
    /// If the cluster's name makes no sense.
    pub fn builder_at(connect: Connect, cluster: &str, release: Release) -> Result<NodeBuilder, ClientError> {
        let invalid = |error: zk::NameError| ClientError::Invalid { reason: error.to_string() };
        Ok(NodeBuilder::new(connect, ClusterPaths::new(cluster).map_err(invalid)?, Ok(release)))
    }

    /// Tells the node to leave: it hands on its unfinished tasks first. Told again, it leaves at once.
    pub fn drain(&self) {
        // If it is full the node has been told more often than it takes.
        let _ = self.leave.try_send(());
    }

    /// Waits until the node has ended. Why it has ended is told once: later calls return at once, and well.
    ///
    /// # Errors
    /// See [`NodeError`]. A node ends by itself only if it cannot start or has broken down; what passes, such
    /// as an outage of ZooKeeper, it waits for.
    ///
    /// # Cancellation safety
    /// Dropping the future leaves the node as it is.
    pub async fn ended(&mut self) -> Result<(), NodeError> {
        let Some(serving) = &mut self.serving else { return Ok(()) };
        let ended = serving.await;
        self.serving = None;
        match ended {
            Ok(ended) => ended.map_err(NodeError::from),
            Err(panic) => {
                Err(NodeError::BrokenDown { reason: format!("the node's own code panicked: {panic}") })
            }
        }
    }

    /// Whether the node has ended.
    pub fn has_ended(&self) -> bool {
        self.serving.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

impl From<ServeError> for NodeError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Connect(error) => Self::Client(error.into()),
            ServeError::Store(error) | ServeError::Seat(SeatError::Store(error)) => {
                Self::Client(error.into())
            }
            ServeError::Seat(error) => Self::Invalid { reason: error.to_string() },
            ServeError::Abandoned { .. } => Self::Abandoned { reason: error.to_string() },
            ServeError::BrokenDown => Self::BrokenDown { reason: error.to_string() },
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(Advertise { ip, port: None })
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(Advertise { ip: address.ip(), port: Some(address.port()) })
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let ip: IpAddr =
            text.parse().map_err(|_| "expected an IP address, or an IP address and a port".to_owned())?;
        Ok(ip.into())
    }
}

impl fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBuilder")
            .field("kinds", &self.kinds)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("has_ended", &self.has_ended()).finish_non_exhaustive()
    }
}

//! Running a node of a cluster in any process.

mod address;

use std::{
    fmt, future,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time,
};
use zk::{ClusterPaths, Connect, Labels};

pub use self::address::Address;
pub use crate::{
    config::{NODES_MAX, WORKERS_MAX},
    shell::{kinds::Kinds, pulse::Health},
};
pub use zk::LabelError;

use crate::{
    client::{Client, ClientError},
    config::Limits,
    job::ONLY_KIND,
    local::check,
    release::Release,
    shell::{
        errors::{SeatError, ServeError},
        memory,
        platform::{HostName, Machine},
        pulse::Pulse,
        serve::{Brought, ServeSetup, serve},
    },
    task::Task,
};

/// A builder for a [`Node`].
///
/// By default, the node has a worker for each processor, listens on the loopback interface at any free port,
/// and takes at most 30 s to leave.
pub struct NodeBuilder {
    connect: Connect,
    cluster: ClusterPaths,
    release: Result<Release, ClientError>,
    trusts_network: bool,
    kinds: Kinds,
    workers: usize,
    memory_bytes: Option<u64>,
    labels: Labels,
    near: Option<String>,
    listen: SocketAddr,
    advertise: Option<Address>,
    limits: Limits,
    brought: Brought,
    report_every: Option<Duration>,
}

/// A node of a cluster that runs within this process. It works on the jobs of its release, several at a
/// time, until it is [asked to leave](Self::drain).
///
/// Dropping it aborts it, which to the other nodes is the same as the loss of its machine: the jobs that it
/// worked on may start another attempt.
pub struct Node {
    leave: mpsc::Sender<Option<Duration>>,
    /// The number of current jobs.
    jobs: watch::Receiver<usize>,
    /// `None` once its end has been reported.
    serving: Option<JoinHandle<Result<(), ServeError>>>,
    pulse: Arc<Pulse>,
}

/// The reasons for which a node did not start, or exited other than by leaving.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The settings are invalid.
    #[error("{reason}")]
    Invalid {
        /// The problem.
        reason: String,
    },
    /// Other machines could reach the node although no credentials are set: see [`NodeBuilder::serve`].
    #[error(
        "this node would be reached from other machines (it listens on {listen}), and without credentials \
         everybody who reaches ZooKeeper could join the cluster"
    )]
    Open {
        /// The address that it listens on.
        listen: SocketAddr,
    },
    /// ZooKeeper could not be reached at the start, or rejects the node.
    #[error(transparent)]
    Client(ClientError),
    /// The deadline for leaving passed before everything was handed over.
    #[error("{reason}")]
    Abandoned {
        /// The events that the node was still waiting for.
        reason: String,
    },
    /// A bug in the node's own code or a defect of the process that it runs in.
    #[error("{reason}")]
    BrokenDown {
        /// The failure.
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
            memory_bytes: None,
            labels: Labels::default(),
            near: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            limits: Limits::default(),
            brought: Brought::default(),
            report_every: None,
        }
    }

    pub(crate) fn cluster(&self) -> &ClusterPaths {
        &self.cluster
    }

    /// Sets the data that the node provides to others.
    #[must_use]
    pub(crate) fn brings(mut self, brought: Brought) -> Self {
        self.brought = brought;
        self
    }

    /// Allows the node to accept connections from other machines although no credentials are set. Only for a trusted
    /// network.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.trusts_network = true;
        self
    }

    /// Adds the default type of task.
    ///
    /// # Panics
    /// If it is called twice, which is a mistake in the program: several [kinds](Self::kinds) need names.
    #[must_use]
    pub fn task<T: Task>(mut self) -> Self {
        self.kinds.add::<T>(ONLY_KIND);
        self
    }

    /// Adds several types of task, each under the name that jobs refer to by [`Job::kind`](crate::Job::kind).
    #[must_use]
    pub fn kinds(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// Sets the number of workers, at most [`WORKERS_MAX`]. A node with 0 workers is a member that works on no
    /// job, and needs no type of task.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the published memory limit of the node, in bytes; by default the memory of the machine, or
    /// the limit of its control group.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets the node's labels. The node works on jobs that [require](crate::Job::require) no labels, or some of
    /// these.
    #[must_use]
    pub fn labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// Makes the node prefer to steal tasks from nodes with the same value of this label, such as
    /// `zone`.
    #[must_use]
    pub fn near(mut self, label: impl Into<String>) -> Self {
        self.near = Some(label.into());
        self
    }

    /// Sets the address to listen on for other nodes; port 0 selects any free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the address at which other nodes reach this one, if it differs from the one that it listens on.
    #[must_use]
    pub fn advertise(mut self, address: Address) -> Self {
        self.advertise = Some(address);
        self
    }

    /// Sets the time limit for leaving after [`Node::drain`]. In the last third of it the node parks in
    /// ZooKeeper the tasks that no other node has accepted. If some are not parked by the end, other nodes
    /// continue them from their last written state, once the node's session has expired.
    #[must_use]
    pub fn drain_deadline(mut self, deadline: Duration) -> Self {
        self.limits.drain_deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Sets the interval at which the node logs its work on each job; 0, the default, disables
    /// it.
    #[must_use]
    pub fn report_every(mut self, every: Duration) -> Self {
        self.report_every = (!every.is_zero()).then_some(every);
        self
    }

    /// Sets how many jobs that are over are kept, and for how long after their end: by default 1,000, for 30 days.
    /// Others are forgotten, except those that another job waits for. All nodes of a cluster should have the same.
    #[must_use]
    pub fn keep(mut self, jobs: usize, time: Duration) -> Self {
        self.limits.jobs_kept_max = jobs;
        self.limits.jobs_kept_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Sets the total size of the results of jobs that are over, in bytes: by default 256 MiB. Jobs that ended earlier are
    /// forgotten as if there were too many.
    #[must_use]
    pub fn keep_result_bytes(mut self, bytes: u64) -> Self {
        self.limits.result_bytes_max = bytes;
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts the node on the threads of the current tokio runtime, with a thread for each worker. It has its
    /// own session with ZooKeeper.
    ///
    /// # Errors
    /// If the settings are invalid; or if other machines could reach the node although no credentials are
    /// set, and the client was not created [for a trusted network](crate::client::ClientBuilder::insecure).
    pub fn serve(self) -> Result<Node, NodeError> {
        let release = self.release.map_err(NodeError::Client)?.inner().clone();
        let invalid = |reason: String| NodeError::Invalid { reason };
        if self.workers > 0 {
            check("workers", self.workers, WORKERS_MAX).map_err(|error| invalid(error.to_string()))?;
        }
        if self.kinds.is_empty() && self.workers > 0 {
            return Err(invalid("a node needs a type of task: NodeBuilder::task".to_owned()));
        }
        if let Some(name) = self.near.as_ref().filter(|name| self.labels.get(name).is_none()) {
            return Err(invalid(format!(
                "the node is to prefer others by the label {name:?}, which it does not have itself: set it \
                 by NodeBuilder::labels or --label {name}=VALUE"
            )));
        }
        let advertise = self.advertise.map(|Address(advertise)| advertise);
        let beyond = |ip: IpAddr| !ip.is_loopback();
        let advertises_beyond = advertise.as_ref().is_some_and(|at| match &at.host {
            HostName::Ip(ip) => beyond(*ip),
            // A host name is resolved only later.
            HostName::Name(_) => true,
        });
        let reached = beyond(self.listen.ip()) || advertises_beyond;
        if reached && self.connect.credentials.is_none() && !self.trusts_network {
            return Err(NodeError::Open { listen: self.listen });
        }
        let pulse = Arc::<Pulse>::default();
        let setup = ServeSetup {
            platform: Box::new(Machine::new(self.connect, self.listen, advertise)),
            cluster: self.cluster,
            release,
            kinds: self.kinds,
            workers: self.workers,
            memory_bytes: self.memory_bytes.unwrap_or_else(memory::available_memory),
            labels: self.labels,
            near: self.near,
            limits: self.limits,
            brought: self.brought,
            pulse: Arc::clone(&pulse),
            report_every: self.report_every,
            jobs: watch::Sender::default(),
        };
        let jobs = setup.jobs.subscribe();
        // Further requests would have no effect, so a small capacity suffices.
        let (leave, told) = mpsc::channel(8);
        let serving = tokio::spawn(async move { serve(&setup, told).await });
        Ok(Node { leave, jobs, serving: Some(serving), pulse })
    }
}

impl Node {
    /// Creates a builder for a node of a client's cluster and release, with the client's connection settings.
    pub fn builder(client: &Client) -> NodeBuilder {
        let settings = client.connection_settings().clone();
        let builder = NodeBuilder::new(settings, client.cluster().clone(), client.release().cloned());
        if client.trusts_network() { builder.insecure() } else { builder }
    }

    /// Creates a builder for a node of a cluster at this ZooKeeper, in a process that needs no client.
    ///
    /// # Errors
    /// If the cluster's name is invalid.
    pub fn builder_at(connect: Connect, cluster: &str, release: Release) -> Result<NodeBuilder, ClientError> {
        let invalid = |error: zk::NameError| ClientError::Invalid { reason: error.to_string() };
        Ok(NodeBuilder::new(connect, ClusterPaths::new(cluster).map_err(invalid)?, Ok(release)))
    }

    /// Asks the node to leave after handing over its unfinished tasks. A second request makes it park
    /// them.
    pub fn drain(&self) {
        // If the channel is full, enough requests are pending already.
        let _ = self.leave.try_send(None);
    }

    /// Asks the node to leave within this time, if that is less than the
    /// [deadline](NodeBuilder::drain_deadline), for example because its machine will be shut down.
    pub fn drain_within(&self, left: Duration) {
        let _ = self.leave.try_send(Some(left));
    }

    /// Waits until the node has had no job for this long, from now on. Jobs that it does not take, such as
    /// jobs that require other labels, do not count.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect; a new one restarts the time.
    pub fn idle_for(&self, time: Duration) -> impl Future<Output = ()> + Send + use<> {
        let mut jobs = self.jobs.clone();
        async move {
            loop {
                let ended = jobs.wait_for(|jobs| *jobs == 0).await.is_err();
                if ended {
                    return future::pending().await;
                }
                // Any change restarts the time: a short job may be over before its number is read.
                tokio::select! {
                    biased;
                    changed = jobs.changed() => if changed.is_err() { return future::pending().await },
                    () = time::sleep(time) => return,
                }
            }
        }
    }

    /// Waits until the node has exited. The reason is reported only once: later calls return `Ok` immediately.
    ///
    /// # Errors
    /// See [`NodeError`]. A node exits by itself only if it cannot start or has broken down; it waits out
    /// temporary failures, such as an outage of ZooKeeper.
    ///
    /// # Cancellation safety
    /// Dropping the future does not affect the node.
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

    /// Returns the health of the node.
    pub fn health(&self) -> Health {
        self.pulse.now()
    }

    /// Returns a function that returns the health of the node, also during a call of [`ended`](Self::ended).
    pub fn watch_health(&self) -> impl Fn() -> Health + Send + Sync + 'static + use<> {
        let pulse = Arc::clone(&self.pulse);
        move || pulse.now()
    }

    /// Returns whether the node has exited.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_for_waits_until_no_job_for_that_time() {
        let (leave, _told) = mpsc::channel(1);
        let jobs = watch::Sender::new(1);
        let node = Node { leave, jobs: jobs.subscribe(), serving: None, pulse: Arc::default() };
        let mut idle = std::pin::pin!(node.idle_for(Duration::ZERO));
        // It is polled once.
        assert!(time::timeout(Duration::ZERO, idle.as_mut()).await.is_err(), "there is a job");
        jobs.send_replace(0);
        time::timeout(Duration::from_secs(30), idle).await.expect("there is none any more");
    }
}

//! One node within this process, from its parts.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::{JoinHandle, JoinSet},
};
use zk::{ClusterPaths, Store, membership};

use super::{
    clock::{Clock, unix_ms},
    coordination::{Coordination, ORDERS_MAX},
    driver::{Driver, Ended, Network},
    transport::{Identity, Peers, Transport, TransportLimits},
};
use crate::{
    config::Limits,
    core,
    figures::{Counter, Figures},
    id::{JobId, NodeId},
    job::JobError,
    pool::{Pool, PoolLimits, Work, Workers},
    task::Task,
};

/// What a node is started with.
pub(crate) struct NodeSetup<T: Task> {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) job: JobId,
    pub(crate) shared: Arc<T::Shared>,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    /// Where to listen; `None` for a node that will never have another beside it.
    pub(crate) listen: Option<SocketAddr>,
}

/// A node at work.
pub(crate) struct RunningNode {
    driver: JoinHandle<Ended>,
    coordination: Arc<Coordination>,
    loops: JoinSet<()>,
    workers: Workers,
    shutdown: oneshot::Sender<()>,
    drain: Arc<Notify>,
    figures: Arc<Mutex<Figures>>,
}

/// How many events of the znode tree, and how many messages of peers, may wait for the driver.
const EVENTS_MAX: usize = 1024;

impl RunningNode {
    /// Starts a node: its pool, its workers, its transport; last of all it becomes a member.
    pub(crate) async fn start<T: Task>(setup: NodeSetup<T>) -> Result<Self, JobError> {
        let NodeSetup { node, store, cluster, job, shared, workers, limits, listen } = setup;
        let pool_limits = PoolLimits {
            task_children_max: limits.task_children_max,
            batch_ids_commit: limits.batch_ids_commit,
        };
        let pool = Arc::new(Pool::<T>::new(node, shared, workers, pool_limits));
        let identity = Identity::generate(node).map_err(not_started)?;
        let peers = Arc::new(Peers::default());
        let mut member = membership::Member {
            node: node.to_string(),
            address: None,
            fingerprint: identity.fingerprint().to_string(),
            workers: u32::try_from(workers).unwrap_or(u32::MAX),
            program: String::new(),
            program_version: String::new(),
            started_ms: unix_ms(),
        };
        let network = match listen {
            None => None,
            Some(listen) => {
                let (sender, arrivals) = mpsc::channel(EVENTS_MAX);
                let limits = TransportLimits::default();
                let transport = Transport::bind(node, identity, listen, Arc::clone(&peers), sender, limits)
                    .map_err(not_started)?;
                member.address = Some(transport.local_address());
                Some(Network { transport, arrivals })
            }
        };
        let threads = Workers::start(&pool).map_err(JobError::Thread)?;
        membership::join(&*store, &cluster, &member).await?;

        let (events_in, events) = mpsc::channel(EVENTS_MAX);
        let (orders, orders_out) = mpsc::channel(ORDERS_MAX);
        let (shutdown, told_to_shut_down) = oneshot::channel();
        let (publish, drain) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let pool: Arc<dyn Work> = pool;
        let coordination = Arc::new(Coordination {
            store,
            cluster,
            job,
            node,
            pool: Arc::clone(&pool),
            peers,
            events: events_in,
            publish: Arc::clone(&publish),
            member_gone: Notify::new(),
            rebuilds: Counter::default(),
        });
        let loops = coordination.start(orders_out);
        let figures = Arc::new(Mutex::new(Figures::default()));
        let driver = Driver {
            core: core::Node::new(node, limits, node.0),
            pool,
            events,
            orders,
            publish,
            network,
            shutdown: told_to_shut_down,
            drain: Arc::clone(&drain),
            figures: Arc::clone(&figures),
            clock: Clock::start(),
        };
        let driver = tokio::spawn(driver.run());
        Ok(Self { driver, coordination, loops, workers: threads, shutdown, drain, figures })
    }

    /// What the node has done so far.
    pub(crate) fn figures(&self) -> Figures {
        let mut figures = *self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.worked = self.coordination.pool.figures().worked;
        figures.retries += self.coordination.rebuilds.get();
        figures
    }

    /// Lets the node leave the cluster: it hands on what is unfinished, and ends. Gives its figures.
    pub(crate) async fn leave(mut self) -> Figures {
        self.drain.notify_one();
        match (&mut self.driver).await {
            Ok(ended) => tracing::debug!(node = %self.coordination.node, ?ended, "a node has left"),
            Err(error) => tracing::error!(node = %self.coordination.node, %error, "a node has broken down"),
        }
        self.shut_down().await
    }

    /// Ends the node and gives its figures. Running tasks end at their next `migrate()`.
    pub(crate) async fn shut_down(mut self) -> Figures {
        // It may have ended already; then nobody listens.
        let _ = self.shutdown.send(());
        if !self.driver.is_finished() {
            let _ = (&mut self.driver).await;
        }
        self.loops.shutdown().await;
        // Workers end when their tasks let them: to wait for that is no work for an async thread.
        let workers = self.workers;
        let _ = tokio::task::spawn_blocking(move || workers.join()).await;
        let mut figures = *self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = self.coordination.pool.figures();
        (figures.worked, figures.tasks, figures.splits) = (pool.worked, pool.tasks, pool.splits);
        figures.retries += self.coordination.rebuilds.get();
        let _ = self.coordination.store.close().await;
        figures
    }
}

fn not_started(error: impl std::error::Error + Send + Sync + 'static) -> JobError {
    JobError::Node(Box::new(error))
}

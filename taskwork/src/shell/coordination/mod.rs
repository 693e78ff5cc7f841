//! A node's dealings with the znode tree: what it learns from there becomes events, what the core decides is
//! written there.
//!
//! Each concern is a loop of its own, so that a slow answer to one delays no other:
//!
//! | loop | watches or writes | for |
//! |---|---|---|
//! | [`members`] | the seat's roster | who can be asked for tasks |
//! | [`job`] | the job's record, `parked/` | the current attempt, tasks that nobody holds |
//! | [`orders`] | transactions, one at a time | completions, claims, the clean leave |
//! | [`variables`] | `vars/` | the incumbent, both ways |
//! | [`mail`] | `mail/` | nodes that the network does not connect |
//! | [`figures`] | `figures/` | people who look at the job |
//! | [`silence`] | the pool | tasks that do not stop when they are asked to |
//! | [`leader`] | `election/`, the global task list | the end of the job, and lost nodes |
//! | [`suggestions`] | `suggestions/`, as long as the node leads | what users say to the job |
//!
//! While the tree is away the loops wait and try again, as [`zk::retry`] says; workers search and nodes
//! steal on.

mod figures;
mod job;
mod leader;
mod mail;
mod members;
mod orders;
mod silence;
mod suggestions;
mod variables;

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, mpsc, watch},
    task::JoinSet,
};
use tracing::Instrument as _;
use zk::{
    ClusterPaths, Counted, JobPaths, Release, Requests, Session, Store as _,
    figures::Silent,
    retry::{Policy, Retry},
};

pub(crate) use self::{
    figures::{PUBLIC_WINDOW, WINDOW},
    leader::Standing,
    orders::{ORDERS_MAX, Order},
    suggestions::LOOKS_MAX,
};
use super::{seat::Roster, timeline::Timeline};
use crate::{
    core::Event,
    figures::{Counter, Figures},
    id::{JobId, NodeId},
    outlook::Window,
    pool::Work,
    wire::parcel::Parcel,
};

/// What the loops of one node share.
pub(crate) struct Coordination {
    pub(crate) store: Arc<Counted>,
    /// What was asked of the store before this job.
    pub(crate) asked_before: Requests,
    pub(crate) cluster: ClusterPaths,
    pub(crate) release: Release,
    pub(crate) job: JobId,
    pub(crate) node: NodeId,
    pub(crate) pool: Arc<dyn Work>,
    pub(crate) roster: watch::Receiver<Roster>,
    /// To the driver.
    pub(crate) events: mpsc::Sender<Event>,
    /// Letters with their senders, to the driver.
    pub(crate) letters: mpsc::Sender<(NodeId, Parcel)>,
    /// Variables of the pool have improved.
    pub(crate) publish: Arc<Notify>,
    /// A member has gone: the leader looks whether it was lost.
    pub(crate) member_gone: Notify,
    /// The node's figures, as the driver shows them.
    pub(crate) figures: Arc<Mutex<Figures>>,
    /// What may still be found at the node.
    pub(crate) outlook: Mutex<Window>,
    /// What has happened to the node in the job.
    pub(crate) timeline: Arc<Timeline>,
    /// Transactions that had to be built again because another node was faster.
    pub(crate) rebuilds: Counter,
    /// The last attempt that the node was enrolled in; 0 for none.
    pub(crate) takes_part_in: AtomicU32,
    /// How many letters this node has posted.
    pub(crate) letters_posted: AtomicU64,
    /// The attempt that was seen last.
    pub(crate) attempt: AtomicU32,
    /// The job was put aside while the node was at work on it.
    pub(crate) suspended: AtomicBool,
    /// Tasks that have not stopped for long although they were asked to.
    pub(crate) silent: Mutex<Vec<Silent>>,
    /// Tasks have not stopped for long: said once each time.
    pub(crate) silence: Notify,
    /// The node's candidate; held by the loop that stands for election, as long as there is one.
    pub(crate) standing: AsyncMutex<Standing>,
    /// One for each suggestion that the program may look at now.
    pub(crate) looks: Arc<Semaphore>,
    /// Who looks at the job.
    pub(crate) visibility: Visibility,
}

/// Who can look at a job while it runs, and read its result afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Everybody who reaches the cluster: figures are written, suggestions and letters are read.
    Public,
    /// Nobody but this process, which needs none of it.
    Private,
}

impl Visibility {
    /// Returns whether others can look at the job.
    pub(crate) fn is_public(self) -> bool {
        self == Self::Public
    }
}

impl Coordination {
    /// Starts the loops. They end when the set is dropped.
    pub(crate) fn start(self: &Arc<Self>, orders: mpsc::Receiver<Order>) -> JoinSet<()> {
        let mut loops = JoinSet::new();
        let me = || Arc::clone(self);
        loops.spawn(me().follow_session().in_current_span());
        loops.spawn(me().follow_members().in_current_span());
        loops.spawn(me().follow_job().in_current_span());
        loops.spawn(me().perform_orders(orders).in_current_span());
        loops.spawn(me().publish_variables().in_current_span());
        for slot in 0..self.pool.variables().len() {
            loops.spawn(me().follow_variable(slot).in_current_span());
        }
        loops.spawn(me().stand_for_election().in_current_span());
        loops.spawn(me().publish_figures().in_current_span());
        loops.spawn(me().watch_for_silence().in_current_span());
        loops
    }

    fn job_paths(&self) -> JobPaths {
        self.cluster.job(&self.job.0)
    }

    fn store(&self) -> Arc<dyn zk::Store> {
        Arc::clone(&self.store) as Arc<dyn zk::Store>
    }

    fn attempt_seen(&self) -> u32 {
        self.attempt.load(Relaxed)
    }

    /// Tells the driver. When the driver is gone the node ends, and this loop with it.
    pub(crate) async fn tell(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    /// Tells the driver when the session is over: the node is no member any more.
    async fn follow_session(self: Arc<Self>) {
        let mut session = self.store.session();
        if session.wait_for(|state| *state == Session::Expired).await.is_ok() {
            tracing::warn!(
                "the session is over; the node gives up its seat, though the servers may list it for a while yet"
            );
            self.tell(Event::Expired).await;
        }
    }

    /// What has not failed yet.
    fn retry(&self) -> Retry {
        Retry::new(Policy::REQUEST, self.node.0)
    }

    /// Does something until it succeeds; each time it fails, [waits](Retry::again). Ends for good with the
    /// session.
    async fn persist<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = zk::Result<T>>,
    {
        let mut retry = self.retry();
        loop {
            match attempt().await {
                Ok(value) => return Some(value),
                Err(error) if retry.again(&*self.store, what, &error).await => {}
                Err(_) => return None,
            }
        }
    }
}

//! A node's interface to the znode tree: turns changes of the tree into events, and writes the decisions of the core
//! to the tree.
//!
//! Each concern has its own loop, so that a slow answer to one does not delay the others:
//!
//! | loop | watches or writes | for |
//! |---|---|---|
//! | [`members`] | the seat's roster | the nodes that can be asked for tasks |
//! | [`job`] | the job's record, `parked/` | the current attempt, parked tasks |
//! | [`orders`] | transactions, one at a time | completions, claims, the clean leave |
//! | [`variables`] | `vars/` | the incumbent, in both directions |
//! | [`mail`] | `mail/` | nodes that the network does not connect |
//! | [`leaving`] | nothing | the companion, before the node leaves |
//! | [`journal`] | `journal/` | the companion: records of effects that must not happen twice |
//! | [`figures`] | `figures/` | users who watch the job |
//! | [`silence`] | the pool | tasks that do not check whether they should stop |
//! | [`orphans`] | `held/`, `transit/` | work that lost nodes have left behind |
//! | [`waits`] | the global task list | tasks that wait for tasks that they have spawned |
//! | [`leader`] | `election/`, the global task list | the end of the job, and lost nodes |
//! | [`questions`] | `questions/`, if there is a companion | users' questions about the job |
//! | [`suggestions`] | `suggestions/`, while the node leads | users' suggestions for the job |
//!
//! While the tree is unavailable the loops wait and retry, as in [`zk::retry`]; workers continue to search
//! and nodes to steal.

mod continued;
mod crashes;
mod figures;
mod job;
mod journal;
mod leader;
mod leaving;
mod mail;
mod members;
mod orders;
mod orphans;
mod questions;
mod silence;
mod suggestions;
mod variables;
mod waits;

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, mpsc, watch},
    task::JoinSet,
};
use tracing::Instrument as _;
use zk::{
    ClusterPaths, Counted, JobPaths, Labels,
    figures::Silent,
    retry::{Policy, Retry},
};

pub(crate) use self::{
    job::claim_of,
    leader::Standing,
    leaving::{Deadline, LEAVE_REQUESTS_MAX, LeaveRequest, Leaving},
    orders::{ORDERS_MAX, Order},
    suggestions::LOOKS_MAX,
};
use super::{
    clock::Clock,
    companion::Host,
    givers::Givers,
    latch::{Flag, Latch},
    platform::Probe,
    roster::Members,
    timeline::Timeline,
};
use crate::{
    companion::JournalRequest,
    core::{Event, LedgerState},
    figures::{Counter, Figures},
    id::{JobId, NodeId},
    outlook::Window,
    pool::{PoolFault, Work},
    wire::parcel::Parcel,
};

/// The nodes of this process that have resigned after a panic.
pub(crate) type Resigned = Arc<Mutex<BTreeSet<NodeId>>>;

/// The state shared by the loops of one node.
pub(crate) struct Coordination {
    /// Counts the requests of this job.
    pub(crate) store: Arc<Counted>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) job: JobId,
    /// The labels that other nodes must have to work on the job.
    pub(crate) require: Labels,
    pub(crate) node: NodeId,
    pub(crate) pool: Arc<dyn Work>,
    /// The other members of the same release.
    pub(crate) others: Arc<Members>,
    /// Set when the session is over.
    pub(crate) expired: Arc<Latch>,
    /// As in [`Seat`](super::seat::Seat).
    pub(crate) cordoned: Arc<Flag>,
    /// Events for the driver.
    pub(crate) events: mpsc::Sender<Event>,
    /// Letters for the driver, with their senders.
    pub(crate) letters: mpsc::Sender<(NodeId, Parcel)>,
    /// Notified when variables of the pool have improved.
    pub(crate) publish: Arc<Notify>,
    /// Notified when tasks wait.
    pub(crate) waits: Arc<Notify>,
    /// Notified when a member has gone: the leader checks whether it was lost.
    pub(crate) member_gone: Notify,
    /// The node's figures, as published by the driver.
    pub(crate) figures: Arc<Mutex<Figures>>,
    /// The written state of the node's holdings, as published by the driver.
    pub(crate) ledger_state: Arc<Mutex<Option<LedgerState>>>,
    /// The nodes from which its tasks came, as published by the driver.
    pub(crate) givers: Arc<Mutex<Givers>>,
    /// The nodes that it cannot reach over the network, as published by the driver; `None` if there were none yet.
    pub(crate) cut_off: Arc<Mutex<Option<BTreeSet<NodeId>>>>,
    /// The clock that the driver uses.
    pub(crate) clock: Clock,
    pub(crate) outlook: Mutex<Window>,
    pub(crate) timeline: Arc<Timeline>,
    /// The number of transactions that were rebuilt because another node was faster.
    pub(crate) rebuilds: Counter,
    /// The last attempt in which the node was enrolled; 0 for none.
    pub(crate) takes_part_in: AtomicU32,
    /// Notified when the node is enrolled in an attempt.
    pub(crate) enrolled: Notify,
    pub(crate) letters_posted: AtomicU64,
    /// The latest attempt seen.
    pub(crate) attempt: AtomicU32,
    /// Whether the job was suspended while the node worked on it.
    pub(crate) suspended: AtomicBool,
    /// Tasks that have ignored a request to stop or to be written for [`silence`]'s time limit.
    pub(crate) silent: Mutex<Vec<Silent>>,
    /// Notified once each time tasks ignore a request to stop for too long.
    pub(crate) silence: Notify,
    /// The node's candidate, locked by the loop that stands for election while it runs.
    pub(crate) standing: AsyncMutex<Standing>,
    pub(crate) has_led: AtomicBool,
    /// Permits for suggestions that the program evaluates now.
    pub(crate) looks: Arc<Semaphore>,
    pub(crate) visibility: Visibility,
    /// The number of the latest requested search for the work of lost nodes.
    pub(crate) orphans_wanted: watch::Receiver<u64>,
    /// The time between two writes of the node's holdings, in milliseconds; 0 if it never writes them.
    pub(crate) ledger_interval_ms: u64,
    /// As in [`Seat::resigned`](super::seat::Seat::resigned).
    pub(crate) resigned: Option<Resigned>,
    /// Whether the node works on no other job. It resigns only then, since it would harm the others.
    pub(crate) alone: watch::Sender<bool>,
    /// Notified when the node has to resign and still works on other jobs.
    pub(crate) resigning: Notify,
    pub(crate) probe: Arc<dyn Probe>,
    /// The companion of the job on this node, if there is one.
    pub(crate) companion: Option<Arc<Host>>,
    /// Requests to leave the job, for the loop that forwards them.
    pub(crate) leave_requests: mpsc::Sender<LeaveRequest>,
    /// Requests for the driver to leave within a deadline.
    pub(crate) drain: mpsc::Sender<Deadline>,
    /// As in [`Limits`](crate::Limits).
    pub(crate) drain_deadline_ms: u64,
    /// As in [`Limits`](crate::Limits).
    pub(crate) rescue_ms: u64,
    /// Whether the node has logged that it holds more than it writes.
    pub(crate) unprotected_logged: AtomicBool,
    /// The number of crashes after which a task is set aside, 0 for any number.
    pub(crate) crashes_max: u32,
}

/// The processes that can watch a job and read its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Everyone with access to the cluster: figures are written, suggestions and letters are read.
    Public,
    /// Only this process: no figures, suggestions or letters.
    Private,
}

impl Visibility {
    /// Returns the time for which an outlook is shown.
    pub(crate) fn window(self) -> Duration {
        match self {
            Self::Public => figures::public_window(),
            Self::Private => figures::WINDOW,
        }
    }

    /// Returns whether other processes can watch the job.
    pub(crate) fn is_public(self) -> bool {
        self == Self::Public
    }
}

impl Coordination {
    /// Starts the loops. They stop when the set is dropped.
    pub(crate) fn start(
        self: &Arc<Self>,
        orders: mpsc::Receiver<Order>,
        leave_requests: mpsc::Receiver<LeaveRequest>,
        journal: mpsc::Receiver<JournalRequest>,
    ) -> JoinSet<()> {
        let mut loops = JoinSet::new();
        let me = || Arc::clone(self);
        loops.spawn(me().follow_session().in_current_span());
        loops.spawn(me().follow_cordon().in_current_span());
        loops.spawn(me().follow_members().in_current_span());
        loops.spawn(me().follow_job().in_current_span());
        loops.spawn(me().perform_orders(orders).in_current_span());
        loops.spawn(me().forward_leave_requests(leave_requests).in_current_span());
        if let Some(companion) = &self.companion {
            loops.spawn(me().follow_companion(Arc::clone(companion)).in_current_span());
            loops.spawn(me().serve_journal(journal).in_current_span());
            loops.spawn(me().answer_questions(Arc::clone(companion)).in_current_span());
        }
        loops.spawn(me().look_for_orphans().in_current_span());
        loops.spawn(me().end_waits().in_current_span());
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

    /// Sends an event to the driver. If the driver has stopped, the node stops, and this loop with it.
    pub(crate) async fn notify_driver(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    /// Notifies the driver when the session has expired: the node is no longer a member.
    async fn follow_session(self: Arc<Self>) {
        self.expired.wait().await;
        tracing::warn!(
            "the session is over; the node is no longer a member, though the servers may still list it for a while"
        );
        self.notify_driver(Event::Expired).await;
    }

    /// Notifies the driver and the companion whether the node is cordoned, now and after each change.
    async fn follow_cordon(self: Arc<Self>) {
        let mut is_cordoned = self.cordoned.is_set();
        loop {
            if let Some(companion) = &self.companion {
                companion.desk.cordon(is_cordoned);
            }
            self.notify_driver(Event::Cordon { is_cordoned }).await;
            is_cordoned = self.cordoned.changed(is_cordoned).await;
        }
    }

    /// Fails the job if its companion on this node fails.
    async fn follow_companion(self: Arc<Self>, companion: Arc<Host>) {
        if let Some(reason) = companion.ended().await {
            self.fail(&PoolFault::Companion { node: self.node, reason }).await;
        }
    }

    /// Returns a retry state without failures.
    fn retry(&self) -> Retry {
        Retry::new(Policy::REQUEST, self.node.0)
    }

    /// Repeats an operation until it succeeds, [waiting](Retry::again) after each failure. `None` if the session has
    /// ended.
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

//! A node's membership in a cluster: its session, its identity and its endpoint. A seat outlives jobs; it is given up
//! when the node leaves or its session has expired.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};

use tokio::{sync::Notify, task::JoinSet, time};
use zk::{
    ClusterPaths, Labels, Release, Session, Store,
    membership::{self, Change, Member, MemberWatch},
    retry::{Policy, Retry},
};

use super::{
    clock::unix_ms,
    companion::{END_TIMEOUT, Host},
    coordination::Resigned,
    dispatch::Dispatch,
    errors::SeatError,
    latch::{Flag, Latch},
    platform::{Endpoint, Probe},
    pulse::Pulse,
    roster::{Known, Members, Roster},
    transport::{
        PeerAddress, Peers,
        bulk::{Bulk, Object, Offer},
    },
};
use crate::{
    companion::{Means, Places},
    id::{JobId, NodeId},
    pool::Crew,
};

pub(crate) struct SeatSetup {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) release: Release,
    pub(crate) workers: usize,
    pub(crate) crew: Crew,
    pub(crate) memory_bytes: u64,
    pub(crate) labels: Labels,
    /// The label whose value must be equal for another node to be near, if any.
    pub(crate) near: Option<String>,
    /// The number of members whose records are read immediately; other records are read on demand.
    pub(crate) records_read_max: usize,
    /// The endpoint; `None` for a node that will never have a peer.
    pub(crate) endpoint: Option<Endpoint>,
    /// Byte objects to be offered from the start.
    pub(crate) brought: Vec<Object>,
    /// As in [`Seat`].
    pub(crate) resigned: Option<Resigned>,
    /// As in [`Seat`].
    pub(crate) pulse: Arc<Pulse>,
    /// As in [`Seat`].
    pub(crate) probe: Arc<dyn Probe>,
    /// Whether the process was cordoned in its previous seat.
    pub(crate) is_cordoned: bool,
}

/// A member of a cluster.
pub(crate) struct Seat {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) workers: usize,
    /// The workers, which are shared by all jobs.
    pub(crate) crew: Crew,
    pub(crate) member: Member,
    /// The time of joining, in milliseconds since 1970.
    pub(crate) joined_ms: u64,
    /// The other members of the same release.
    pub(crate) others: Arc<Members>,
    pub(crate) tasks_made: Arc<AtomicU64>,
    /// If all nodes of the job are in this process, the resigned ones. Only their loss counts against their tasks:
    /// the other lost nodes belong to an earlier process that has exited.
    pub(crate) resigned: Option<Resigned>,
    /// `None` for a node that will never have a peer.
    pub(crate) dispatch: Option<Dispatch>,
    /// The exchange of byte objects with the other members, if there is one.
    pub(crate) bulk: Option<Bulk>,
    /// The source of the node's health for its process.
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) probe: Arc<dyn Probe>,
    _brought: Vec<Offer>,
    /// Notified when an operator has asked this node to leave.
    pub(crate) asked_to_leave: Arc<Notify>,
    /// Whether an operator has cordoned this node: then it starts no job and takes no more tasks.
    pub(crate) cordoned: Arc<Flag>,
    /// Set when the session is over.
    pub(crate) expired: Arc<Latch>,
    loops: JoinSet<()>,
    /// The remaining cleanup of jobs in which the node's part has ended. Only a new part in the same job waits for it.
    cleanups: BTreeMap<JobId, JoinSet<()>>,
    /// Companions that were asked to end.
    companions: JoinSet<()>,
}

impl Seat {
    /// Returns the node's resources for a companion.
    pub(crate) fn means(&self, is_public: bool, places: Places) -> Means {
        Means {
            workers: self.workers,
            memory_bytes: self.member.memory_bytes,
            labels: self.member.labels.clone(),
            is_public,
            places,
        }
    }

    /// Takes a seat. The node becomes a member only once it can be dialled.
    pub(crate) async fn take(setup: SeatSetup) -> Result<Self, SeatError> {
        let SeatSetup { node, store, cluster, release, workers, crew, memory_bytes, labels, .. } = setup;
        let SeatSetup {
            near, records_read_max, endpoint, brought, resigned, pulse, probe, is_cordoned, ..
        } = setup;
        let (host, pid) = probe.place();
        let member = Member {
            node: node.to_string(),
            address: endpoint.as_ref().map(|endpoint| endpoint.address),
            fingerprint: endpoint.as_ref().map_or_else(String::new, |endpoint| endpoint.fingerprint.clone()),
            workers: u32::try_from(workers).unwrap_or(u32::MAX),
            memory_bytes,
            labels,
            program: release.program.clone(),
            program_version: release.version.clone(),
            started_ms: unix_ms(),
            host,
            pid,
        };
        let near = near.and_then(|name| Some((member.labels.get(&name)?.to_owned(), name)));
        let bulk = endpoint.as_ref().and_then(|endpoint| endpoint.bulk.clone());
        // Offered before the node becomes a member, so that other nodes find the objects.
        let brought =
            bulk.iter().flat_map(|bulk| brought.iter().map(|object| bulk.offer(object.clone()))).collect();
        let (network, peers) = endpoint.map(|endpoint| (endpoint.network, endpoint.peers)).unzip();
        membership::join(&*store, &cluster, &member).await?;
        // Removes requests that no remaining node has removed.
        tidy_requests(&*store, &cluster).await?;
        if is_cordoned {
            membership::cordon(&*store, &cluster, &member.node).await?;
        }

        let others = Arc::<Members>::default();
        let asked_to_leave = Arc::new(Notify::new());
        let mut loops = JoinSet::new();
        let (roster, peers) = (Arc::clone(&others), peers.unwrap_or_default());
        let keeper = RosterKeeper { node, release, near, records_read_max, peers, others: roster };
        loops.spawn(keeper.keep(Arc::clone(&store), cluster.clone()));
        let cordoned = Arc::new(Flag::new(is_cordoned));
        loops.spawn(watch_for_drain(Arc::clone(&store), cluster.clone(), node, Arc::clone(&asked_to_leave)));
        loops.spawn(watch_for_cordon(Arc::clone(&store), cluster.clone(), node, Arc::clone(&cordoned)));
        loops.spawn(crew.keep_balance());
        let (expired, mut session) = (Arc::<Latch>::default(), store.session());
        let expires = Arc::clone(&expired);
        loops.spawn(async move {
            if session.wait_for(|state| *state == Session::Expired).await.is_ok() {
                expires.set();
            }
        });
        Ok(Self {
            node,
            store,
            cluster,
            workers,
            crew,
            member,
            joined_ms: unix_ms(),
            others,
            tasks_made: Arc::default(),
            resigned,
            pulse,
            probe,
            dispatch: network.map(Dispatch::start),
            bulk,
            _brought: brought,
            asked_to_leave,
            cordoned,
            expired,
            loops,
            cleanups: BTreeMap::new(),
            companions: JoinSet::new(),
        })
    }

    /// Runs some cleanup of a job in the background after the node's part in it has ended.
    pub(crate) fn run_cleanup(&mut self, job: &JobId, cleanup: impl Future<Output = ()> + Send + 'static) {
        self.cleanups.retain(|_, cleanups| {
            while cleanups.try_join_next().is_some() {}
            !cleanups.is_empty()
        });
        self.cleanups.entry(job.clone()).or_default().spawn(cleanup);
    }

    /// Waits in the background for the companion of a job in which the node's part has ended. Until then, no other part
    /// in that job starts, and the seat is not given up.
    pub(crate) fn await_companion(&mut self, job: &JobId, companion: Arc<Host>) {
        let (node, its_job, its) = (self.node, job.clone(), Arc::clone(&companion));
        self.run_cleanup(job, async move {
            let _ = time::timeout(END_TIMEOUT, its.ended()).await;
        });
        while self.companions.try_join_next().is_some() {}
        self.companions.spawn(async move {
            if time::timeout(END_TIMEOUT, companion.ended()).await.is_err() {
                companion.leave_behind();
                tracing::error!(%node, job = %its_job, "the companion does not end; the node no longer waits for it");
            }
        });
    }

    /// Returns the remaining cleanup of an earlier part in a job. It must complete before another part starts, because
    /// it would undo the new part's changes.
    pub(crate) fn cleanup_of(&mut self, job: &JobId) -> impl Future<Output = ()> + Send + use<> {
        let cleanups = self.cleanups.remove(job);
        async move {
            if let Some(mut cleanups) = cleanups {
                while cleanups.join_next().await.is_some() {}
            }
        }
    }

    /// Gives up the seat: closes the connections and the session.
    pub(crate) async fn give_up(mut self) {
        while self.companions.join_next().await.is_some() {}
        self.loops.shutdown().await;
        self.cleanups.clear();
        if let Some(dispatch) = self.dispatch {
            dispatch.close().await;
        }
        // Only members are asked to leave, so no request follows once the member's znode is removed. The operator
        // notices the absence of the request.
        let node = self.node.to_string();
        for path in [self.cluster.member(&node), self.cluster.drain(&node), self.cluster.cordon(&node)] {
            match self.store.delete(&path, None).await {
                Ok(()) | Err(zk::Error::NoNode { .. }) => {}
                // Without a session there is no member either. The next node that joins removes the request.
                Err(zk::Error::SessionExpired) => break,
                Err(error) => {
                    tracing::debug!(node = %self.node, %error, %path, "a znode of the node could not be removed");
                }
            }
        }
        if let Err(error) = self.store.close().await {
            tracing::debug!(node = %self.node, %error, "the session could not be closed and will expire");
        }
    }
}

/// The loop that maintains the roster and the table of peers that the transport trusts.
struct RosterKeeper {
    node: NodeId,
    release: Release,
    /// The value and the name of the label by which other nodes are near.
    near: Option<(String, String)>,
    records_read_max: usize,
    peers: Arc<Peers>,
    others: Arc<Members>,
}

impl RosterKeeper {
    async fn keep(self, store: Arc<dyn Store>, cluster: ClusterPaths) {
        let mut retry = Retry::new(Policy::REQUEST, self.node.0);
        let mut members = loop {
            match MemberWatch::open(Arc::clone(&store), &cluster).await {
                Ok(members) => break members.reading_at_most(self.records_read_max, self.node.0),
                Err(error) if retry.again(&*store, "reading the members", &error).await => {}
                Err(_) => return,
            }
        };
        loop {
            let change = tokio::select! {
                biased;
                wanted = self.peers.wanted() => {
                    for node in wanted {
                        members.want(&node.to_string());
                    }
                    continue;
                }
                change = members.next() => change,
            };
            match change {
                Ok(Change::Joined(member)) => {
                    retry.succeeded();
                    self.joined(member);
                }
                Ok(Change::Named(name)) => {
                    retry.succeeded();
                    self.named(&name);
                }
                Ok(Change::Left(name)) => {
                    retry.succeeded();
                    self.left(&name);
                    // One node suffices. If it misses the change, the next node that joins removes the requests.
                    if self.others.look(Roster::first).1.is_none_or(|first| self.node < first)
                        && let Err(error) = tidy_requests(&*store, &cluster).await
                    {
                        tracing::debug!(node = %self.node, %error, "requests to leave could not be removed");
                    }
                }
                Err(error) if retry.again(&*store, "reading the members", &error).await => {}
                Err(_) => return,
            }
        }
    }

    fn named(&self, name: &str) {
        let Some(other) = self.other(name) else { return };
        self.others.change(|roster| roster.set(other, Known::Name));
        self.peers.name(other);
    }

    fn joined(&self, member: Member) {
        let Some(other) = self.other(&member.node) else { return };
        // Members of other releases are useless to this node and must not connect to it.
        if !self.release.matches(&member.program, &member.program_version) {
            return self.set_apart(other);
        }
        let (Some(address), Ok(fingerprint)) = (member.address, member.fingerprint.parse()) else {
            tracing::warn!(node = %self.node, member = %other, "a member without a usable address is ignored");
            return self.set_apart(other);
        };
        tracing::info!(node = %self.node, member = %other, %address, "a node has joined");
        let near = self.near.as_ref().is_some_and(|(value, name)| member.labels.get(name) == Some(value));
        let known = Known::Peer { member: Arc::new(member), near };
        // Set before the peer can connect, so that its first message comes from a member.
        self.others.change(|roster| roster.set(other, known));
        self.peers.set(other, PeerAddress { address, fingerprint });
    }

    /// Records that a member cannot be a peer. A member that was never named is not added to the roster.
    fn set_apart(&self, other: NodeId) {
        if self.others.look(|roster| roster.get(other).is_some()).1 {
            self.others.change(|roster| roster.set(other, Known::Apart));
        }
        self.peers.remove(other);
    }

    fn left(&self, name: &str) {
        let Some(other) = self.other(name) else { return };
        self.peers.remove(other);
        // Reported even for an unknown node: it may have taken part without being noticed.
        if let Some(Known::Peer { .. }) = self.others.change(|roster| roster.remove(other)) {
            tracing::info!(node = %self.node, member = %other, "a node has left");
        }
    }

    /// Returns the id of a member, unless it is this node.
    fn other(&self, name: &str) -> Option<NodeId> {
        match name.parse() {
            Ok(node) if node == self.node => None,
            Ok(node) => Some(node),
            Err(error) => {
                tracing::warn!(node = %self.node, %error, "a member with an invalid name is ignored");
                None
            }
        }
    }
}

/// Removes the requests to nodes that are permanently gone: ids are never reused.
async fn tidy_requests(store: &dyn Store, cluster: &ClusterPaths) -> zk::Result<()> {
    // The order matters: only members get requests, so a node that has a request and is not a member afterwards is gone.
    let (asked, cordoned) = (store.children(&cluster.drains()), store.children(&cluster.cordons()));
    let asked = asked.await?.into_iter().map(|node| (cluster.drain(&node), node));
    let cordoned = cordoned.await?.into_iter().map(|node| (cluster.cordon(&node), node));
    let requests: Vec<(String, String)> = asked.chain(cordoned).collect();
    if requests.is_empty() {
        return Ok(());
    }
    let members = store.children(&cluster.members()).await?;
    for (path, _) in requests.iter().filter(|(_, node)| !members.contains(node)) {
        match store.delete(path, None).await {
            Ok(()) | Err(zk::Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Notifies each time an operator asks this node to leave.
async fn watch_for_drain(store: Arc<dyn Store>, cluster: ClusterPaths, node: NodeId, asked: Arc<Notify>) {
    let path = cluster.drain(&node.to_string());
    let on = |is_asked| {
        if is_asked {
            tracing::info!(%node, "an operator has asked this node to leave");
            asked.notify_one();
        }
    };
    watch_znode(&*store, &path, node, "reading requests to leave", on).await;
}

/// Sets the flag to whether an operator has cordoned this node.
async fn watch_for_cordon(store: Arc<dyn Store>, cluster: ClusterPaths, node: NodeId, cordoned: Arc<Flag>) {
    let path = cluster.cordon(&node.to_string());
    let on = |is_cordoned| {
        if cordoned.change(is_cordoned) {
            tracing::info!(%node, is_cordoned, "an operator has cordoned or uncordoned this node");
        }
    };
    watch_znode(&*store, &path, node, "reading whether the node is cordoned", on).await;
}

/// Calls `on` with whether a znode exists, now and after each change of it.
async fn watch_znode(store: &dyn Store, path: &str, node: NodeId, what: &'static str, on: impl Fn(bool)) {
    let mut retry = Retry::new(Policy::REQUEST, node.0);
    loop {
        match store.exists_and_watch(path).await {
            Ok((there, changed)) => {
                retry.succeeded();
                on(there.is_some());
                if changed.await == zk::WatchEvent::Ended && *store.session().borrow() == Session::Expired {
                    return;
                }
            }
            Err(error) if retry.again(store, what, &error).await => {}
            Err(_) => return,
        }
    }
}

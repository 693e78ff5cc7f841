//! A process as a node: takes a seat, [works](super::work) on jobs, and leaves on request.
//!
//! ```text
//!   connect ─▶ seat ─▶ work on jobs ── asked to leave: hand over, commit, leave ─▶ exit
//!     ▲                  │
//!     └──────────────────┘ the session is over: drop everything, join again under another id
//! ```
//!
//! A task that does not check whether it should stop keeps its worker when the job is over. The node then soon gives
//! up its seat and joins again with new workers, while the thread lingers. If the node is asked to leave, it exits
//! at its deadline regardless of its tasks.

use std::{convert::Infallible, fmt, future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time,
};
use zk::{
    ClusterPaths, Labels, Release, Store,
    housekeeping::{self, Keep},
    membership::Member,
    retry::{Policy, Retry},
};

use super::{
    clock::unix_ms,
    errors::{SeatError, ServeError},
    kinds::Kinds,
    lingering::Lingering,
    platform::Platform,
    pulse::Pulse,
    seat::{Seat, SeatSetup},
    transport::bulk::{Bulk, Object, WeakBulk},
    work::work,
};
use crate::{config::Limits, id::NodeId};

pub(crate) struct ServeSetup {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) release: Release,
    pub(crate) kinds: Kinds,
    /// The number of workers; 0 for a member that works on no job.
    pub(crate) workers: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) labels: Labels,
    /// The label whose value must be equal for another node to be near, if any.
    pub(crate) near: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) brought: Brought,
    pub(crate) pulse: Arc<Pulse>,
    /// The interval of progress reports in the log; `None` for no reports.
    pub(crate) report_every: Option<Duration>,
    /// The current number of jobs at hand.
    pub(crate) jobs: watch::Sender<usize>,
}

/// Data that a node offers to other nodes.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// Byte objects offered while the node has a seat.
    pub(crate) objects: Vec<Object>,
    /// The node's current seat, once it has one.
    pub(crate) seated: watch::Sender<Option<Seated>>,
}

/// A node's seat, for its process.
#[derive(Clone)]
pub(crate) struct Seated {
    pub(crate) member: Member,
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    /// `None` for a node that will never have a peer.
    pub(crate) bulk: Option<WeakBulk>,
}

impl fmt::Debug for Seated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seated").field(&self.node).finish()
    }
}

/// Receives requests to leave, with the remaining time if it is shorter than the configured deadline.
pub(crate) type Leave = mpsc::Receiver<Option<Duration>>;

/// The reasons for which a seat ends.
pub(super) enum Fate {
    Left,
    /// A job was resumed that the node had left when it was suspended. To take part in the job again it needs a new id,
    /// because its commits are recorded under the old one.
    Resumes,
    /// The node has lost its membership.
    Expired,
    /// Tasks of a job that is over do not stop.
    Stuck,
    /// The cluster's folders no longer exist.
    Wiped,
}

/// The time limit for giving up a seat. If it is exceeded, the session expires.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a node until it is asked to leave.
///
/// Permanent errors in the settings fail the process at the start. Temporary failures are retried, at the start as
/// well as later: only the first connection has a time limit. `leave` receives each request to leave.
pub(crate) async fn serve(setup: &ServeSetup, mut leave: Leave) -> Result<(), ServeError> {
    let mut lingering = Lingering::new(setup.workers);
    let Some(first) = unless_asked_to_leave(&mut leave, first_seat(setup)).await else { return Ok(()) };
    let mut taken = match first {
        Ok(seat) => Some(seat),
        Err(error) if error.is_temporary() => {
            tracing::warn!(%error, "the node cannot join now and will retry");
            unless_asked_to_leave(&mut leave, rejoin(setup, false)).await
        }
        Err(error) => return Err(error),
    };
    while let Some(mut seat) = taken {
        let house = keep_house(setup, Arc::clone(&seat.store), seat.node);
        let fate = tokio::select! {
            biased;
            fate = work(setup, &mut seat, &mut leave) => fate,
            never = house => match never {},
        };
        setup.jobs.send_if_modified(|jobs| std::mem::take(jobs) != 0);
        let node = seat.node;
        setup.pulse.clear_seat();
        let is_cordoned = seat.cordoned.is_set();
        if matches!(fate, Ok(Fate::Stuck)) {
            lingering.add(Box::new(seat.crew.out()));
        }
        if time::timeout(FAREWELL_TIMEOUT, seat.give_up()).await.is_err() {
            tracing::debug!(%node, "the session was not closed in time and will expire");
        }
        match fate {
            Ok(Fate::Left) => {
                tracing::info!(%node, "the node has left");
                return Ok(());
            }
            Ok(Fate::Resumes) => {
                tracing::info!(%node, "a suspended job was resumed; the node joins again under a new name");
            }
            Ok(Fate::Expired) => tracing::warn!(%node, "the node's session is over; it joins again"),
            Ok(Fate::Stuck) => tracing::warn!(%node, "the node joins again with new workers"),
            Ok(Fate::Wiped) => tracing::warn!(%node, "the cluster's folders are gone; the node joins again"),
            Err(error) => {
                tracing::error!(%node, %error, "the node exits");
                return Err(error);
            }
        }
        taken = unless_asked_to_leave(&mut leave, async {
            lingering.wait_until_few().await;
            rejoin(setup, is_cordoned).await
        })
        .await;
    }
    Ok(())
}

/// The interval at which one of the nodes removes data of jobs that are over.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(60);
/// The time after which a new member does it first. Where nodes join and leave all the time, none may stay for the
/// whole interval.
const FIRST_HOUSEKEEPING_AFTER: Duration = Duration::from_secs(5);

/// Periodically removes data of jobs that are over.
async fn keep_house(setup: &ServeSetup, store: Arc<dyn Store>, node: NodeId) -> Infallible {
    let limits = &setup.limits;
    let keep = Keep {
        jobs_max: limits.jobs_kept_max,
        result_bytes_max: limits.result_bytes_max,
        age_ms_max: limits.jobs_kept_ms,
    };
    let node = node.to_string();
    time::sleep(FIRST_HOUSEKEEPING_AFTER).await;
    loop {
        if let Err(error) = housekeeping::keep_house(&*store, &setup.cluster, &node, keep, unix_ms()).await {
            tracing::debug!(%error, "data of finished jobs could not be removed yet");
        }
        time::sleep(HOUSEKEEPING_EVERY).await;
    }
}

/// Waits for a future, unless a request to leave comes first.
async fn unless_asked_to_leave<T>(leave: &mut Leave, doing: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = doing => Some(done),
        _ = leave.recv() => {
            tracing::info!("asked to leave; the node is not a member");
            None
        }
    }
}

async fn first_seat(setup: &ServeSetup) -> Result<Seat, ServeError> {
    let store = setup.platform.connect().await?;
    setup.cluster.prepare(&*store).await?;
    take_seat(setup, store, false).await
}

/// Takes another seat, however long it takes. A cordoned process remains cordoned under its new id.
async fn rejoin(setup: &ServeSetup, is_cordoned: bool) -> Seat {
    let mut retry = Retry::new(Policy::SESSION, setup.platform.chance());
    loop {
        let joining = async {
            let store = setup.platform.connect().await?;
            if store.exists(&setup.cluster.members()).await?.is_none() {
                tracing::warn!(
                    cluster = setup.cluster.name(),
                    "ZooKeeper has lost the cluster's folders and their content, including all jobs; they are \
                     created again"
                );
            }
            setup.cluster.prepare(&*store).await?;
            take_seat(setup, store, is_cordoned).await
        };
        match joining.await {
            Ok(seat) => return seat,
            Err(error) => tracing::warn!(%error, "the node cannot join now and will retry"),
        }
        time::sleep(retry.pause()).await;
    }
}

/// Becomes a member, with a new id for this session.
async fn take_seat(setup: &ServeSetup, store: Arc<dyn Store>, is_cordoned: bool) -> Result<Seat, ServeError> {
    let node = setup.platform.new_id();
    let seat = Seat::take(SeatSetup {
        node,
        store,
        cluster: setup.cluster.clone(),
        release: setup.release.clone(),
        workers: setup.workers,
        crew: setup.platform.start_crew(setup.workers).map_err(SeatError::Thread)?,
        memory_bytes: setup.memory_bytes,
        labels: setup.labels.clone(),
        near: setup.near.clone(),
        records_read_max: setup.limits.records_read_max,
        endpoint: Some(setup.platform.open_endpoint(node)?),
        brought: setup.brought.objects.clone(),
        resigned: None,
        pulse: Arc::clone(&setup.pulse),
        probe: setup.platform.probe(),
        is_cordoned,
    })
    .await?;
    tracing::info!(
        node = %seat.node, cluster = setup.cluster.name(), program = setup.release.program,
        version = setup.release.version, workers = setup.workers,
        labels = %setup.labels, address = seat.member.address.map(tracing::field::display),
        "the node is ready"
    );
    setup.pulse.set_seat(&seat);
    setup.brought.seated.send_replace(Some(Seated {
        member: seat.member.clone(),
        node: seat.node,
        store: Arc::clone(&seat.store),
        bulk: seat.bulk.as_ref().map(Bulk::downgrade),
    }));
    Ok(seat)
}

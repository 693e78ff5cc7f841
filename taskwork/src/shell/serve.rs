//! A process as a node: takes a seat, [works](super::work) on jobs, and leaves when it is told to.
//!
//! ```text
//!   connect ─▶ seat ─▶ work on jobs ── told to leave: hand on, commit, leave ─▶ end
//!     ▲                  │
//!     └──────────────────┘ the session is over: drop everything, join anew under another id
//! ```
//!
//! A task that does not check whether it should stop keeps its worker when the job is over. The node then
//! soon gives up its seat: it joins again with new workers, while the
//! thread lingers. If it is told to leave, it ends at its deadline whatever its tasks do.

use std::{future::Future, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    sync::{mpsc, watch},
    time,
};
use zk::{
    ClusterPaths, ConnectError, Labels, Release, Store,
    retry::{Policy, Retry},
};

use super::{
    kinds::Kinds,
    lingering::Lingering,
    platform::Platform,
    pulse::Pulse,
    seat::{Seat, SeatError, SeatSetup},
    transport::bulk::Object,
    work::work,
};
use crate::{config::Limits, id::NodeId};

/// The parameters of a node process.
pub(crate) struct ServeSetup {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) release: Release,
    pub(crate) kinds: Kinds,
    /// The number of workers; 0 for a member that works on no job.
    pub(crate) workers: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) labels: Labels,
    /// The label by whose value other nodes are near, if any.
    pub(crate) near: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) brought: Brought,
    pub(crate) pulse: Arc<Pulse>,
    /// The interval at which the node logs what it does; `None` for never.
    pub(crate) report_every: Option<Duration>,
    /// The number of jobs at hand, at any time.
    pub(crate) jobs: watch::Sender<usize>,
}

/// What a node brings along for others.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// Byte objects that it offers as long as it has a seat.
    pub(crate) objects: Vec<Object>,
    /// Its present id, once it has one.
    pub(crate) seated: watch::Sender<Option<NodeId>>,
}

/// Receives each request to leave, with the time that is left for it if that is less than the limits say.
pub(crate) type Leave = mpsc::Receiver<Option<Duration>>;

/// The reasons for which a node process has ended other than by leaving.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Seat(#[from] SeatError),
    #[error(transparent)]
    Store(#[from] zk::Error),
    #[error(
        "the time to leave was up before everything was handed on: {why}. Other nodes continue from what \
         was last written"
    )]
    Abandoned { why: String },
    #[error("the node has broken down by a mistake of its own; its log says more")]
    BrokenDown,
}

/// The reasons for which a session of the node has ended.
pub(super) enum Fate {
    /// The node has left.
    Left,
    /// A job was resumed that it had left when it was suspended. To take part in the job again it needs a new id,
    /// because its commits are recorded under the old one.
    Resumes,
    /// It lost its membership.
    Expired,
    /// Tasks of a job that is over do not stop.
    Stuck,
    /// The cluster's folders no longer exist.
    Wiped,
}

/// The time limit for giving up a seat: the session also ends by itself.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a node until it is told to leave.
///
/// Permanent errors in the settings end the process at the start. Temporary failures are waited out, at the
/// start as later: only the first connection has a time limit. `leave` receives each request to leave.
pub(crate) async fn serve(setup: &ServeSetup, mut leave: Leave) -> Result<(), ServeError> {
    let mut lingering = Lingering::new(setup.workers);
    let Some(first) = unless_told(&mut leave, first_seat(setup)).await else { return Ok(()) };
    let mut taken = match first {
        Ok(seat) => Some(seat),
        Err(error) if error.passes() => {
            tracing::warn!(%error, "the node cannot join now; it tries again");
            unless_told(&mut leave, join_anew(setup)).await
        }
        Err(error) => return Err(error),
    };
    while let Some(mut seat) = taken {
        let fate = work(setup, &mut seat, &mut leave).await;
        setup.jobs.send_if_modified(|jobs| std::mem::take(jobs) != 0);
        let node = seat.node;
        setup.pulse.unseated();
        if matches!(fate, Ok(Fate::Stuck)) {
            lingering.add(Box::new(seat.crew.out()));
        }
        if time::timeout(FAREWELL_TIMEOUT, seat.give_up()).await.is_err() {
            tracing::debug!(%node, "the session was not closed in time; it ends by itself");
        }
        match fate {
            Ok(Fate::Left) => {
                tracing::info!(%node, "the node has left");
                return Ok(());
            }
            Ok(Fate::Resumes) => {
                tracing::info!(%node, "a job was resumed; the node joins again under a new name")
            }
            Ok(Fate::Expired) => tracing::warn!(%node, "the node's session is over; it joins anew"),
            Ok(Fate::Stuck) => tracing::warn!(%node, "the node joins anew, with other workers"),
            Ok(Fate::Wiped) => tracing::warn!(%node, "the cluster's folders are gone; the node joins anew"),
            Err(error) => {
                tracing::error!(%node, %error, "the node ends");
                return Err(error);
            }
        }
        taken = unless_told(&mut leave, async {
            lingering.few_enough().await;
            join_anew(setup).await
        })
        .await;
    }
    Ok(())
}

/// Waits for a future, unless the process is told to leave first.
async fn unless_told<T>(leave: &mut Leave, doing: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = doing => Some(done),
        _ = leave.recv() => {
            tracing::info!("told to leave; the node is no member");
            None
        }
    }
}

async fn first_seat(setup: &ServeSetup) -> Result<Seat, ServeError> {
    let store = setup.platform.connect().await?;
    setup.cluster.prepare(&*store).await?;
    take_seat(setup, store).await
}

/// Takes another seat, however long it takes.
async fn join_anew(setup: &ServeSetup) -> Seat {
    let mut retry = Retry::new(Policy::SESSION, setup.platform.chance());
    loop {
        let joining = async {
            let store = setup.platform.connect().await?;
            if store.exists(&setup.cluster.members()).await?.is_none() {
                tracing::warn!(
                    cluster = setup.cluster.name(),
                    "ZooKeeper has lost the cluster's folders, and all that was in them, jobs too; they are \
                     made anew"
                );
            }
            setup.cluster.prepare(&*store).await?;
            take_seat(setup, store).await
        };
        match joining.await {
            Ok(seat) => return seat,
            Err(error) => tracing::warn!(%error, "the node cannot join now; it tries again"),
        }
        time::sleep(retry.pause()).await;
    }
}

/// Becomes a member, with a new id for this session.
async fn take_seat(setup: &ServeSetup, store: Arc<dyn Store>) -> Result<Seat, ServeError> {
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
    })
    .await?;
    tracing::info!(
        node = %seat.node, cluster = setup.cluster.name(), program = setup.release.program,
        version = setup.release.version, workers = setup.workers,
        labels = %setup.labels, address = seat.member.address.map(tracing::field::display),
        "the node is ready"
    );
    setup.pulse.seated(&seat);
    setup.brought.seated.send_replace(Some(seat.node));
    Ok(seat)
}

impl ServeError {
    /// Returns whether the same operation may succeed later without any change.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Seat(SeatError::NoNameService { .. }) => true,
            Self::Store(error) | Self::Seat(SeatError::Store(error)) => {
                error.is_transient() || *error == zk::Error::SessionExpired
            }
            _ => false,
        }
    }
}

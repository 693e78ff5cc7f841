//! A process as a node: takes a seat, works on one job after another, and leaves when it is told to.
//!
//! ```text
//!   connect ─▶ seat ─▶ idle ◀──────────┐
//!     ▲         │       │ a job        │ the job is over
//!     │         │       ▼              │
//!     │         │      at work ────────┘
//!     │         │       │ told to leave: hand on, commit, leave ─▶ end
//!     └─────────┴───────┘ the session is over: drop everything, join anew under another id
//! ```
//!
//! A task that does not check whether it should stop keeps its worker when the job is over. The node then
//! soon gives up its seat: it joins again with new workers, while the
//! thread lingers. If it is told to leave, it ends at its deadline whatever its tasks do.

use std::{future::Future, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{sync::mpsc, time};
use zk::{
    ClusterPaths, ConnectError, Labels, Release, Session, Store,
    job::JobRecord,
    queue::{JobQueue, Next},
    retry::{Policy, Retry},
};

use super::{
    clock::unix_ms,
    driver::Ended,
    kinds::Kinds,
    lingering::Lingering,
    node::{RunningNode, Stopping},
    platform::Platform,
    seat::{Seat, SeatError, SeatSetup},
};
use crate::{config::Limits, core::Departure, id::JobId, report::JobError};

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
    pub(crate) limits: Limits,
}

/// Receives each request to leave.
pub(crate) type Leave = mpsc::Receiver<()>;

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
enum Fate {
    /// The node has left.
    Left,
    /// It has parked the tasks of a suspended job. To take part in that job again it needs a new id, because
    /// its commits are recorded under the old one.
    Rested,
    /// It lost its membership.
    Expired,
    /// Tasks of a job that is over do not stop.
    Stuck,
    /// The cluster's folders no longer exist.
    Wiped,
}

/// The time for which tasks of a job that is over may run before that is reported.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time for which they may run before the node gives up its seat and joins again with new workers.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for giving up a seat: the session also ends by itself.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(3);

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
        let fate = work(setup, &mut seat, &mut leave, &mut lingering).await;
        let node = seat.node;
        if time::timeout(FAREWELL_TIMEOUT, seat.give_up()).await.is_err() {
            tracing::debug!(%node, "the session was not closed in time; it ends by itself");
        }
        match fate {
            Ok(Fate::Left) => {
                tracing::info!(%node, "the node has left");
                return Ok(());
            }
            Ok(Fate::Rested) => tracing::info!(%node, "the job rests; the node joins anew"),
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
        memory_bytes: setup.memory_bytes,
        labels: setup.labels.clone(),
        endpoint: Some(setup.platform.open_endpoint(node)?),
        resigned: None,
    })
    .await?;
    tracing::info!(
        node = %seat.node, cluster = setup.cluster.name(), program = setup.release.program,
        version = setup.release.version, workers = setup.workers,
        labels = %setup.labels, address = seat.member.address.map(tracing::field::display),
        "the node is ready"
    );
    Ok(seat)
}

/// Works on one job after another.
async fn work(
    setup: &ServeSetup,
    seat: &mut Seat,
    leave: &mut Leave,
    lingering: &mut Lingering,
) -> Result<Fate, ServeError> {
    let mut queue =
        JobQueue::new(Arc::clone(&seat.store) as Arc<dyn Store>, seat.cluster.clone(), seat.member.clone());
    let mut retry = Retry::new(Policy::REQUEST, seat.node.0);
    loop {
        let asked = Arc::clone(&seat.asked_to_leave);
        let expired = seat.store.session();
        let next = tokio::select! {
            biased;
            _ = leave.recv() => {
                tracing::info!(node = %seat.node, "told to leave; there is no job at hand");
                return Ok(Fate::Left);
            }
            () = asked.notified() => return Ok(Fate::Left),
            () = is_over(expired) => return Ok(Fate::Expired),
            next = queue.next(), if setup.workers > 0 => next,
            () = seat.idle() => continue,
        };
        match next {
            Ok(Next::InVain(name, reason)) => {
                let Ok(job) = name.parse::<JobId>() else {
                    queue.pass(name);
                    continue;
                };
                let mut desk = Desk { setup, leave, lingering, queue: &mut queue, retry: &mut retry };
                if let Some(fate) = desk.give_up_job(seat, &job, &reason).await {
                    return Ok(fate);
                }
            }
            Ok(Next::Job(name, record)) => {
                let job = match name.parse::<JobId>() {
                    Ok(job) => job,
                    Err(error) => {
                        tracing::warn!(node = %seat.node, %error, "a job is passed over");
                        queue.pass(name);
                        continue;
                    }
                };
                let mut desk = Desk {
                    setup,
                    leave: &mut *leave,
                    lingering: &mut *lingering,
                    queue: &mut queue,
                    retry: &mut retry,
                };
                if let Some(fate) = desk.one_job(seat, job, &record).await? {
                    return Ok(fate);
                }
            }
            Err(zk::Error::NoNode { .. }) => return Ok(Fate::Wiped),
            Err(error @ zk::Error::NoAuth { .. }) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(node = %seat.node, %error, "the jobs cannot be read; it is tried again");
                if let Some(fate) = try_again(seat, leave, &mut retry, "reading the jobs", &error).await {
                    return Ok(fate);
                }
            }
        }
    }
}

/// Waits before an operation is tried again. Returns the end of the session if there is no further try.
async fn try_again(
    seat: &Seat,
    leave: &mut Leave,
    retry: &mut Retry,
    what: &str,
    error: &zk::Error,
) -> Option<Fate> {
    match unless_told(leave, retry.again(&*seat.store, what, error)).await {
        Some(true) => None,
        Some(false) => Some(Fate::Expired),
        None => Some(Fate::Left),
    }
}

async fn is_over(mut session: tokio::sync::watch::Receiver<Session>) {
    // The sender lives as long as the session.
    let _ = session.wait_for(|state| *state == Session::Expired).await;
}

/// The parts of the process that the work on one job uses.
struct Desk<'a> {
    setup: &'a ServeSetup,
    leave: &'a mut Leave,
    lingering: &'a mut Lingering,
    queue: &'a mut JobQueue,
    /// The retry state for beginning a job.
    retry: &'a mut Retry,
}

/// The state of the workers of a job that is over for the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    All,
    /// Some are still running, and the process was told to leave.
    ToldToLeave,
    /// Some have been running for too long.
    Stuck,
}

impl Desk<'_> {
    /// Works on a job until it is over. Returns `None` if the node can work on another one.
    async fn one_job(
        &mut self,
        seat: &mut Seat,
        job: JobId,
        record: &JobRecord,
    ) -> Result<Option<Fate>, ServeError> {
        let Some(kind) = self.setup.kinds.get(&record.kind) else {
            let reason = format!("this version of {} has no kind of task {:?}", record.program, record.kind);
            return Ok(self.give_up_job(seat, &job, &reason).await);
        };
        let limits = Limits { deaths_max: record.deaths_max, ..self.setup.limits.clone() };
        let starting = RunningNode::open(seat, kind, &job, &record.require, &limits);
        let Some(started) = unless_told(self.leave, starting).await else { return Ok(Some(Fate::Left)) };
        let mut running = match started {
            Ok(running) => running,
            Err(error) => return Ok(self.not_started(seat, &job, &error).await),
        };
        self.retry.succeeded();
        tracing::info!(node = %seat.node, %job, name = record.name, "the node works on a job");
        let (ended, told_to_leave) = self.until_ended(seat, &mut running).await;
        let suspended = running.was_suspended() && !told_to_leave;
        let mut stopping = running.stop(seat).await;
        if ended == Ended::Departed(Departure::Abandoned) {
            let why = abandoned_why(seat, &job, &stopping);
            let _ = stopping.done().await;
            return Err(ServeError::Abandoned { why });
        }
        let back = self.until_back(seat, &job, &mut stopping, told_to_leave).await;
        let (figures, workers) = stopping.done().await;
        tracing::info!(
            node = %seat.node, %job, ?ended, worked = figures.worked, tasks = figures.tasks, steals = figures.steals,
            transactions = figures.transactions, "the node's work on the job has ended"
        );
        if back == Back::Stuck {
            self.lingering.add(workers);
        }
        let told_to_leave = told_to_leave || back == Back::ToldToLeave;
        match ended {
            Ended::Departed(Departure::Clean) if suspended => Ok(Some(Fate::Rested)),
            Ended::Departed(Departure::Clean) => Ok(Some(Fate::Left)),
            // The request is not repeated: a node that was told to leave takes no further job, and does not
            // join again.
            Ended::JobOver | Ended::Departed(Departure::Expelled) if told_to_leave => Ok(Some(Fate::Left)),
            Ended::JobOver | Ended::ShutDown if back == Back::Stuck => Ok(Some(Fate::Stuck)),
            Ended::ShutDown if told_to_leave => Ok(Some(Fate::Left)),
            Ended::JobOver | Ended::ShutDown => Ok(None),
            Ended::Departed(Departure::Expelled) => Ok(Some(Fate::Expired)),
            Ended::Departed(Departure::Abandoned) | Ended::BrokenDown => Err(ServeError::BrokenDown),
        }
    }

    /// Handles a failure to begin the work on a job.
    async fn not_started(&mut self, seat: &Seat, job: &JobId, error: &JobError) -> Option<Fate> {
        if let JobError::Coordination(error) = error {
            match &error.0 {
                zk::Error::NoNode { .. } => return None,
                zk::Error::SessionExpired => return Some(Fate::Expired),
                error if error.is_transient() => {
                    let node = seat.node;
                    tracing::warn!(%node, %job, %error, "the job's data cannot be read; it is tried again");
                    return self.try_again(seat, "reading the job's data", error).await;
                }
                _ => {}
            }
        }
        self.give_up_job(seat, job, &error.to_string()).await
    }

    async fn try_again(&mut self, seat: &Seat, what: &str, error: &zk::Error) -> Option<Fate> {
        try_again(seat, self.leave, self.retry, what, error).await
    }

    /// Waits for the end of the work on a job, and passes on each request to leave. Returns whether there was
    /// one.
    async fn until_ended(&mut self, seat: &Seat, running: &mut RunningNode) -> (Ended, bool) {
        let mut told = false;
        loop {
            let silence = running.silence();
            tokio::select! {
                biased;
                ended = running.ended() => return (ended, told),
                Some(()) = self.leave.recv() => {
                    tracing::info!(node = %seat.node, "told to leave; what is unfinished is handed on");
                    running.drain();
                }
                () = seat.asked_to_leave.notified() => running.retire().await,
                () = silence => {
                    if told || running.was_suspended() {
                        continue;
                    }
                    // Tasks of an attempt that is over run on: without its workers the node cannot take part
                    // in the next one.
                    return (Ended::ShutDown, told);
                }
            }
            told = true;
        }
    }

    /// Waits for the workers, as long as nothing else is delayed by it.
    async fn until_back(
        &mut self,
        seat: &mut Seat,
        job: &JobId,
        stopping: &mut Stopping,
        told: bool,
    ) -> Back {
        let asked = Arc::clone(&seat.asked_to_leave);
        let deadline = time::Instant::now() + WORKERS_TIMEOUT;
        if time::timeout(PATIENCE, stopping.workers_back()).await.is_ok() {
            return Back::All;
        }
        if told {
            return Back::ToldToLeave;
        }
        tracing::info!(
            node = %seat.node, %job, tasks = stopping.running_tasks().join(", "),
            "the job is over for this node, but tasks of it have not stopped; it is waited for them"
        );
        let back = tokio::select! {
            biased;
            () = stopping.workers_back() => Back::All,
            _ = self.leave.recv() => Back::ToldToLeave,
            () = asked.notified() => Back::ToldToLeave,
            () = time::sleep_until(deadline) => Back::Stuck,
            () = seat.idle() => Back::Stuck,
        };
        if back != Back::All {
            tracing::error!(
                node = %seat.node, %job, tasks = stopping.running_tasks().join(", "),
                "a task does not ask whether it is to stop (Context::migrate); its thread lingers until it \
                 returns"
            );
        }
        back
    }

    /// Fails a job that this node cannot run, if no other node could either.
    async fn give_up_job(&mut self, seat: &Seat, job: &JobId, reason: &str) -> Option<Fate> {
        tracing::error!(node = %seat.node, %job, reason, "the job cannot be run");
        match zk::job::fail(&*seat.store, &seat.cluster, &job.0, reason, unix_ms()).await {
            Err(zk::Error::SessionExpired) => return Some(Fate::Expired),
            // If the job were skipped it would never end.
            Err(error) if error.is_transient() => {
                tracing::warn!(
                    node = %seat.node, %job, %error,
                    "that could not be recorded; it is tried again"
                );
                return self.try_again(seat, "failing the job", &error).await;
            }
            Err(error) => tracing::warn!(node = %seat.node, %job, %error, "that could not be recorded"),
            Ok(()) => {}
        }
        self.queue.pass(job.0.clone());
        None
    }
}

/// Returns what a node that abandoned its tasks was waiting for.
fn abandoned_why(seat: &Seat, job: &JobId, stopping: &Stopping) -> String {
    let tasks = stopping.running_tasks();
    if !tasks.is_empty() {
        let tasks = tasks.join(", ");
        return format!("job {job}: task {tasks} does not ask whether it is to stop (Context::migrate)");
    }
    if *seat.store.session().borrow() != Session::Connected {
        return format!("job {job}: ZooKeeper does not answer");
    }
    format!("job {job}: other nodes, or ZooKeeper, have not answered in time")
}

impl ServeError {
    /// Returns whether the same operation may succeed later without any change.
    fn passes(&self) -> bool {
        match self {
            Self::Store(error) | Self::Seat(SeatError::Store(error)) => {
                error.is_transient() || *error == zk::Error::SessionExpired
            }
            _ => false,
        }
    }
}

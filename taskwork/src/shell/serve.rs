//! A process as a node: takes a seat, works on one job after another, leaves when it is told to.
//!
//! ```text
//!   connect ─▶ seat ─▶ idle ◀──────────┐
//!     ▲         │       │ a job        │ the job is over
//!     │         │       ▼              │
//!     │         │      at work ────────┘
//!     │         │       │ told to leave: hand on, commit, leave ─▶ end
//!     └─────────┴───────┘ the session is over: drop everything, join anew under another id
//! ```

use std::{sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{sync::mpsc, time};
use zk::{
    ClusterPaths, ConnectError, Store,
    job::JobRecord,
    queue::{JobQueue, Runs},
};

use super::{
    clock::unix_ms,
    driver::Ended,
    ground::Ground,
    kinds::Kinds,
    node::RunningNode,
    seat::{Seat, SeatError, SeatSetup},
};
use crate::{config::Limits, core::Departure, id::JobId, job::JobError};

/// What a node process is told at its start.
pub(crate) struct ServeSetup {
    pub(crate) ground: Box<dyn Ground>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) runs: Runs,
    pub(crate) kinds: Kinds,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
}

/// Each word that the process is to leave.
pub(crate) type Leave = mpsc::Receiver<()>;

/// Why a node process has ended other than by leaving.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Seat(#[from] SeatError),
    #[error(transparent)]
    Store(#[from] zk::Error),
    #[error(
        "the time to leave was up before everything was handed on; what was left is lost, a new attempt begins"
    )]
    Abandoned,
    #[error("the node has broken down by a mistake of its own; its log says more")]
    BrokenDown,
}

/// How a session of the node has ended.
enum Fate {
    /// It has left.
    Left,
    /// It has parked the tasks of a job that is put aside. Should it take part in that job again, it is as another
    /// node: what it has committed stands under its id.
    Rested,
    /// It is no member any more, without its doing.
    Expired,
}

/// The pause before something that failed for the moment is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two tries to join anew.
const REJOIN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs a node until it is told to leave.
///
/// What fails at the start ends the process: something is wrong with what it was told. Later it is tried again: the
/// servers may be away for a while, or the port not free yet. `leave` says so each time the process is told to leave.
pub(crate) async fn serve(setup: &ServeSetup, mut leave: Leave) -> Result<(), ServeError> {
    let store = setup.ground.connect().await?;
    setup.cluster.prepare(&*store).await?;
    let mut seat = take_seat(setup, store).await?;
    loop {
        let fate = work(setup, &mut seat, &mut leave).await;
        let node = seat.node;
        seat.give_up().await;
        match fate {
            Ok(Fate::Left) => {
                tracing::info!(%node, "the node has left");
                return Ok(());
            }
            Ok(Fate::Rested) => tracing::info!(%node, "the job rests; the node joins anew"),
            Ok(Fate::Expired) => tracing::warn!(%node, "the node's session is over; it joins anew"),
            Err(error) => {
                tracing::error!(%node, %error, "the node ends");
                return Err(error);
            }
        }
        let Some(next) = join_anew(setup, &mut leave).await else { return Ok(()) };
        seat = next;
    }
}

/// Takes another seat, however long it takes; `None` if the node is told to leave before.
async fn join_anew(setup: &ServeSetup, leave: &mut Leave) -> Option<Seat> {
    let mut pause = RETRY_PAUSE;
    loop {
        let joining = async {
            let store = setup.ground.connect().await?;
            take_seat(setup, store).await
        };
        let outcome = tokio::select! {
            biased;
            outcome = joining => outcome,
            told = told_to_leave(leave) => return told,
        };
        match outcome {
            Ok(seat) => return Some(seat),
            Err(error) => tracing::warn!(%error, "the node cannot join now; it tries again"),
        }
        tokio::select! {
            biased;
            () = time::sleep(pause) => pause = (2 * pause).min(REJOIN_PAUSE_MAX),
            told = told_to_leave(leave) => return told,
        }
    }
}

async fn told_to_leave(leave: &mut Leave) -> Option<Seat> {
    leave.recv().await;
    None
}

/// Becomes a member, under an id of this session's own.
async fn take_seat(setup: &ServeSetup, store: Arc<dyn Store>) -> Result<Seat, ServeError> {
    let node = setup.ground.new_id();
    let seat = Seat::take(SeatSetup {
        node,
        store,
        cluster: setup.cluster.clone(),
        runs: setup.runs.clone(),
        workers: setup.workers,
        way: Some(setup.ground.open_way(node)?),
    })
    .await?;
    tracing::info!(
        node = %seat.node, cluster = setup.cluster.name(), program = setup.runs.program,
        version = setup.runs.version, workers = setup.workers,
        address = seat.address.map(tracing::field::display),
        "the node is ready"
    );
    Ok(seat)
}

/// One job after another.
async fn work(setup: &ServeSetup, seat: &mut Seat, leave: &mut Leave) -> Result<Fate, ServeError> {
    let mut queue =
        JobQueue::new(Arc::clone(&seat.store) as Arc<dyn Store>, seat.cluster.clone(), seat.runs.clone());
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
            next = queue.next() => next,
            () = seat.idle() => continue,
        };
        match next {
            Ok((job, record)) => {
                if let Some(fate) = one_job(setup, seat, leave, &mut queue, JobId(job), &record).await? {
                    return Ok(fate);
                }
            }
            Err(zk::Error::SessionExpired) => return Ok(Fate::Expired),
            Err(error @ zk::Error::NoAuth { .. }) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(node = %seat.node, %error, "the jobs cannot be read; it is tried again");
                time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn is_over(mut session: tokio::sync::watch::Receiver<zk::Session>) {
    // The sender lives as long as the session.
    let _ = session.wait_for(|state| *state == zk::Session::Expired).await;
}

/// Works on a job until it is over: then `None`, and there may be another.
async fn one_job(
    setup: &ServeSetup,
    seat: &mut Seat,
    leave: &mut Leave,
    queue: &mut JobQueue,
    job: JobId,
    record: &JobRecord,
) -> Result<Option<Fate>, ServeError> {
    let Some(kind) = setup.kinds.get(&record.kind) else {
        let reason = format!("this version of {} has no kind of task {:?}", record.program, record.kind);
        give_up_job(seat, &job, &reason).await;
        queue.pass(job.0);
        return Ok(None);
    };
    let mut running = match kind.start(seat, &job, &setup.limits).await {
        Ok(running) => running,
        Err(JobError::Coordination(zk::Error::NoNode { .. })) => return Ok(None),
        Err(JobError::Coordination(zk::Error::SessionExpired)) => return Ok(Some(Fate::Expired)),
        Err(JobError::Coordination(error)) if error.is_transient() => {
            tracing::warn!(node = %seat.node, %job, %error, "the job's data cannot be read; it is tried again");
            time::sleep(RETRY_PAUSE).await;
            return Ok(None);
        }
        Err(error) => {
            give_up_job(seat, &job, &error.to_string()).await;
            queue.pass(job.0);
            return Ok(None);
        }
    };
    tracing::info!(node = %seat.node, %job, name = record.name, "the node works on a job");
    let (ended, told_to_leave) = until_ended(leave, seat, &mut running).await;
    let suspended = running.was_suspended() && !told_to_leave;
    let figures = running.finish(seat).await;
    tracing::info!(
        node = %seat.node, %job, ?ended, worked = figures.worked, tasks = figures.tasks, steals = figures.steals,
        transactions = figures.transactions, "the node's work on the job has ended"
    );
    match ended {
        Ended::Departed(Departure::Clean) if suspended => Ok(Some(Fate::Rested)),
        Ended::Departed(Departure::Clean) => Ok(Some(Fate::Left)),
        // It is not told again: whoever was told to leave does not come back for the next job, nor as another node.
        Ended::JobOver | Ended::Departed(Departure::Expelled) if told_to_leave => Ok(Some(Fate::Left)),
        Ended::JobOver => Ok(None),
        Ended::Departed(Departure::Expelled) => Ok(Some(Fate::Expired)),
        Ended::Departed(Departure::Abandoned) => Err(ServeError::Abandoned),
        Ended::ShutDown | Ended::BrokenDown => Err(ServeError::BrokenDown),
    }
}

/// Waits for the end of the work on a job, and passes on each word that the node is to leave. Says whether there was one.
async fn until_ended(leave: &mut Leave, seat: &Seat, running: &mut RunningNode) -> (Ended, bool) {
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            ended = running.ended() => return (ended, told),
            Some(()) = leave.recv() => {
                tracing::info!(node = %seat.node, "told to leave; what is unfinished is handed on");
                running.drain();
            }
            () = seat.asked_to_leave.notified() => running.drain(),
        }
        told = true;
    }
}

/// A job that this program cannot run fails, for no other node could.
async fn give_up_job(seat: &Seat, job: &JobId, reason: &str) {
    tracing::error!(node = %seat.node, %job, reason, "the job cannot be run");
    if let Err(error) = zk::job::fail(&*seat.store, &seat.cluster, &job.0, reason, unix_ms()).await {
        tracing::warn!(node = %seat.node, %job, %error, "that could not be recorded");
    }
}

//! A node's work on one job.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{self, Duration},
};

use thiserror::Error;
use tracing::Instrument as _;
use zk::{
    Counted, Labels,
    figures::{EventKind, Status},
    job::JobRecord,
};

use super::{
    clock::{Clock, unix_ms},
    companion::Host,
    coordination::{
        Coordination, Deadline, LEAVE_REQUESTS_MAX, LOOKS_MAX, LeaveRequest, Leaving, ORDERS_MAX, Visibility,
    },
    driver::{Driver, Ended},
    mail::Mail,
    seat::Seat,
    shared::{ReadError, Shared, Source},
    transport::bulk::Offer,
};
use crate::{
    companion::{Desk, Journal, Places, Stage, Supply},
    config::Limits,
    core::{self, Departure, Event},
    erased::{Kind, OpenError, PoolSetup},
    figures::{Counter, Figures},
    id::{JobId, NodeId},
    outlook::Window,
    pool::{Claim, PoolLimits, Work, Workers, Workplace},
    report::JobError,
    wire::parcel::Parcel,
};

impl From<OpenError> for JobError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Shared { reason } => Self::Shared { reason },
        }
    }
}

/// A node's part in a job, with the type of the tasks [erased](crate::erased).
pub(crate) struct Part {
    pub(crate) job: JobId,
    /// The labels that other nodes must have to take part.
    pub(crate) require: Labels,
    pub(crate) claim: Claim,
    pub(crate) pool: Arc<dyn Work>,
    /// The offer of the shared data to other nodes.
    pub(crate) offer: Option<Offer>,
    pub(crate) limits: Limits,
    /// Whether figures and a readable result are written for users.
    pub(crate) visibility: Visibility,
}

pub(crate) struct RunningNode {
    driver: JoinHandle<Ended>,
    /// The result of the driver, once it has stopped.
    ended: Option<Ended>,
    coordination: Arc<Coordination>,
    loops: JoinSet<()>,
    workers: Workers,
    shutdown: oneshot::Sender<()>,
    /// The shared data, offered to other nodes while this one works on the job.
    _offer: Option<Offer>,
}

/// The maximum number of events of the znode tree queued for the driver.
const EVENTS_MAX: usize = 1024;

/// The maximum number of letters queued for the driver. They may be large, and stay in the tree until they are read.
const LETTERS_MAX: usize = 2;

/// The source of a job's shared data.
pub(crate) enum SharedData {
    /// The data is read from the tree, or fetched from other nodes.
    Stored(Box<JobRecord>),
    /// The kind already has the data.
    InKind,
}

/// The reasons why a job's pool was not opened.
#[derive(Debug, Error)]
pub(crate) enum NotOpened {
    #[error(transparent)]
    Failed(#[from] JobError),
    /// No member has sent the shared data so far.
    #[error("{0}")]
    Absent(String),
}

impl From<ReadError> for NotOpened {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Failed(error.into()),
            ReadError::Absent { .. } | ReadError::Alone => Self::Absent(error.to_string()),
        }
    }
}

/// A job's pool, and the offer of its shared data to other nodes.
pub(crate) type OpenPool = (Arc<dyn Work>, Option<Offer>);

/// Opens a pool for a job with any type of task, after the cleanup of an earlier part of the node in the job. The
/// future does not borrow the seat.
pub(crate) fn open_pool<'k>(
    seat: &mut Seat,
    kind: &'k dyn Kind,
    job: &JobId,
    limits: &Limits,
    shared: SharedData,
) -> impl Future<Output = Result<OpenPool, NotOpened>> + Send + use<'k> {
    let (cleanups, job, source) = (seat.cleanup_of(job), job.clone(), Source::of(seat));
    let (node, workers, tasks_made) = (seat.node, seat.workers, Arc::clone(&seat.tasks_made));
    let limits = PoolLimits::of(limits);
    async move {
        cleanups.await;
        let Shared { pieces: shared, offer } = match shared {
            SharedData::Stored(record) => source.read(&job, &record).await?,
            SharedData::InKind => Shared { pieces: Vec::new(), offer: None },
        };
        let setup = PoolSetup { node, job: job.number(), workers, limits, tasks_made, shared };
        Ok((kind.open(setup).await.map_err(JobError::from)?, offer))
    }
}

impl RunningNode {
    /// Starts to work on a job whose pool is open.
    pub(crate) fn start(seat: &Seat, part: Part) -> Self {
        let (events_in, events) = mpsc::channel(EVENTS_MAX);
        let (orders, orders_out) = mpsc::channel(ORDERS_MAX);
        let (letters_in, letters) = mpsc::channel(LETTERS_MAX);
        let (leave_requests, leave_requests_out) = mpsc::channel(LEAVE_REQUESTS_MAX);
        let (drain, drain_out) = mpsc::channel(LEAVE_REQUESTS_MAX);
        let (shutdown, shutdown_out) = oneshot::channel();
        let (orphan_looks, orphans_wanted) = watch::channel(0);
        let Part { job, pool, limits, .. } = &part;
        let run = pool.companion();
        let (journal, journal_out) = Journal::new();
        let desk = run.is_some().then(Arc::<Desk>::default);
        // Opened before the companion starts, so that the first answers to it are received.
        let line = seat.dispatch.as_ref().map(|dispatch| dispatch.open(job.number(), desk.clone()));
        let companion = run.zip(desk).map(|(run, desk)| {
            let places = seat.crew.places(part.claim, run.1 == Stage::Here);
            let means =
                seat.means(part.visibility.is_public(), Places(Arc::clone(&places) as Arc<dyn Supply>));
            let network = (seat.dispatch.as_ref(), seat.bulk.as_ref());
            Arc::new(Host::start(run, job, (seat.node, means, places), (desk, journal), network))
        });
        let channels = Channels {
            events: events_in,
            letters: letters_in,
            leave_requests,
            drain,
            orphans_wanted,
            companion,
        };
        let coordination = Arc::new(coordination(seat, &part, channels));
        seat.pulse.add_part(&coordination);
        coordination.timeline.note_at(
            seat.joined_ms,
            EventKind::Joined,
            format!("with {} workers", seat.workers),
        );
        let span = tracing::info_span!("job", %job, node = %seat.node);
        let loops = span.in_scope(|| coordination.start(orders_out, leave_requests_out, journal_out));
        let driver = Driver {
            probe: Arc::clone(&seat.probe),
            core: core::Node::new(seat.node, limits.clone(), seat.node.0.wrapping_add(job.number())),
            line,
            job: job.clone(),
            pool: Arc::clone(pool),
            events,
            letters,
            mail: Mail::default(),
            orders,
            publish: Arc::clone(&coordination.publish),
            waits: Arc::clone(&coordination.waits),
            orphan_looks,
            shutdown: shutdown_out,
            drain: drain_out,
            figures: Arc::clone(&coordination.figures),
            ledger: Arc::clone(&coordination.ledger_state),
            givers: Arc::clone(&coordination.givers),
            cut_off: Arc::clone(&coordination.cut_off),
            timeline: Arc::clone(&coordination.timeline),
            clock: coordination.clock,
            fed: false,
            epoch: 0,
        };
        // Added before the driver starts, which removes the pool from the crew when it stops.
        let workers = seat.crew.add(part.claim, Arc::clone(pool) as Arc<dyn Workplace>);
        let driver = tokio::spawn(driver.run().instrument(span));
        Self { driver, ended: None, coordination, loops, workers, shutdown, _offer: part.offer }
    }

    pub(crate) fn figures(&self) -> Figures {
        self.coordination.figures_now()
    }

    /// Returns the number of known nodes of this node's release, including itself.
    pub(crate) fn members_known(&self) -> usize {
        self.coordination.members_known()
    }

    /// Returns the job status provided by the companion on this node.
    pub(crate) fn status(&self) -> Option<Status> {
        self.coordination.status()
    }

    /// Requests that the node leaves by its deadline or within a shorter time, handing over its unfinished tasks. On a
    /// second request the tasks are parked.
    pub(crate) fn drain(&self, within: Option<Duration>) {
        self.coordination.timeline.note(EventKind::ToldToLeave, "");
        let within_ms =
            within.map_or(u64::MAX, |within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let deadline_ms = self.coordination.drain_deadline_ms.min(within_ms);
        self.coordination.leave(Leaving::Drain { deadline_ms });
    }

    pub(crate) fn was_suspended(&self) -> bool {
        self.coordination.suspended.load(Relaxed)
    }

    /// Waits until the node's part in the job has ended.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn ended(&mut self) -> Ended {
        if self.ended.is_none() {
            let outcome = (&mut self.driver).await.unwrap_or_else(|error| {
                tracing::error!(node = %self.coordination.node, %error, "the node's driver has panicked");
                self.coordination.pool.close();
                Ended::BrokenDown
            });
            self.ended = Some(outcome);
        }
        self.ended.unwrap_or(Ended::BrokenDown)
    }

    /// Requests that the node leaves, without a time limit for handing over its unfinished tasks.
    pub(crate) fn retire(&self) {
        self.coordination.timeline.note(EventKind::ToldToLeave, "");
        self.coordination.leave(Leaving::Retire);
    }

    /// Like [`retire`](Self::retire), but with less time for the companion, because another job waits.
    pub(crate) fn give_way(&self) {
        self.coordination.timeline.note(EventKind::ToldToLeave, "");
        self.coordination.leave(Leaving::GiveWay);
    }

    /// Waits until tasks have ignored a request to stop for too long.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) fn silence(&self) -> impl Future<Output = ()> + use<> {
        let coordination = Arc::clone(&self.coordination);
        async move { coordination.silence.notified().await }
    }

    /// Sets whether the node works on no other job.
    pub(crate) fn set_alone(&self, alone: bool) {
        self.coordination.alone.send_replace(alone);
    }

    /// Waits until the node has to resign, which it does once it works on no other job.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) fn resigning(&self) -> impl Future<Output = ()> + use<> {
        let coordination = Arc::clone(&self.coordination);
        async move { coordination.resigning.notified().await }
    }

    /// Ends the node's part in the job. Running tasks stop at their next `migrate()`.
    pub(crate) async fn stop(mut self, seat: &mut Seat) -> Stopping {
        let shutdown = std::mem::replace(&mut self.shutdown, oneshot::channel().0);
        // Fails if the driver has already stopped.
        let _ = shutdown.send(());
        let ended = self.ended().await;
        self.loops.shutdown().await;
        if let Some(companion) = &self.coordination.companion {
            companion.desk.end();
            companion.places.close();
            seat.await_companion(&self.coordination.job, Arc::clone(companion));
        }
        // Not awaited: the tasks may be slow to stop, and other nodes that work on the job need a leader.
        let coordination = Arc::clone(&self.coordination);
        seat.run_cleanup(&self.coordination.job, async move { coordination.withdraw().await });
        Stopping { ended, coordination: self.coordination, workers: self.workers, asked_ms: unix_ms() }
    }

    /// Ends the work on the job, waits for its tasks to stop, and returns the figures.
    pub(crate) async fn finish(self, seat: &mut Seat) -> Figures {
        let mut stopping = self.stop(seat).await;
        stopping.workers_back().await;
        stopping.done().await
    }
}

/// The channel ends of a node's coordination.
struct Channels {
    events: mpsc::Sender<Event>,
    letters: mpsc::Sender<(NodeId, Parcel)>,
    leave_requests: mpsc::Sender<LeaveRequest>,
    drain: mpsc::Sender<Deadline>,
    orphans_wanted: watch::Receiver<u64>,
    companion: Option<Arc<Host>>,
}

fn coordination(seat: &Seat, part: &Part, channels: Channels) -> Coordination {
    let Channels { events, letters, leave_requests, drain, orphans_wanted, companion } = channels;
    let Part { job, require, pool, limits, visibility, .. } = part;
    Coordination {
        store: Arc::new(Counted::new(Arc::clone(&seat.store))),
        cluster: seat.cluster.clone(),
        job: job.clone(),
        require: require.clone(),
        node: seat.node,
        pool: Arc::clone(pool),
        others: Arc::clone(&seat.others),
        expired: Arc::clone(&seat.expired),
        cordoned: Arc::clone(&seat.cordoned),
        events,
        letters,
        publish: Arc::default(),
        waits: Arc::default(),
        member_gone: Notify::new(),
        figures: Arc::default(),
        ledger_state: Arc::default(),
        givers: Arc::default(),
        cut_off: Arc::default(),
        clock: Clock::start(),
        outlook: Mutex::new(Window::new(visibility.window())),
        timeline: Arc::default(),
        rebuilds: Counter::default(),
        takes_part_in: AtomicU32::new(0),
        enrolled: Notify::new(),
        letters_posted: AtomicU64::new(0),
        attempt: AtomicU32::new(0),
        suspended: AtomicBool::new(false),
        silent: Mutex::default(),
        silence: Notify::new(),
        standing: AsyncMutex::default(),
        has_led: AtomicBool::default(),
        looks: Arc::new(Semaphore::new(LOOKS_MAX)),
        visibility: *visibility,
        orphans_wanted,
        ledger_interval_ms: limits.ledger_interval_ms,
        unprotected_logged: AtomicBool::new(false),
        crashes_max: limits.crashes_max,
        drain_deadline_ms: limits.drain_deadline_ms,
        rescue_ms: limits.rescue_ms,
        companion,
        leave_requests,
        drain,
        resigned: seat.resigned.clone(),
        alone: watch::Sender::new(true),
        resigning: Notify::new(),
        probe: Arc::clone(&seat.probe),
    }
}

/// A node's part in a job that has ended, but whose workers may still run.
pub(crate) struct Stopping {
    ended: Ended,
    coordination: Arc<Coordination>,
    workers: Workers,
    /// The time at which its tasks were last asked to stop.
    asked_ms: u64,
}

/// The time limit for publishing the last figures of a node. Nothing depends on them.
const LAST_FIGURES_TIMEOUT: Duration = Duration::from_secs(2);

impl Stopping {
    /// Waits until every worker has returned.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn workers_back(&mut self) {
        self.workers.returned().await;
    }

    /// Returns the names of the tasks that have not stopped.
    pub(crate) fn running_tasks(&self) -> Vec<String> {
        self.coordination.running_tasks()
    }

    /// Publishes the last figures and returns them.
    pub(crate) async fn done(self) -> Figures {
        let figures = self.coordination.figures_now();
        let Figures { handed_on, parked, .. } = figures;
        let handed_on = || format!("{handed_on} tasks handed over, {parked} parked");
        match self.ended {
            Ended::Departed(Departure::Clean) => {
                self.coordination.timeline.note(EventKind::Left, handed_on());
            }
            Ended::Departed(Departure::Abandoned) => {
                self.coordination.timeline.note(EventKind::Abandoned, handed_on());
            }
            Ended::Departed(Departure::Expelled) | Ended::ShutDown | Ended::JobOver | Ended::BrokenDown => {}
        }
        self.coordination.note_silent(self.coordination.silent_since(self.asked_ms));
        if time::timeout(LAST_FIGURES_TIMEOUT, self.coordination.publish_figures_once(true)).await.is_err() {
            tracing::debug!(node = %self.coordination.node, "the last figures were not written in time");
        }
        figures
    }
}

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
    figures::{EventKind, Sight},
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
    companion::{Desk, Journal},
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
    /// The job's claim on the workers of the node.
    pub(crate) claim: Claim,
    pub(crate) pool: Arc<dyn Work>,
    /// Offers the shared data to other nodes.
    pub(crate) offer: Option<Offer>,
    pub(crate) limits: Limits,
    /// Whether figures are written, and the result so that people can read it.
    pub(crate) visibility: Visibility,
}

/// A node that works on a job.
pub(crate) struct RunningNode {
    driver: JoinHandle<Ended>,
    /// The result of the driver.
    ended: Option<Ended>,
    coordination: Arc<Coordination>,
    loops: JoinSet<()>,
    workers: Workers,
    shutdown: oneshot::Sender<()>,
    /// The shared data, which other nodes fetch as long as this one works on the job.
    _offer: Option<Offer>,
}

/// The maximum number of events of the znode tree that wait for the driver.
const EVENTS_MAX: usize = 1024;

/// The maximum number of letters that wait for the driver: they are safe in the tree, and may be large.
const LETTERS_MAX: usize = 2;

/// Where the shared data of a job comes from.
pub(crate) enum SharedData {
    /// It is read in the tree, or fetched from other nodes.
    Stored(Box<JobRecord>),
    /// The kind has it already.
    InKind,
}

/// The reasons for which a job's pool could not be opened.
#[derive(Debug, Error)]
pub(crate) enum NotOpened {
    #[error(transparent)]
    Failed(#[from] JobError),
    /// No member has sent the shared data, which others may have later.
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

/// A job's pool, with its shared data as it is offered to other nodes.
pub(crate) type OpenPool = (Arc<dyn Work>, Option<Offer>);

/// Opens a pool for a job with any type of task, after what remains to be done for an earlier part of the node in
/// it. The seat is not used any more when this returns.
pub(crate) fn open_pool<'k>(
    seat: &mut Seat,
    kind: &'k dyn Kind,
    job: &JobId,
    limits: &Limits,
    shared: SharedData,
) -> impl Future<Output = Result<OpenPool, NotOpened>> + Send + use<'k> {
    let (errands, job, source) = (seat.errands_of(job), job.clone(), Source::of(seat));
    let (node, workers, tasks_made) = (seat.node, seat.workers, Arc::clone(&seat.tasks_made));
    let limits = PoolLimits::of(limits);
    async move {
        errands.await;
        let Shared { pieces: shared, offer } = match shared {
            SharedData::Stored(record) => source.read(&job, &record).await?,
            SharedData::InKind => Shared { pieces: Vec::new(), offer: None },
        };
        let setup = PoolSetup { node, job: job.number(), workers, limits, tasks_made, shared };
        Ok((kind.open(setup).await.map_err(JobError::from)?, offer))
    }
}

impl RunningNode {
    /// Begins to work on a job whose pool is open.
    pub(crate) fn start(seat: &Seat, part: Part) -> Self {
        let (events_in, events) = mpsc::channel(EVENTS_MAX);
        let (orders, orders_out) = mpsc::channel(ORDERS_MAX);
        let (letters_in, letters) = mpsc::channel(LETTERS_MAX);
        let (leave_requests, leave_requests_out) = mpsc::channel(LEAVE_REQUESTS_MAX);
        let (drain, drain_out) = mpsc::channel(LEAVE_REQUESTS_MAX);
        let (shutdown, told_to_shut_down) = oneshot::channel();
        let (orphan_looks, orphans_wanted) = watch::channel(0);
        let Part { job, pool, limits, .. } = &part;
        let run = pool.companion();
        let (journal, journal_out) = Journal::new();
        let desk = run.is_some().then(Arc::<Desk>::default);
        // Before the companion begins, so that the first answers to it are heard.
        let line = seat.dispatch.as_ref().map(|dispatch| dispatch.open(job.number(), desk.clone()));
        let companion = run.zip(desk).map(|(run, desk)| {
            let who = (seat.node, seat.means(part.visibility.is_public()));
            Arc::new(Host::start(run, job, who, (desk, journal), seat.dispatch.as_ref()))
        });
        let said =
            Said { events: events_in, letters: letters_in, leave_requests, drain, orphans_wanted, companion };
        let coordination = Arc::new(coordination(seat, &part, said));
        seat.pulse.works(&coordination);
        coordination.timeline.note_at(
            seat.joined_ms,
            EventKind::Joined,
            format!("with {} workers", seat.workers),
        );
        let span = tracing::info_span!("job", id = %job, node = %seat.node);
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
            shutdown: told_to_shut_down,
            drain: drain_out,
            figures: Arc::clone(&coordination.figures),
            ledger: Arc::clone(&coordination.ledger_state),
            givers: Arc::clone(&coordination.givers),
            timeline: Arc::clone(&coordination.timeline),
            clock: coordination.clock,
            fed: false,
            epoch: 0,
        };
        // Before the driver, which takes the pool out of the crew at its end.
        let workers = seat.crew.add(part.claim, Arc::clone(pool) as Arc<dyn Workplace>);
        let driver = tokio::spawn(driver.run().instrument(span));
        Self { driver, ended: None, coordination, loops, workers, shutdown, _offer: part.offer }
    }

    /// Returns the node's figures for the job so far.
    pub(crate) fn figures(&self) -> Figures {
        self.coordination.figures_now()
    }

    /// Returns the number of nodes of its release that it knows, itself included.
    pub(crate) fn members_known(&self) -> usize {
        self.coordination.members_known()
    }

    /// Returns what the companion on the node shows of the job.
    pub(crate) fn sight(&self) -> Option<Sight> {
        self.coordination.sight()
    }

    /// Asks the node to leave by its deadline, or within a shorter time, handing on its unfinished tasks. On a second
    /// request it parks them.
    pub(crate) fn drain(&self, within: Option<Duration>) {
        self.coordination.timeline.note(EventKind::ToldToLeave, "");
        let within_ms =
            within.map_or(u64::MAX, |within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let deadline_ms = self.coordination.drain_deadline_ms.min(within_ms);
        self.coordination.leave(Leaving::Drain { deadline_ms });
    }

    /// Returns whether the job was suspended.
    pub(crate) fn was_suspended(&self) -> bool {
        self.coordination.suspended.load(Relaxed)
    }

    /// Waits until the node has nothing more to do with the job.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn ended(&mut self) -> Ended {
        if self.ended.is_none() {
            let outcome = (&mut self.driver).await.unwrap_or_else(|error| {
                tracing::error!(node = %self.coordination.node, %error, "a node has broken down");
                self.coordination.pool.close();
                Ended::BrokenDown
            });
            self.ended = Some(outcome);
        }
        self.ended.unwrap_or(Ended::BrokenDown)
    }

    /// Asks the node to leave, however long it takes to hand on its unfinished tasks.
    pub(crate) fn retire(&self) {
        self.coordination.timeline.note(EventKind::ToldToLeave, "");
        self.coordination.leave(Leaving::Retire);
    }

    /// The same, because of another job that does not wait for long.
    pub(crate) fn give_way(&self) {
        self.coordination.timeline.note(EventKind::ToldToLeave, "");
        self.coordination.leave(Leaving::GiveWay);
    }

    /// Waits until tasks have not stopped long after they were asked to.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) fn silence(&self) -> impl Future<Output = ()> + use<> {
        let coordination = Arc::clone(&self.coordination);
        async move { coordination.silence.notified().await }
    }

    /// Says whether the node works on no other job.
    pub(crate) fn set_alone(&self, alone: bool) {
        self.coordination.alone.send_replace(alone);
    }

    /// Waits until the node has to break down, which it does when it works on no other job.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) fn breaking(&self) -> impl Future<Output = ()> + use<> {
        let coordination = Arc::clone(&self.coordination);
        async move { coordination.breaking.notified().await }
    }

    /// Ends the node's part in the job. Running tasks end at their next `migrate()`.
    pub(crate) async fn stop(mut self, seat: &mut Seat) -> Stopping {
        let shutdown = std::mem::replace(&mut self.shutdown, oneshot::channel().0);
        // Fails if the node has ended already.
        let _ = shutdown.send(());
        let ended = self.ended().await;
        self.loops.shutdown().await;
        if let Some(companion) = &self.coordination.companion {
            companion.desk.end();
            seat.see_off(&self.coordination.job, Arc::clone(companion));
        }
        // Its tasks may take long to stop, and others that work on the job need a leader.
        let coordination = Arc::clone(&self.coordination);
        seat.run_errand(&self.coordination.job, async move { coordination.withdraw().await });
        Stopping { ended, coordination: self.coordination, workers: self.workers, asked_ms: unix_ms() }
    }

    /// Ends the work on the job, however long its tasks take to stop, and returns the figures.
    pub(crate) async fn finish(self, seat: &mut Seat) -> Figures {
        let mut stopping = self.stop(seat).await;
        stopping.workers_back().await;
        stopping.done().await
    }
}

/// What the loops of a node's coordination say to others, and hear.
struct Said {
    events: mpsc::Sender<Event>,
    letters: mpsc::Sender<(NodeId, Parcel)>,
    leave_requests: mpsc::Sender<LeaveRequest>,
    drain: mpsc::Sender<Deadline>,
    orphans_wanted: watch::Receiver<u64>,
    companion: Option<Arc<Host>>,
}

fn coordination(seat: &Seat, part: &Part, said: Said) -> Coordination {
    let Said { events, letters, leave_requests, drain, orphans_wanted, companion } = said;
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
        events,
        letters,
        publish: Arc::default(),
        waits: Arc::default(),
        member_gone: Notify::new(),
        figures: Arc::default(),
        ledger_state: Arc::default(),
        givers: Arc::default(),
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
        deaths_max: limits.deaths_max,
        drain_deadline_ms: limits.drain_deadline_ms,
        rescue_ms: limits.rescue_ms,
        companion,
        leave_requests,
        drain,
        resigned: seat.resigned.clone(),
        alone: watch::Sender::new(true),
        breaking: Notify::new(),
        probe: Arc::clone(&seat.probe),
    }
}

/// A node whose part in a job has ended, but whose workers may still run.
pub(crate) struct Stopping {
    ended: Ended,
    coordination: Arc<Coordination>,
    workers: Workers,
    /// The latest time at which its tasks were asked to stop.
    asked_ms: u64,
}

/// The time limit for publishing the last figures of a node, on which nothing depends.
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

    /// Publishes the last figures, and returns them.
    pub(crate) async fn done(self) -> Figures {
        let figures = self.coordination.figures_now();
        let Figures { handed_on, parked, .. } = figures;
        let handed_on = || format!("{handed_on} tasks handed on, {parked} parked");
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

//! A seat's work on jobs. It works on several at a time, each with its own pool, driver and coordination. The workers,
//! the session, the membership and the connections are shared.
//!
//! ```text
//!   queue ─▶ opening ─▶ active ── over ─▶ closing ── workers back ─▶ done
//!                         │ asked to leave: hand over the tasks of all jobs, leave ─▶ the seat is given up
//!                         └ suspended: parked; to take part again the node needs another seat
//!
//!   cordoned: active jobs continue without tasks of others; no job is opened
//! ```
//!
//! While the attempt of a job continues, a node's part in it ends only with its membership or by leaving the attempt
//! cleanly. It must not take part in that attempt again under the same id, because its commits are recorded under
//! that id. To take part again, it leaves its other jobs as well and joins again under a new id.

mod outage;
mod parts;
mod reporting;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::time;
use zk::{
    job::{JobRecord, Share},
    queue::{JobQueue, Next},
    retry::{Policy, Retry},
};

use self::outage::Outage;
use self::waiting::{due, first, next_back, next_ended, opened, paused};
use super::{
    driver::Ended,
    errors::ServeError,
    node::{NotOpened, OpenPool, RunningNode, Stopping},
    seat::Seat,
    serve::{Fate, Leave, ServeSetup},
};
use crate::{config::Limits, id::JobId};

/// The maximum number of jobs on which a node works at a time.
pub(crate) const ACTIVE_MAX: usize = 8;

/// The time for which tasks may continue after their job is over before this is logged.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time after which the workers of such tasks are abandoned.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before another try to open a job whose shared data no member has sent.
const ABSENT_PAUSE: Duration = Duration::from_secs(5);

/// Works on jobs until the seat must be given up.
pub(super) async fn work(setup: &ServeSetup, seat: &mut Seat, leave: &mut Leave) -> Result<Fate, ServeError> {
    let queue = JobQueue::new(Arc::clone(&seat.store), seat.cluster.clone(), seat.member.clone());
    let mut seat_jobs = SeatJobs {
        setup,
        queue,
        retry: Some(Retry::new(Policy::REQUEST, seat.node.0)),
        pausing: None,
        outage: Outage::default(),
        opening: None,
        active: Vec::new(),
        closing: Vec::new(),
        rested: BTreeSet::new(),
        absent: BTreeMap::new(),
        reported: BTreeSet::new(),
        report_at: None,
        intent: Intent::Stay,
        end: None,
        is_stuck: false,
        resign_by: None,
        resigns_now: false,
        seat,
    };
    loop {
        if let Some(fate) = seat_jobs.fate() {
            return fate;
        }
        let input = seat_jobs.wait(leave).await;
        if let Some(fate) = seat_jobs.handle(input).await {
            return fate;
        }
        let jobs = seat_jobs.jobs_at_hand();
        setup.jobs.send_if_modified(|before| std::mem::replace(before, jobs) != jobs);
    }
}

struct SeatJobs<'a> {
    setup: &'a ServeSetup,
    seat: &'a mut Seat,
    queue: JobQueue,
    /// The retry state for opening jobs, except during a pause.
    retry: Option<Retry>,
    /// The pause before the next try.
    pausing: Option<Pausing>,
    outage: Outage,
    opening: Option<Opening<'a>>,
    active: Vec<Active>,
    closing: Vec<Closing>,
    /// Jobs in which the node can take part again only under another id.
    rested: BTreeSet<String>,
    /// Jobs whose shared data no member has sent, with the time of the next try.
    absent: BTreeMap<String, time::Instant>,
    /// The jobs that wait for their data, as reported in the log.
    reported: BTreeSet<String>,
    /// The time of the next progress report in the log.
    report_at: Option<time::Instant>,
    intent: Intent,
    /// The reason why the seat ends once no job is left, if there is one.
    end: Option<End>,
    /// Whether workers have not returned from a job that is over.
    is_stuck: bool,
    /// The time until which a job that requires a resignation waits for the others to leave.
    resign_by: Option<time::Instant>,
    /// Whether that time has passed.
    resigns_now: bool,
}

/// A pause. Its output is the retry state, and whether another try makes sense.
type Pausing = Pin<Box<dyn Future<Output = (Retry, bool)> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    /// To work on further jobs.
    Stay,
    /// To leave all jobs and join again under a new id.
    Renew,
    Leave,
}

/// The reasons why a seat ends.
enum End {
    Expired,
    BrokenDown,
    Abandoned { why: String },
}

/// A job whose pool is being opened.
struct Opening<'a> {
    job: JobId,
    record: Box<JobRecord>,
    limits: Limits,
    pool: Pin<Box<dyn Future<Output = Result<OpenPool, NotOpened>> + Send + 'a>>,
}

/// A job on which the node works.
struct Active {
    job: JobId,
    share: Share,
    running: RunningNode,
    since: time::Instant,
    /// Whether the node has to resign because of this job.
    resigns: bool,
}

/// A job that is over for the node, but whose workers may still run.
struct Closing {
    job: JobId,
    ended: Ended,
    stopping: Stopping,
    since: time::Instant,
    overdue: bool,
}

/// An input of the main loop of a seat.
enum Input {
    /// The process was asked to leave, within this time if it is shorter than the configured deadline.
    LeaveRequested(Option<Duration>),
    OperatorRequest,
    /// The node was cordoned or uncordoned.
    Cordon,
    Expired,
    Next(zk::Result<Next>),
    Opened(Result<OpenPool, NotOpened>),
    /// The pause is over; whether another try makes sense.
    Paused(Retry, bool),
    /// The node's part in the job at this index has ended.
    Ended(usize),
    /// Tasks of the job at this index have ignored a request to stop for too long.
    Silent(usize),
    /// The node has to resign because of the job at this index.
    Resigns(usize),
    ResignIsDue,
    /// All workers have returned from the job at this index.
    Back(usize),
    /// Workers have not returned within the time limit from the job at this index.
    BackIsDue(usize),
    /// Jobs without shared data can be tried again.
    AbsentAreDue,
    ReportIsDue,
}

impl SeatJobs<'_> {
    /// Returns the fate of the seat once nothing is left to wait for.
    fn fate(&mut self) -> Option<Result<Fate, ServeError>> {
        if !self.active.is_empty() || self.opening.is_some() {
            return None;
        }
        if matches!(self.end, Some(End::BrokenDown)) {
            return Some(Err(ServeError::BrokenDown));
        }
        if self.is_stuck && self.intent != Intent::Leave {
            return Some(Ok(Fate::Stuck));
        }
        if !self.closing.is_empty() {
            return None;
        }
        match (self.end.take(), self.intent) {
            (Some(End::BrokenDown), _) => Some(Err(ServeError::BrokenDown)),
            (Some(End::Abandoned { why }), _) => Some(Err(ServeError::Abandoned { why })),
            (_, Intent::Leave) => Some(Ok(Fate::Left)),
            (Some(End::Expired), _) => Some(Ok(Fate::Expired)),
            (None, Intent::Renew) => Some(Ok(Fate::Resumes)),
            (None, Intent::Stay) => None,
        }
    }

    /// Returns the number of jobs being opened, worked on, or waiting for their workers.
    fn jobs_at_hand(&self) -> usize {
        self.active.len() + self.closing.len() + usize::from(self.opening.is_some())
    }

    /// Returns whether another job may be opened.
    fn may_begin(&self) -> bool {
        let is_exclusive = self.active.iter().any(|active| active.share.exclusive);
        let waits_for_workers = self.closing.iter().any(|closing| closing.overdue);
        self.intent == Intent::Stay
            && !self.seat.cordoned.is_set()
            && self.end.is_none()
            && self.setup.workers > 0
            && self.opening.is_none()
            && self.pausing.is_none()
            && self.active.len() < ACTIVE_MAX
            && !is_exclusive
            && !waits_for_workers
            && (!self.is_stuck || self.seat.crew.available() > 0)
    }

    /// # Cancellation safety
    /// All branches are cancel safe: nothing is lost when another branch completes first.
    async fn wait(&mut self, leave: &mut Leave) -> Input {
        // Read before it is used, so that no change is missed.
        let (cordoned, is_cordoned) = (Arc::clone(&self.seat.cordoned), self.seat.cordoned.is_set());
        let may_begin = self.may_begin();
        // The active jobs detect the expiry themselves.
        let looks_at_session = self.active.is_empty() && self.end.is_none();
        let names: BTreeSet<String> = self
            .active
            .iter()
            .map(|active| &active.job)
            .chain(self.closing.iter().map(|closing| &closing.job))
            .map(|job| job.0.clone())
            .collect();
        let silences = self.active.iter().map(|active| active.running.silence());
        let silent = first(silences.map(|silence| Box::pin(silence) as Pin<Box<_>>).collect());
        let resigning = self.active.iter().map(|active| active.running.resigning());
        let resigns = first(resigning.map(|resigning| Box::pin(resigning) as Pin<Box<_>>).collect());
        let back_due = self.closing.iter().enumerate().map(|(place, closing)| {
            let patience = if closing.overdue { WORKERS_TIMEOUT } else { PATIENCE };
            (closing.since + patience, place)
        });
        let back_due = back_due.min();
        let absent_due = self.absent.values().min().copied();
        let absent: BTreeSet<String> = self.absent.keys().cloned().collect();
        let report_at = self.report_at.filter(|_| !self.active.is_empty());
        let asked = Arc::clone(&self.seat.asked_to_leave);
        let expired = Arc::clone(&self.seat.expired);
        tokio::select! {
            biased;
            Some(within) = leave.recv() => Input::LeaveRequested(within),
            () = asked.notified() => Input::OperatorRequest,
            _ = cordoned.changed(is_cordoned) => Input::Cordon,
            () = expired.wait(), if looks_at_session => Input::Expired,
            place = next_ended(&mut self.active) => Input::Ended(place),
            (place, ()) = silent => Input::Silent(place),
            (place, ()) = resigns => Input::Resigns(place),
            () = due(self.resign_by) => Input::ResignIsDue,
            place = next_back(&mut self.closing) => Input::Back(place),
            () = due(back_due.map(|(at, _)| at)) => Input::BackIsDue(back_due.map_or(0, |(_, place)| place)),
            (retry, again) = paused(self.pausing.as_mut()) => Input::Paused(retry, again),
            pool = opened(self.opening.as_mut()) => Input::Opened(pool),
            () = due(absent_due) => Input::AbsentAreDue,
            () = due(report_at) => Input::ReportIsDue,
            next = self.queue.next(&names, &absent), if may_begin => Input::Next(next),
        }
    }

    async fn handle(&mut self, input: Input) -> Option<Result<Fate, ServeError>> {
        match input {
            Input::LeaveRequested(within) => {
                let node = self.seat.node;
                if self.active.is_empty() {
                    tracing::info!(%node, "asked to leave; the node has no job");
                } else {
                    tracing::info!(%node, "asked to leave; unfinished tasks are handed over");
                }
                self.set_intent(Intent::Leave);
                self.active.iter().for_each(|active| active.running.drain(within));
            }
            Input::OperatorRequest => {
                self.set_intent(Intent::Leave);
                self.retire_all();
            }
            Input::Cordon => self.on_cordon(),
            Input::Expired => self.end = self.end.take().or(Some(End::Expired)),
            Input::Next(next) => return self.next(next).await,
            Input::Opened(pool) => {
                let Opening { job, record, limits, .. } = self.opening.take()?;
                match pool {
                    Ok(pool) => {
                        self.reported.remove(&job.0);
                        self.begin(job, &record, limits, pool);
                    }
                    Err(NotOpened::Failed(error)) => self.on_open_failed(&job, &error).await,
                    Err(NotOpened::Absent(why)) => {
                        if self.reported.insert(job.0.clone()) {
                            tracing::warn!(node = %self.seat.node, %job, why, "the job waits for its data");
                        }
                        self.absent.insert(job.0, time::Instant::now() + ABSENT_PAUSE);
                    }
                }
            }
            Input::Paused(retry, again) => self.on_paused(retry, again),
            Input::Ended(place) => self.on_ended(place).await,
            Input::Silent(place) => {
                // Tasks of an attempt that is over still run: without its workers the node cannot take part in the next
                // one. A job whose tasks are being handed over is not interrupted.
                if self.intent == Intent::Stay && !self.active[place].running.was_suspended() {
                    self.stop(place, Ended::ShutDown).await;
                }
            }
            Input::Resigns(place) => {
                self.active[place].resigns = true;
                let deadline = Duration::from_millis(self.setup.limits.drain_deadline_ms);
                self.resign_by.get_or_insert(time::Instant::now() + deadline);
                self.set_intent(Intent::Renew);
                for active in self.active.iter().filter(|active| !active.resigns) {
                    active.running.give_way();
                }
            }
            Input::ResignIsDue => {
                (self.resign_by, self.resigns_now) = (None, true);
            }
            Input::Back(place) => {
                let closing = self.closing.remove(place);
                self.finish(closing).await;
            }
            Input::ReportIsDue => self.report(),
            Input::BackIsDue(place) => self.on_workers_overdue(place).await,
            Input::AbsentAreDue => {
                let now = time::Instant::now();
                self.absent.retain(|_, at| *at > now);
            }
        }
        let all_resign = self.active.iter().all(|active| active.resigns);
        let alone = self.active.len() <= 1 || all_resign || self.resigns_now;
        self.active.iter().for_each(|active| active.running.set_alone(alone));
        None
    }

    /// Gives up a job that is being opened if the node was cordoned.
    fn on_cordon(&mut self) {
        if self.seat.cordoned.is_set() {
            self.opening = None;
        }
    }

    fn on_paused(&mut self, retry: Retry, again: bool) {
        (self.retry, self.pausing) = (Some(retry), None);
        let session = *self.seat.store.session().borrow();
        if !again {
            self.end = self.end.take().or(Some(End::Expired));
        } else if self.outage.on_retry(session) {
            self.log_end_of_outage();
        }
    }

    /// Changes the intent, unless the node already leaves the cluster.
    fn set_intent(&mut self, intent: Intent) {
        self.opening = None;
        if self.intent != Intent::Leave {
            self.intent = intent;
        }
    }

    /// Leaves all jobs, except those that require a resignation.
    fn retire_all(&self) {
        for active in self.active.iter().filter(|active| !active.resigns) {
            active.running.retire();
        }
    }

    async fn next(&mut self, next: zk::Result<Next>) -> Option<Result<Fate, ServeError>> {
        if next.is_ok() && self.outage.on_answer() {
            self.log_end_of_outage();
        }
        match next {
            Ok(Next::Blocked(name, reason)) => match name.parse::<JobId>() {
                Ok(job) => self.fail_job(&job, &reason).await,
                Err(_) => self.queue.pass(name),
            },
            Ok(Next::Job(name, _)) if self.rested.contains(&name) => {
                tracing::info!(
                    node = %self.seat.node, job = %name,
                    "a suspended job was resumed; the node leaves its other jobs and joins again"
                );
                self.set_intent(Intent::Renew);
                self.retire_all();
            }
            Ok(Next::Job(name, record)) => match name.parse::<JobId>() {
                Ok(job) => self.open(job, record).await,
                Err(error) => {
                    tracing::warn!(node = %self.seat.node, %error, "a job with an invalid id is skipped");
                    self.queue.pass(name);
                }
            },
            Err(zk::Error::NoNode { .. }) if self.active.is_empty() => return Some(Ok(Fate::Wiped)),
            Err(error @ zk::Error::NoAuth { .. }) if self.active.is_empty() => {
                return Some(Err(error.into()));
            }
            Err(error) => {
                self.pause("reading the jobs", error);
            }
        }
        None
    }

    fn log_end_of_outage(&self) {
        tracing::info!(node = %self.seat.node, "ZooKeeper answers again; the node looks for jobs");
    }

    /// Pauses before the jobs are read again. One line is logged per outage.
    fn pause(&mut self, what: &'static str, error: zk::Error) {
        if self.outage.on_failure(&error) {
            tracing::warn!(
                node = %self.seat.node, what, %error,
                "a request to ZooKeeper failed, so the node starts no job; it is retried until ZooKeeper answers"
            );
        }
        let Some(mut retry) = self.retry.take() else { return };
        let store = Arc::clone(&self.seat.store);
        self.pausing = Some(Box::pin(async move {
            let again = retry.again(&*store, what, &error).await;
            (retry, again)
        }));
    }
}

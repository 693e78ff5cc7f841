//! A seat's work on jobs: on several at a time, each with its own pool, driver and coordination. The workers, the
//! session, the membership and the connections are shared.
//!
//! ```text
//!   queue ─▶ opening ─▶ active ── over ─▶ closing ── workers back ─▶ done
//!                         │ told to leave: all of them hand on and leave ─▶ the seat is given up
//!                         └ suspended: parked; to take part again the node needs another seat
//! ```
//!
//! A part in a job never ends while the job's attempt goes on, except with its membership or by leaving the
//! attempt cleanly; and then the node does not take part in that attempt again under the same id, under which its
//! commits are recorded. If it is to, it leaves its other jobs, too, and joins anew.

mod outage;
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
    Session,
    job::{JobRecord, Share},
    queue::{JobQueue, Next},
    retry::{Policy, Retry},
};

use self::outage::Outage;
use self::reporting::closed_with;
use self::waiting::{due, first, next_back, next_ended, opened, paused};
use super::{
    clock::unix_ms,
    coordination::Visibility,
    driver::Ended,
    node::{NotOpened, OpenPool, Part, RunningNode, SharedData, Stopping, open_pool},
    seat::Seat,
    serve::{Fate, Leave, ServeError, ServeSetup},
};
use crate::{config::Limits, core::Departure, id::JobId, pool::Claim, report::JobError};

/// The maximum number of jobs that a node works on at a time.
pub(crate) const ACTIVE_MAX: usize = 8;

/// The time for which tasks of a job that is over may run before that is reported.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time for which they may run before their workers are given up.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which a job is tried again whose shared data no member has sent.
const ABSENT_PAUSE: Duration = Duration::from_secs(5);

/// Works on jobs until the seat is to be given up.
pub(super) async fn work(setup: &ServeSetup, seat: &mut Seat, leave: &mut Leave) -> Result<Fate, ServeError> {
    let queue = JobQueue::new(Arc::clone(&seat.store), seat.cluster.clone(), seat.member.clone());
    let mut desk = Desk {
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
        report_at: None,
        intent: Intent::Stay,
        end: None,
        is_stuck: false,
        breaking_until: None,
        breaks_now: false,
        seat,
    };
    loop {
        if let Some(fate) = desk.fate() {
            return fate;
        }
        let input = desk.wait(leave).await;
        if let Some(fate) = desk.handle(input).await {
            return fate;
        }
        let jobs = desk.jobs_at_hand();
        setup.jobs.send_if_modified(|before| std::mem::replace(before, jobs) != jobs);
    }
}

/// The jobs of a seat.
struct Desk<'a> {
    setup: &'a ServeSetup,
    seat: &'a mut Seat,
    queue: JobQueue,
    /// The retry state for beginning jobs, unless a pause holds it.
    retry: Option<Retry>,
    /// The pause before the next try.
    pausing: Option<Pausing>,
    outage: Outage,
    opening: Option<Opening<'a>>,
    active: Vec<Active>,
    closing: Vec<Closing>,
    /// Jobs in which the node can take part again only under another id.
    rested: BTreeSet<String>,
    /// Jobs whose shared data no member has sent, and when they are tried again.
    absent: BTreeMap<String, time::Instant>,
    /// When the node next logs what it does.
    report_at: Option<time::Instant>,
    intent: Intent,
    /// How the seat ends when no job is left, if something has happened to it.
    end: Option<End>,
    /// Whether workers do not come back from a job that is over.
    is_stuck: bool,
    /// The time until which a job that has to break down waits for the others to leave.
    breaking_until: Option<time::Instant>,
    /// Whether that is over.
    breaks_now: bool,
}

/// A pause, and what comes after it: the retry state, and whether there is another try.
type Pausing = Pin<Box<dyn Future<Output = (Retry, bool)> + Send>>;

/// What the node is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    /// To work on the next job.
    Stay,
    /// To leave all jobs, and join anew.
    Renew,
    /// To leave for good.
    Leave,
}

/// What has happened to a seat.
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

/// A job that the node works on.
struct Active {
    job: JobId,
    share: Share,
    running: RunningNode,
    since: time::Instant,
    /// Whether it has to break down.
    breaks: bool,
}

/// A job that is over for the node, and whose workers may still run.
struct Closing {
    job: JobId,
    ended: Ended,
    stopping: Stopping,
    since: time::Instant,
    told: bool,
}

/// What a seat has been waiting for.
enum Input {
    /// Within this time, if it is less than the limits say.
    ToldToLeave(Option<Duration>),
    /// By an operator.
    Asked,
    /// The session is over.
    Expired,
    Next(zk::Result<Next>),
    Opened(Result<OpenPool, NotOpened>),
    /// The pause before the next try is over; whether there is one.
    Paused(Retry, bool),
    /// The node has nothing more to do with the job at this place.
    Ended(usize),
    /// Tasks of the job at this place do not stop long after they were asked to.
    Silent(usize),
    /// The node has to break down for the job at this place.
    Breaks(usize),
    BreakingIsDue,
    /// All workers have come back from the job at this place.
    Back(usize),
    /// It has taken long.
    BackIsDue(usize),
    /// Jobs whose shared data was with nobody are to be tried again.
    AbsentAreDue,
    ReportIsDue,
}

impl Desk<'_> {
    /// Returns how the seat ends, if nothing is left to be waited for.
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

    /// Returns the number of jobs that the node works on, is about to, or whose workers still run.
    fn jobs_at_hand(&self) -> usize {
        self.active.len() + self.closing.len() + usize::from(self.opening.is_some())
    }

    /// Returns whether another job may begin.
    fn may_begin(&self) -> bool {
        let is_exclusive = self.active.iter().any(|active| active.share.exclusive);
        let waits_for_workers = self.closing.iter().any(|closing| closing.told);
        self.intent == Intent::Stay
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
    /// All branches are cancel safe: nothing is lost when another branch wins.
    async fn wait(&mut self, leave: &mut Leave) -> Input {
        let may_begin = self.may_begin();
        // The jobs at hand notice it themselves.
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
        let breakings = self.active.iter().map(|active| active.running.breaking());
        let breaks = first(breakings.map(|breaking| Box::pin(breaking) as Pin<Box<_>>).collect());
        let back_due = self.closing.iter().enumerate().map(|(place, closing)| {
            let patience = if closing.told { WORKERS_TIMEOUT } else { PATIENCE };
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
            Some(within) = leave.recv() => Input::ToldToLeave(within),
            () = asked.notified() => Input::Asked,
            () = expired.wait(), if looks_at_session => Input::Expired,
            place = next_ended(&mut self.active) => Input::Ended(place),
            (place, ()) = silent => Input::Silent(place),
            (place, ()) = breaks => Input::Breaks(place),
            () = due(self.breaking_until) => Input::BreakingIsDue,
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
            Input::ToldToLeave(within) => {
                let node = self.seat.node;
                if self.active.is_empty() {
                    tracing::info!(%node, "told to leave; there is no job at hand");
                } else {
                    tracing::info!(%node, "told to leave; what is unfinished is handed on");
                }
                self.begin_to(Intent::Leave);
                self.active.iter().for_each(|active| active.running.drain(within));
            }
            Input::Asked => {
                self.begin_to(Intent::Leave);
                self.retire_all();
            }
            Input::Expired => self.end = self.end.take().or(Some(End::Expired)),
            Input::Next(next) => return self.next(next).await,
            Input::Opened(pool) => {
                let Opening { job, record, limits, .. } = self.opening.take()?;
                match pool {
                    Ok(pool) => self.begin(job, &record, limits, pool),
                    Err(NotOpened::Failed(error)) => self.not_begun(&job, &error).await,
                    Err(NotOpened::Absent(why)) => {
                        tracing::warn!(node = %self.seat.node, %job, why, "the job waits for its data");
                        self.absent.insert(job.0, time::Instant::now() + ABSENT_PAUSE);
                    }
                }
            }
            Input::Paused(retry, again) => self.on_paused(retry, again),
            Input::Ended(place) => self.ended(place).await,
            Input::Silent(place) => {
                // Tasks of an attempt that is over run on: without its workers the node cannot take part in the
                // next one. A job that is handed on is not cut off.
                if self.intent == Intent::Stay && !self.active[place].running.was_suspended() {
                    self.stop(place, Ended::ShutDown).await;
                }
            }
            Input::Breaks(place) => {
                self.active[place].breaks = true;
                let deadline = Duration::from_millis(self.setup.limits.drain_deadline_ms);
                self.breaking_until.get_or_insert(time::Instant::now() + deadline);
                self.begin_to(Intent::Renew);
                for active in self.active.iter().filter(|active| !active.breaks) {
                    active.running.give_way();
                }
            }
            Input::BreakingIsDue => {
                (self.breaking_until, self.breaks_now) = (None, true);
            }
            Input::Back(place) => {
                let closing = self.closing.remove(place);
                self.closed(closing).await;
            }
            Input::ReportIsDue => self.report(),
            Input::BackIsDue(place) => self.back_is_due(place).await,
            Input::AbsentAreDue => {
                let now = time::Instant::now();
                self.absent.retain(|_, at| *at > now);
            }
        }
        let all_break = self.active.iter().all(|active| active.breaks);
        let alone = self.active.len() <= 1 || all_break || self.breaks_now;
        self.active.iter().for_each(|active| active.running.set_alone(alone));
        None
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

    /// Changes what the node is about to do, unless it leaves for good.
    fn begin_to(&mut self, intent: Intent) {
        self.opening = None;
        if self.intent != Intent::Leave {
            self.intent = intent;
        }
    }

    /// Lets the node leave all jobs, except those for which it breaks down.
    fn retire_all(&self) {
        for active in self.active.iter().filter(|active| !active.breaks) {
            active.running.retire();
        }
    }

    async fn next(&mut self, next: zk::Result<Next>) -> Option<Result<Fate, ServeError>> {
        if next.is_ok() && self.outage.on_answer() {
            self.log_end_of_outage();
        }
        match next {
            Ok(Next::InVain(name, reason)) => match name.parse::<JobId>() {
                Ok(job) => self.give_up_job(&job, &reason).await,
                Err(_) => self.queue.pass(name),
            },
            Ok(Next::Job(name, _)) if self.rested.contains(&name) => {
                tracing::info!(
                    node = %self.seat.node, job = name,
                    "a suspended job was resumed; the node leaves the others, and joins again under a new name"
                );
                self.begin_to(Intent::Renew);
                self.retire_all();
            }
            Ok(Next::Job(name, record)) => match name.parse::<JobId>() {
                Ok(job) => self.open(job, record).await,
                Err(error) => {
                    tracing::warn!(node = %self.seat.node, %error, "a job is passed over");
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

    /// Waits before the jobs are looked at again. One line is logged per outage.
    fn pause(&mut self, what: &'static str, error: zk::Error) {
        if self.outage.on_failure(&error) {
            tracing::warn!(
                node = %self.seat.node, what, %error,
                "a request to ZooKeeper failed, so the node begins no job; it is repeated until ZooKeeper answers"
            );
        }
        let Some(mut retry) = self.retry.take() else { return };
        let store = Arc::clone(&self.seat.store);
        self.pausing = Some(Box::pin(async move {
            let again = retry.again(&*store, what, &error).await;
            (retry, again)
        }));
    }

    /// Begins to open a job's pool.
    async fn open(&mut self, job: JobId, record: Box<JobRecord>) {
        let setup = self.setup;
        let kind = match setup.kinds.find(&record.kind, &record.task_type) {
            Ok(kind) => kind,
            Err(reason) => return self.give_up_job(&job, &reason.to_string()).await,
        };
        let limits = Limits { deaths_max: record.deaths_max, ..setup.limits.clone() };
        let pool = Box::pin(open_pool(self.seat, kind, &job, &limits, SharedData::Stored(record.clone())));
        self.opening = Some(Opening { job, record, limits, pool });
    }

    /// Begins to work on a job.
    fn begin(&mut self, job: JobId, record: &JobRecord, limits: Limits, (pool, offer): OpenPool) {
        if let Some(retry) = &mut self.retry {
            retry.succeeded();
        }
        let share = record.share;
        let claim = Claim { weight: share.weight.get(), priority: share.priority };
        let part = Part {
            job: job.clone(),
            require: record.require.clone(),
            claim,
            pool,
            offer,
            limits,
            visibility: Visibility::Public,
        };
        let running = RunningNode::start(self.seat, part);
        tracing::info!(
            node = %self.seat.node, %job, name = record.name, jobs = self.active.len() + 1,
            "the node works on a job"
        );
        if self.active.is_empty() {
            self.expect_report();
        }
        self.active.push(Active { job, share, running, since: time::Instant::now(), breaks: false });
    }

    /// Handles a failure to begin the work on a job.
    async fn not_begun(&mut self, job: &JobId, error: &JobError) {
        if let JobError::Coordination(error) = error {
            match &error.0 {
                zk::Error::NoNode { .. } => return,
                zk::Error::SessionExpired => {
                    self.end = self.end.take().or(Some(End::Expired));
                    return;
                }
                error if error.is_transient() => {
                    return self.pause("reading the job's data", error.clone());
                }
                _ => {}
            }
        }
        self.give_up_job(job, &error.to_string()).await;
    }

    /// Fails a job that this node cannot run, if no other node could either.
    async fn give_up_job(&mut self, job: &JobId, reason: &str) {
        let node = self.seat.node;
        tracing::error!(%node, %job, reason, "the job cannot be run");
        match zk::job::fail(&*self.seat.store, &self.seat.cluster, &job.0, reason, unix_ms()).await {
            Err(zk::Error::SessionExpired) => {
                self.end = self.end.take().or(Some(End::Expired));
                return;
            }
            // If the job were skipped it would never end.
            Err(error) if error.is_transient() => {
                return self.pause("failing the job", error);
            }
            Err(error) => tracing::warn!(%node, %job, %error, "that could not be recorded"),
            Ok(()) => {}
        }
        self.queue.pass(job.0.clone());
    }

    /// Handles the end of the node's part in the job at this place.
    async fn ended(&mut self, place: usize) {
        let running = &mut self.active[place].running;
        let (ended, suspended) = (running.ended().await, running.was_suspended());
        match ended {
            Ended::JobOver | Ended::ShutDown => {}
            Ended::Departed(Departure::Clean) => {
                if suspended && self.intent == Intent::Stay {
                    self.rested.insert(self.active[place].job.0.clone());
                }
            }
            Ended::Departed(Departure::Abandoned) => {
                let Active { job, running, .. } = self.active.remove(place);
                let stopping = running.stop(self.seat).await;
                let why = abandoned_why(self.seat, &job, &stopping);
                let _ = stopping.done().await;
                self.end = self.end.take().or(Some(End::Abandoned { why }));
                return;
            }
            Ended::Departed(Departure::Expelled) | Ended::BrokenDown => {
                let is_expelled = ended != Ended::BrokenDown;
                let end = if is_expelled { End::Expired } else { End::BrokenDown };
                self.end = self.end.take().or(Some(end));
                self.opening = None;
                // It is no member, or will be none: nothing that it could still do would count.
                self.stop(place, ended).await;
                while !self.active.is_empty() {
                    self.stop(0, ended).await;
                }
                return;
            }
        }
        self.stop(place, ended).await;
    }

    /// Ends the node's part in the job at this place. Its workers may still run.
    async fn stop(&mut self, place: usize, ended: Ended) {
        let Active { job, running, .. } = self.active.remove(place);
        let stopping = running.stop(self.seat).await;
        self.closing.push(Closing { job, ended, stopping, since: time::Instant::now(), told: false });
    }

    /// Handles that workers take long to come back from a job.
    async fn back_is_due(&mut self, place: usize) {
        let Closing { job, stopping, told, .. } = &mut self.closing[place];
        let tasks = stopping.running_tasks().join(", ");
        let is_last = std::mem::replace(told, true) || self.intent == Intent::Leave;
        if !is_last {
            tracing::info!(
                node = %self.seat.node, %job, tasks,
                "the job is over for this node, but tasks of it have not stopped; it is waited for them"
            );
            return;
        }
        tracing::error!(
            node = %self.seat.node, %job, tasks,
            "a task does not ask whether it is to stop (Context::migrate); its thread lingers until it \
             returns"
        );
        let closing = self.closing.remove(place);
        self.closed(closing).await;
        self.is_stuck = true;
        // With no worker left, other jobs would only wait.
        if self.seat.crew.available() == 0 && !self.active.is_empty() {
            self.begin_to(Intent::Renew);
            self.retire_all();
        }
    }

    /// Ends the work on a job.
    async fn closed(&mut self, closing: Closing) {
        let Closing { job, ended, stopping, .. } = closing;
        let figures = stopping.done().await;
        closed_with(self.seat.node, &job, ended, &figures);
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

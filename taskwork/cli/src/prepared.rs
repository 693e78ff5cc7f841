//! A job that is ready to run, and the presentation of its result.

use std::{
    fmt::Write as _,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use taskwork::{
    Client, Job, JobId, Progress, Report, State, Task,
    client::{ClientError, ProgressStream, Submitted},
    display::Cell,
    report::SetAside,
};

use crate::{
    Failure,
    interrupts::{Interrupts, Notes},
    job_log::{JobLog, ProgressDisplay, Viewing},
    submit::{Target, goes_on},
    watch,
};

/// A job that is ready to run, here or on a cluster.
pub struct Prepared {
    job: Box<dyn Launch>,
}

/// The final output of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// The output for human readers.
    pub text: String,
    /// The output for scripts: `--json`.
    pub json: serde_json::Value,
    /// Whether the result is complete. Otherwise the exit code is 1.
    pub complete: bool,
    /// The program's values for the last line of the log.
    pub(crate) columns: Vec<Option<Cell>>,
}

impl Shown {
    /// Creates the output of a complete run. A missing line break is added to the text.
    pub fn done(text: impl Into<String>, json: impl Into<serde_json::Value>) -> Self {
        Self::new(text, json, true)
    }

    /// Creates the output of a run.
    pub fn new(text: impl Into<String>, json: impl Into<serde_json::Value>, complete: bool) -> Self {
        Self { text: text.into(), json: json.into(), complete, columns: Vec::new() }
    }

    /// Sets the values of the program's columns in the last line of the log.
    #[must_use]
    pub fn with_columns(self, columns: Vec<Option<Cell>>) -> Self {
        Self { columns, ..self }
    }

    /// Lists the tasks that are missing in the result.
    fn name_missing(&mut self, set_aside: &[SetAside]) {
        if set_aside.is_empty() {
            return;
        }
        self.complete = false;
        if !self.text.ends_with('\n') {
            self.text += "\n";
        }
        for task in set_aside {
            // Writing into a string cannot fail.
            let _ = writeln!(self.text, "not included: {task}");
        }
        if let Some(object) = self.json.as_object_mut() {
            object.insert("set_aside".to_owned(), json!(set_aside));
        }
    }

    pub(crate) fn print(&self, json: bool) {
        let text = if json { self.json.to_string() } else { self.text.clone() };
        let end = if text.ends_with('\n') { "" } else { "\n" };
        crate::failure::print(&format!("{text}{end}"));
    }
}

/// A callback for the progress.
pub(crate) type Observe = Box<dyn FnMut(&Progress) + Send>;
type Submitting<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Waits>, Failure>> + 'a>>;
type HandingOver<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;
type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Shown, Failure>> + 'a>>;

impl Prepared {
    /// Prepares a job of one of the program's [kinds](crate::Program::kinds); `show` presents its report.
    pub fn new<T: Task>(
        kind: &'static str,
        job: Job<T>,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        Self::watched(kind, job, ProgressDisplay::default(), show)
    }

    /// Like [`new`](Self::new), with the program's own progress line and columns.
    pub fn watched<T: Task>(
        kind: &'static str,
        job: Job<T>,
        display: ProgressDisplay,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        let (job, show) = (Box::new(|_| job), Box::new(show));
        Self { job: Box::new(Ready { kind, job, time_limit: None, show, display }) }
    }

    /// Like [`watched`](Self::watched), for a job with its own time limit, which is passed to `job`. If the state is
    /// kept (`solve --state`), `job` is called without a limit: when the time is up, the job is suspended from
    /// outside, and continues in the next run.
    pub fn limited<T: Task>(
        kind: &'static str,
        time_limit: Duration,
        job: impl FnOnce(Option<Duration>) -> Job<T> + Send + 'static,
        display: ProgressDisplay,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        let (job, show) = (Box::new(job), Box::new(show));
        Self { job: Box::new(Ready { kind, job, time_limit: Some(time_limit), show, display }) }
    }

    /// Creates the output of a command that needs no job.
    pub fn at_once(shown: Shown) -> Self {
        Self { job: Box::new(shown) }
    }

    /// Calls `observe` with the progress while the job runs, independently of the display.
    #[must_use]
    pub fn observed_by(mut self, observe: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.job.observe(Box::new(observe));
        self
    }

    /// Runs the job within this process.
    pub(crate) fn solve(self, place: Place, viewing: Viewing) -> Result<Solved, Failure> {
        self.job.solve(place, viewing)
    }

    /// Submits the job to a cluster.
    pub(crate) fn submit(self, target: &Target) -> Submitting<'_> {
        self.job.submit(target)
    }
}

/// The place of a run within this process: the numbers of nodes and workers, and the folder of the state.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) nodes: Option<usize>,
    pub(crate) workers: Option<usize>,
    pub(crate) state: Option<State>,
}

/// The result of a run within this process.
pub(crate) struct Solved {
    pub(crate) shown: Shown,
    /// Whether the job was suspended, and can be continued.
    pub(crate) suspended: bool,
}

/// A job, independent of the type of its tasks.
trait Launch: Send {
    fn observe(&mut self, observe: Observe);
    fn solve(self: Box<Self>, place: Place, viewing: Viewing) -> Result<Solved, Failure>;
    fn submit(self: Box<Self>, target: &Target) -> Submitting<'_>;
}

/// A submitted job, independent of the type of its tasks.
pub(crate) trait Waits: Send {
    fn id(&self) -> &JobId;
    /// Returns whether nodes fetch the job's data from this process.
    fn brings_data(&self) -> bool;
    /// Waits until a number of nodes have fetched the data.
    fn handed_over(&self, nodes: usize) -> HandingOver<'_>;
    /// Stops serving the job's data.
    fn withdraw_data(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>>;
    /// Waits until the job is over, with the patience of this client. The first Ctrl-C cancels the job; a second one
    /// stops the wait, because the servers may be unavailable.
    fn wait(self: Box<Self>, client: Client, target: &Target) -> Waiting<'_>;
}

type Show<T> = Box<dyn FnOnce(Report<T>) -> Result<Shown, Failure> + Send>;
/// Makes a job with or without a time limit.
type MakeJob<T> = Box<dyn FnOnce(Option<Duration>) -> Job<T> + Send>;

struct Ready<T: Task> {
    kind: &'static str,
    job: MakeJob<T>,
    time_limit: Option<Duration>,
    show: Show<T>,
    display: ProgressDisplay,
}

fn lock(log: &Mutex<JobLog>) -> MutexGuard<'_, JobLog> {
    // A panic in the program's callback must not stop the display.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Presents a report, and lists the tasks that are missing in it.
fn present<T: Task>(report: Report<T>, show: Show<T>) -> Result<Shown, Failure> {
    let set_aside = report.set_aside.clone();
    let mut shown = show(report)?;
    shown.name_missing(&set_aside);
    Ok(shown)
}

struct OnItsWay<T: Task> {
    submitted: Submitted<T>,
    show: Show<T>,
    display: ProgressDisplay,
}

impl<T: Task> Launch for Ready<T> {
    fn observe(&mut self, observe: Observe) {
        self.display.observe = Some(observe);
    }

    fn solve(self: Box<Self>, place: Place, viewing: Viewing) -> Result<Solved, Failure> {
        let Self { kind, job, time_limit, show, display } = *self;
        let Place { nodes, workers, state } = place;
        let mut job = match state {
            None => job(time_limit),
            Some(state) => {
                let state = match time_limit {
                    Some(limit) => state.time_limit(limit),
                    None => state,
                };
                job(None).kind(kind).state(state)
            }
        };
        if let Some(nodes) = nodes {
            job = job.nodes(nodes);
        }
        if let Some(workers) = workers {
            job = job.workers(workers);
        }
        watch::stop_on_signal(job.stopper())?;
        // The runtime drops the job's observer when the job is over.
        let log = JobLog::new(display, viewing, &Notes::default());
        let needs_progress = log.needs_progress();
        let log = Arc::new(Mutex::new(log));
        if needs_progress {
            let log = Arc::clone(&log);
            job = job.on_progress(watch::EVERY, move |progress| lock(&log).show(progress));
        }
        let report = job.run();
        lock(&log).finish_line();
        let report = report?;
        let (suspended, elapsed, figures) = (report.suspended, report.elapsed, report.figures);
        let shown = present(report, show)?;
        lock(&log).end(elapsed, &figures, &shown);
        Ok(Solved { shown, suspended })
    }

    fn submit(self: Box<Self>, target: &Target) -> Submitting<'_> {
        let Self { kind, job, time_limit, show, display } = *self;
        let mut job = job(time_limit).kind(kind).attempts_max(target.attempts_max);
        job = job.crashes_max(target.crashes_max).require(target.require.clone());
        job = job.weight(target.share.weight).priority(target.share.priority);
        if target.share.exclusive {
            job = job.exclusive();
        }
        if target.bring {
            job = job.bring_program();
        }
        for before in &target.after {
            job = job.after(before);
        }
        if let Some(name) = &target.name {
            job = job.name(name);
        }
        Box::pin(async move {
            let submitted = target.client.submit(job).await?;
            Ok(Box::new(OnItsWay { submitted, show, display }) as Box<dyn Waits>)
        })
    }
}

/// The polling intervals of a submitted job: for its progress line, and for the log alone. The nodes write their
/// figures every two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY_FOR_LOG: Duration = Duration::from_secs(2);

impl<T: Task> Waits for OnItsWay<T> {
    fn id(&self) -> &JobId {
        self.submitted.id()
    }

    fn brings_data(&self) -> bool {
        self.submitted.brings_data()
    }

    fn handed_over(&self, nodes: usize) -> HandingOver<'_> {
        Box::pin(async move { Ok(self.submitted.handed_over(nodes).await?) })
    }

    fn withdraw_data(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.submitted.withdraw_data())
    }

    fn wait(self: Box<Self>, client: Client, target: &Target) -> Waiting<'_> {
        let Self { submitted, show, display } = *self;
        Box::pin(async move {
            let mut submitted = submitted.by(client);
            let mut report = None;
            let result = Box::pin(async {
                report = Some(submitted.result().await?);
                Ok(())
            });
            let mut log = JobLog::new(display, target.viewing, &target.notes);
            let every = if target.viewing.has_line() { LOOK_EVERY } else { LOOK_EVERY_FOR_LOG };
            let progress = log.needs_progress().then(|| submitted.progress(every));
            watch_until(result, submitted.client(), submitted.id(), progress, &mut log).await?;
            submitted.withdraw_data().await;
            let report = report.expect("the result was waited for");
            let (elapsed, figures) = (report.elapsed, report.figures);
            let shown = present(report, show)?;
            log.end(elapsed, &figures, &shown);
            Ok(shown)
        })
    }
}

/// The completion of a job, independent of the type of its result.
type Ending<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// Shows the progress of a job until its result is available, or Ctrl-C is pressed.
///
/// Boxed, and not generic: it is compiled with this crate, and not in every program.
fn watch_until<'a>(
    result: Ending<'a>,
    client: &'a Client,
    job: &'a JobId,
    progress: Option<ProgressStream<'a>>,
    log: &'a mut JobLog,
) -> Ending<'a> {
    Box::pin(async move {
        let watching = async {
            let Some(mut progress) = progress else { return std::future::pending().await };
            while let Some(read) = progress.next().await {
                // A failed read is skipped; the next one may succeed.
                if let Ok(progress) = read {
                    log.show(&progress);
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            done = result => done?,
            failure = cancel_on_interrupt(client, job) => return Err(failure),
            () = watching => unreachable!("it is watched until the job is over"),
        }
        Ok(())
    })
}

/// Cancels the job at the first Ctrl-C. Returns at the second one, or if the job cannot be cancelled.
async fn cancel_on_interrupt(client: &Client, job: &JobId) -> Failure {
    let mut interrupts = match Interrupts::listen() {
        Ok(interrupts) => interrupts,
        Err(failure) => return failure,
    };
    interrupts.next().await;
    tokio::select! {
        cancelled = client.cancel(job, "cancelled by its submitter") => {
            match cancelled {
                // The job may be over or removed; the read of its result, which is under way, reports that.
                Ok(()) | Err(ClientError::WrongState { .. } | ClientError::NoJob { .. }) => {}
                Err(error) => return error.into(),
            }
            interrupts.next().await;
            Failure::interrupted()
        }
        () = interrupts.next() => Failure::unreachable(format!(
            "interrupted twice, before the job was known to be cancelled. {}",
            goes_on(job)
        )),
    }
}

impl Launch for Shown {
    // It has no progress.
    fn observe(&mut self, _: Observe) {}

    fn solve(self: Box<Self>, place: Place, _: Viewing) -> Result<Solved, Failure> {
        if place.nodes.is_some() || place.workers.is_some() || place.state.is_some() {
            return Err(Failure::usage(
                "this request runs without the runtime: --nodes, --workers and --state do not apply",
            ));
        }
        Ok(Solved { shown: *self, suspended: false })
    }

    fn submit(self: Box<Self>, _: &Target) -> Submitting<'_> {
        Box::pin(async {
            Err(Failure::usage("this request runs without the runtime, and cannot be submitted"))
        })
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

//! A job that is ready to run, and the presentation of its result.

use std::{fmt::Write as _, future::Future, pin::Pin, time::Duration};

use serde_json::json;
use taskwork::{
    Client, Job, JobId, Progress, Report, SetAside, State, Task,
    client::{ClientError, ProgressStream, Submitted},
};

use crate::{
    Failure,
    interrupts::Interrupts,
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
    /// Whether everything was done. Otherwise the exit code is 1.
    pub complete: bool,
}

impl Shown {
    /// Creates the output of a complete run. A missing line end is added to the text.
    pub fn done(text: impl Into<String>, json: impl Into<serde_json::Value>) -> Self {
        Self { text: text.into(), json: json.into(), complete: true }
    }

    /// Adds the tasks that are missing in it, if there are any.
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
            let told = |SetAside { task, deaths, reason, .. }: &SetAside| json!({ "task": task, "deaths": deaths, "reason": reason });
            object.insert("set_aside".to_owned(), set_aside.iter().map(told).collect());
        }
    }

    pub(crate) fn print(&self, json: bool) {
        let text = if json { self.json.to_string() } else { self.text.clone() };
        let end = if text.ends_with('\n') { "" } else { "\n" };
        crate::failure::print(&format!("{text}{end}"));
    }
}

type Line = fn(&Progress) -> String;
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
        Self::watched(kind, job, watch::line_of, show)
    }

    /// Does the same as [`new`](Self::new), with a progress line of the program's own.
    pub fn watched<T: Task>(
        kind: &'static str,
        job: Job<T>,
        line: fn(&Progress) -> String,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        let (job, show) = (Box::new(|_| job), Box::new(show));
        Self { job: Box::new(Ready { kind, job, time_limit: None, show, line }) }
    }

    /// Does the same as [`watched`](Self::watched) for a job with a time limit of its own. `job` makes it,
    /// with the limit. Where the state is kept (`solve --state`) it makes it without one: when the time is
    /// up, the job is suspended from outside, and continues the next time.
    pub fn limited<T: Task>(
        kind: &'static str,
        time_limit: Duration,
        job: impl FnOnce(Option<Duration>) -> Job<T> + Send + 'static,
        line: fn(&Progress) -> String,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        let (job, show) = (Box::new(job), Box::new(show));
        Self { job: Box::new(Ready { kind, job, time_limit: Some(time_limit), show, line }) }
    }

    /// Creates the outcome of a command that needed no job and is already done.
    pub fn at_once(shown: Shown) -> Self {
        Self { job: Box::new(shown) }
    }

    /// Runs it within this process.
    pub(crate) fn solve(self, place: Place, quiet: bool) -> Result<Solved, Failure> {
        self.job.solve(place, quiet)
    }

    /// Submits it to a cluster.
    pub(crate) fn submit(self, target: &Target) -> Submitting<'_> {
        self.job.submit(target)
    }
}

/// Where a job within this process runs: on how many nodes and workers, and where its state is kept.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) nodes: Option<usize>,
    pub(crate) workers: Option<usize>,
    pub(crate) state: Option<State>,
}

/// The end of a run within this process.
pub(crate) struct Solved {
    pub(crate) shown: Shown,
    /// Whether the job was suspended, to be continued.
    pub(crate) suspended: bool,
}

/// A job, independent of the type of its tasks.
trait Launch: Send {
    fn solve(self: Box<Self>, place: Place, quiet: bool) -> Result<Solved, Failure>;
    fn submit(self: Box<Self>, target: &Target) -> Submitting<'_>;
}

/// A submitted job, independent of the type of its tasks.
pub(crate) trait Waits: Send {
    fn id(&self) -> &JobId;
    /// Returns whether nodes fetch the job's data from this process.
    fn brings_data(&self) -> bool;
    /// Waits until so many nodes have it from here.
    fn handed_over(&self, nodes: usize) -> HandingOver<'_>;
    /// Ends the part of this process in the job's data.
    fn withdraw_data(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>>;
    /// Waits for the job's end, with the patience of this client. The first Ctrl-C cancels the job; a second
    /// one ends the wait, because the servers may be away.
    fn wait(self: Box<Self>, client: Client, target: &Target) -> Waiting<'_>;
}

type Show<T> = Box<dyn FnOnce(Report<T>) -> Result<Shown, Failure> + Send>;
/// Makes a job with a time limit, or with none.
type MakeJob<T> = Box<dyn FnOnce(Option<Duration>) -> Job<T> + Send>;

struct Ready<T: Task> {
    kind: &'static str,
    job: MakeJob<T>,
    time_limit: Option<Duration>,
    show: Show<T>,
    line: Line,
}

/// Presents a report, and names the tasks that are missing in it.
fn present<T: Task>(report: Report<T>, show: Show<T>) -> Result<Shown, Failure> {
    let set_aside = report.set_aside.clone();
    let mut shown = show(report)?;
    shown.name_missing(&set_aside);
    Ok(shown)
}

struct OnItsWay<T: Task> {
    submitted: Submitted<T>,
    show: Show<T>,
    line: Line,
}

impl<T: Task> Launch for Ready<T> {
    fn solve(self: Box<Self>, place: Place, quiet: bool) -> Result<Solved, Failure> {
        let Self { kind, job, time_limit, show, line } = *self;
        let Place { nodes, workers, state } = place;
        let mut job = match state {
            None => job(time_limit).here(),
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
        watch::stop_on_interrupt(job.stopper())?;
        let bar = watch::bar(quiet);
        if let Some(bar) = bar.clone() {
            job = job.on_progress(watch::EVERY, move |progress| {
                bar.set_message(line(progress));
                bar.tick();
            });
        }
        let report = job.run();
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let report = report?;
        let suspended = report.suspended;
        Ok(Solved { shown: present(report, show)?, suspended })
    }

    fn submit(self: Box<Self>, target: &Target) -> Submitting<'_> {
        let Self { kind, job, time_limit, show, line } = *self;
        let mut job = job(time_limit).kind(kind).attempts_max(target.attempts_max);
        job = job.deaths_max(target.deaths_max).require(target.require.clone());
        job = job.weight(target.share.weight).priority(target.share.priority);
        if target.share.exclusive {
            job = job.exclusive();
        }
        for before in &target.after {
            job = job.after(before);
        }
        if let Some(name) = &target.name {
            job = job.name(name);
        }
        Box::pin(async move {
            let submitted = target.client.submit(job).await?;
            Ok(Box::new(OnItsWay { submitted, show, line }) as Box<dyn Waits>)
        })
    }
}

/// The interval at which the progress line of a submitted job is updated.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
        let Self { submitted, show, line } = *self;
        Box::pin(async move {
            let mut submitted = submitted.by(client);
            let mut report = None;
            let result = Box::pin(async {
                report = Some(submitted.result().await?);
                Ok(())
            });
            watch_until(
                result,
                submitted.client(),
                submitted.id(),
                submitted.progress(LOOK_EVERY),
                line,
                target,
            )
            .await?;
            submitted.withdraw_data().await;
            present(report.expect("the result was waited for"), show)
        })
    }
}

/// The end of a job whose result has some type.
type Ending<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// Shows the progress of a job until its result is available, or Ctrl-C is pressed.
///
/// Boxed, and not generic: it is compiled with this crate, and not in every program.
fn watch_until<'a>(
    result: Ending<'a>,
    client: &'a Client,
    job: &'a JobId,
    mut progress: ProgressStream<'a>,
    line: Line,
    target: &'a Target,
) -> Ending<'a> {
    Box::pin(async move {
        let bar = watch::bar(target.quiet);
        target.notes.set_bar(bar.as_ref());
        let watching = async {
            let Some(bar) = &bar else { return std::future::pending().await };
            while let Some(read) = progress.next().await {
                // If it cannot be read now, it is shown the next time.
                if let Ok(progress) = read {
                    bar.set_message(line(&progress));
                    bar.tick();
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
        if let Some(bar) = bar {
            bar.finish_and_clear();
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
                // It may be over meanwhile, or forgotten. Its result is being read now, which says so.
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
    fn solve(self: Box<Self>, place: Place, _: bool) -> Result<Solved, Failure> {
        if place.nodes.is_some() || place.workers.is_some() || place.state.is_some() {
            return Err(Failure::usage(
                "what is asked for runs without the runtime: it takes no --nodes, --workers or --state",
            ));
        }
        Ok(Solved { shown: *self, suspended: false })
    }

    fn submit(self: Box<Self>, _: &Target) -> Submitting<'_> {
        Box::pin(async {
            Err(Failure::usage("what is asked for runs without the runtime, and cannot be submitted"))
        })
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

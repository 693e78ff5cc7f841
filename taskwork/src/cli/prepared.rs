//! A job that is ready to run, and what is to be said when it has.

use std::{future::Future, pin::Pin, time::Instant};

use rand::Rng as _;

use super::{
    Failure,
    steady::interruptible,
    submit::{Target, unknown, until_over},
    watch,
};
use crate::{
    job::{Job, JobError, Progress, Report},
    shell::submit::{Draft, Submission, Submitted},
    task::Task,
    wire::codec::{self, EncodeError},
};

/// A job that is ready to run, here or on a cluster.
pub struct Prepared {
    job: Box<dyn Launch>,
}

/// What a command shows at its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// For people.
    pub text: String,
    /// For scripts: `--json`.
    pub json: serde_json::Value,
    /// Whether all was done. Otherwise the exit code is 1.
    pub complete: bool,
}

impl Shown {
    /// What is shown when all was done. The text gets a line end if it has none.
    pub fn done(text: impl Into<String>, json: impl Into<serde_json::Value>) -> Self {
        Self { text: text.into(), json: json.into(), complete: true }
    }

    pub(super) fn print(&self, json: bool) {
        let text = if json { self.json.to_string() } else { self.text.clone() };
        let end = if text.ends_with('\n') { "" } else { "\n" };
        super::failure::print(&format!("{text}{end}"));
    }
}

type Line = fn(&Progress) -> String;
type Submitting<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Waits>, Failure>> + 'a>>;
type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Shown, Failure>> + 'a>>;

impl Prepared {
    /// A job of one of the program's [kinds](super::Program::kinds), and what to show of its report.
    pub fn new<T: Task>(
        kind: &'static str,
        job: Job<T>,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        Self { job: Box::new(Ready { kind, job, show: Box::new(show), line: watch::line_of }) }
    }

    /// As [`new`](Self::new), with a line of the program's own that says how the job gets on.
    pub fn watched<T: Task>(
        kind: &'static str,
        job: Job<T>,
        line: fn(&Progress) -> String,
        show: impl FnOnce(Report<T>) -> Result<Shown, Failure> + Send + 'static,
    ) -> Self {
        Self { job: Box::new(Ready { kind, job, show: Box::new(show), line }) }
    }

    /// What needed no job: it has been done already.
    pub fn at_once(shown: Shown) -> Self {
        Self { job: Box::new(shown) }
    }

    /// Runs it within this process.
    pub(super) fn solve(self, size: Size, quiet: bool) -> Result<Shown, Failure> {
        self.job.solve(size, quiet)
    }

    /// Submits it to a cluster.
    pub(super) fn submit(self, target: &Target) -> Submitting<'_> {
        self.job.submit(target)
    }
}

/// How many nodes and workers a job runs on within this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: Option<usize>,
    pub(super) workers: Option<usize>,
}

/// What tells a submission from every other.
fn submission_key() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// A job with the type of its tasks forgotten.
trait Launch: Send {
    fn solve(self: Box<Self>, size: Size, quiet: bool) -> Result<Shown, Failure>;
    fn submit(self: Box<Self>, target: &Target) -> Submitting<'_>;
}

/// A submitted job, the type of its tasks forgotten.
pub(super) trait Waits: Send {
    fn submitted(&mut self) -> &mut Submitted;
    /// Waits for its end.
    fn wait(self: Box<Self>, target: &Target) -> Waiting<'_>;
}

type Show<T> = Box<dyn FnOnce(Report<T>) -> Result<Shown, Failure> + Send>;

struct Ready<T: Task> {
    kind: &'static str,
    job: Job<T>,
    show: Show<T>,
    line: Line,
}

struct OnItsWay<T: Task> {
    submitted: Submitted,
    show: Show<T>,
    line: Line,
}

impl<T: Task> Launch for Ready<T> {
    fn solve(self: Box<Self>, Size { nodes, workers }: Size, quiet: bool) -> Result<Shown, Failure> {
        let Self { mut job, show, line, .. } = *self;
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
        show(report?)
    }

    fn submit(self: Box<Self>, target: &Target) -> Submitting<'_> {
        let Self { kind, job, show, line } = *self;
        Box::pin(async move {
            let values = job.start_values.into_iter().map(|(name, value)| Ok((name, value?)));
            let start_values = values.collect::<Result<Vec<_>, EncodeError>>().map_err(Failure::failed)?;
            let shared = codec::encode(&*job.shared).map_err(Failure::failed)?;
            let order = Submission {
                runs: &target.runs,
                kind,
                name: &target.name,
                submitter: &target.submitter,
                attempts_max: target.attempts_max,
                shared: &shared,
                start_values: &start_values,
            };
            let (started, cluster) = (Instant::now(), target.cluster.clone());
            let draft = Draft::new(job.root, &order)?;
            let (new, key) = (draft.job(), submission_key());
            let mut submission = zk::job::Submission::new(&new, &key);
            let id = target.line.ask(async |store| submission.go_on(&*store, &cluster).await).await?;
            let submitted = Submitted::of(target.line.store(), cluster, &id, started)?;
            Ok(Box::new(OnItsWay { submitted, show, line }) as Box<dyn Waits>)
        })
    }
}

impl<T: Task> Waits for OnItsWay<T> {
    fn submitted(&mut self) -> &mut Submitted {
        &mut self.submitted
    }

    fn wait(self: Box<Self>, target: &Target) -> Waiting<'_> {
        let Self { mut submitted, show, line } = *self;
        Box::pin(async move {
            let record = until_over::<T>(&mut submitted, target, line).await?;
            let reading = target.line.ask(async |store| {
                submitted.store = store;
                match submitted.outcome::<T>(&record).await {
                    // A report is never of a part: what was forgotten meanwhile has none.
                    Err(JobError::Coordination(error))
                        if matches!(error.cause(), zk::Error::NoNode { .. }) =>
                    {
                        Ok(None)
                    }
                    read => read.map(Some),
                }
            });
            let report = interruptible(&target.line, reading).await?;
            show(report.ok_or_else(|| unknown(&submitted.job))?)
        })
    }
}

impl Launch for Shown {
    fn solve(self: Box<Self>, size: Size, _: bool) -> Result<Shown, Failure> {
        if size.nodes.is_some() || size.workers.is_some() {
            return Err(Failure::usage(
                "what is asked for runs without the runtime: it takes no --nodes or --workers",
            ));
        }
        Ok(*self)
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

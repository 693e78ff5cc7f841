//! `submit`: hand a job to a cluster.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use serde_json::json;
use tokio::time;
use zk::{ClusterPaths, job::JobRecord, membership, queue::Runs};

use super::{
    Failure, Place, Prepared, Program,
    build::{BuildArguments, is_other_build},
    failure::print,
    log::{Level, LogArguments},
    steady::{Interrupts, Line, interruptible},
    target::{ClusterArguments, Patience, runtime},
    watch,
};
use crate::{
    id::JobId,
    job::{JobError, Progress},
    shell::submit::Submitted,
    task::Task,
};

// A program's own arguments may have the name that clap would give to a group of these.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Arguments<A: Args> {
    #[command(flatten)]
    program: A,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    patience: Patience,
    /// What to call the job. [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// Wait for the end of the job and print its result. Ctrl-C then cancels the job. Without it the job's id is printed, and
    /// `taskwork wait ID` waits.
    #[arg(long)]
    wait: bool,
    /// How many attempts there may be: each node that is lost ends one.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    #[command(flatten)]
    build: BuildArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    log: LogArguments,
}

/// Where jobs are submitted to.
pub(super) struct Target {
    pub(super) line: Line,
    pub(super) cluster: ClusterPaths,
    pub(super) runs: Runs,
    pub(super) name: String,
    pub(super) submitter: String,
    pub(super) attempts_max: u32,
    pub(super) quiet: bool,
}

/// The longest name of a job, in characters.
const NAME_CHARS_MAX: usize = 200;

pub(super) fn run<P: Program>(arguments: Arguments<P::Arguments>) -> Result<ExitCode, Failure> {
    let Arguments { program, cluster, patience, name, wait, attempts, build, json, quiet, log } = arguments;
    log.start(Level::Warn);
    let name = name.unwrap_or_else(|| P::NAME.to_owned());
    if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) || name.is_empty() {
        return Err(Failure::usage(format!(
            "the name of a job has 1 to {NAME_CHARS_MAX} characters, none of them a control character"
        )));
    }
    let (connect, paths) = (cluster.connect()?, cluster.paths()?);
    let runs = build.runs::<P>()?;
    let prepared = P::prepare(program, Place::Cluster)?;
    runtime()?.block_on(async move {
        let target = Target {
            line: Line::open(connect, Some(patience.of_a_step())).await?,
            cluster: paths,
            runs,
            name,
            submitter: whoami(),
            attempts_max: attempts,
            quiet: quiet || json,
        };
        let done = submit(&target, prepared, wait.then_some(&patience), json).await;
        target.line.close().await;
        done
    })
}

/// Submits a job, and waits for its end if patience for that is given.
async fn submit(
    target: &Target,
    prepared: Prepared,
    wait: Option<&Patience>,
    json: bool,
) -> Result<ExitCode, Failure> {
    target.line.set_hint(". Whether the job was submitted is not known: see taskwork jobs");
    let submitting = async {
        target.line.ask(async |store| target.cluster.prepare(&*store).await).await?;
        prepared.submit(target).await
    };
    let mut job = interruptible(&target.line, submitting).await?;
    let id = job.submitted().job.clone();
    let Some(patience) = wait else {
        print(&if json { format!("{}\n", json!({ "job": id.0 })) } else { format!("{id}\n") });
        target.note_without_nodes().await;
        return Ok(ExitCode::SUCCESS);
    };
    target.note_without_nodes().await;
    if !target.quiet {
        eprintln!("job {id}");
    }
    target.line.set_patience(patience.of_waiting());
    target.line.set_hint(format!(". {}", goes_on(&id)));
    let mut shown = job.wait(target).await?;
    if let Some(object) = shown.json.as_object_mut() {
        object.insert("job".to_owned(), json!(id.0));
    }
    shown.print(json);
    Ok(if shown.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is left to do for who does not wait any more.
pub(super) fn goes_on(job: &JobId) -> String {
    format!("Job {job} may go on without it: taskwork wait {job} gives its result")
}

/// Who submits: for people, nothing is decided by it.
fn whoami() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let name: String = user.unwrap_or_default().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

impl Target {
    /// Says so if there is no node that will take the job. The job is submitted all the same, so nothing else comes of an error.
    async fn note_without_nodes(&self) {
        let members = match membership::list(&*self.line.store(), &self.cluster).await {
            Ok(members) => members,
            Err(error) => return tracing::debug!(%error, "whether there are nodes is not known"),
        };
        let (Runs { program, version }, cluster) = (&self.runs, self.cluster.name());
        let mut versions =
            members.iter().filter(|member| member.program == *program).map(|m| &m.program_version);
        if versions.clone().any(|running| running == version) {
            return;
        }
        if let Some(other) = versions.find(|running| is_other_build(running, version)) {
            eprintln!(
                "note: the nodes of cluster {cluster} run another build of {program} ({other}; this one is {version}); the job waits. \
                 Start nodes from the same file, or say --any-build on both sides if the source is the same"
            );
        } else {
            eprintln!(
                "note: no node of cluster {cluster} runs {program} {version} now; the job waits until one does"
            );
        }
    }
}

/// How often the line is renewed while a job is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Waits for the end of a job, however long ZooKeeper is away meanwhile. Ctrl-C cancels the job; a second one ends the waiting, for
/// the servers may be away.
pub(super) async fn until_over<T: Task>(
    submitted: &mut Submitted,
    target: &Target,
    line_of: fn(&Progress) -> String,
) -> Result<JobRecord, Failure> {
    let (line, bar) = (&target.line, watch::bar(target.quiet));
    line.set_bar(bar.as_ref());
    let mut interrupts = Interrupts::listen()?;
    let mut cancelling = false;
    let record = loop {
        let interrupted = tokio::select! {
            ended = step(submitted, line, cancelling) => {
                if let Some(record) = ended? {
                    break record;
                }
                submitted.store = line.store();
                false
            }
            () = interrupts.next() => true,
            failure = line.watches() => return Err(failure),
            () = show::<T>(submitted, bar.as_ref(), line_of) => false,
        };
        if interrupted && std::mem::replace(&mut cancelling, true) {
            return Err(not_cancelled(&submitted.job));
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(record)
}

/// Waits for the end of the job, or sees to it; `None` if it is to be tried again.
async fn step(submitted: &Submitted, line: &Line, cancelling: bool) -> Result<Option<JobRecord>, Failure> {
    let ended =
        if cancelling { submitted.stop("cancelled by its submitter").await } else { submitted.end().await };
    match ended {
        Ok(record) => Ok(Some(record)),
        Err(JobError::Coordination(error)) if matches!(error.cause(), zk::Error::NoNode { .. }) => {
            Err(unknown(&submitted.job))
        }
        Err(error) => line.recover(error).await.map(|()| None),
    }
}

fn not_cancelled(job: &JobId) -> Failure {
    Failure::unreachable(format!(
        "interrupted twice, before the job was known to be cancelled. {}",
        goes_on(job)
    ))
}

/// What there is to say of a job that has gone from the servers.
pub(super) fn unknown(job: &JobId) -> Failure {
    Failure::failed(format!(
        "ZooKeeper has no job {job} any more: it was forgotten, or the servers have lost their data. What it has produced is lost"
    ))
}

/// Says again and again how the job gets on, if somebody looks.
async fn show<T: Task>(
    submitted: &Submitted,
    bar: Option<&indicatif::ProgressBar>,
    line: fn(&Progress) -> String,
) {
    let Some(bar) = bar else { return std::future::pending().await };
    loop {
        time::sleep(LOOK_EVERY).await;
        // What cannot be read now is shown the next time.
        if let Ok(progress) = submitted.progress::<T>().await {
            bar.set_message(line(&progress));
            bar.tick();
        }
    }
}

//! `submit`: hand a job to a cluster.

use std::{process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use serde_json::json;
use tokio::time;
use zk::{ClusterPaths, Connect, Store, job::JobRecord, membership, queue::Runs};

use super::{
    Failure, Place, Program,
    failure::print,
    log::{Level, LogArguments},
    node::runs,
    target::{ClusterArguments, runtime},
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
    /// What to call the job. [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// Wait for the end of the job and print its result. Ctrl-C then cancels the job.
    #[arg(long)]
    wait: bool,
    /// How many attempts there may be: each node that is lost ends one.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
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
    pub(super) connect: Connect,
    pub(super) cluster: ClusterPaths,
    pub(super) runs: Runs,
    pub(super) name: String,
    pub(super) submitter: String,
    pub(super) attempts_max: u32,
    pub(super) quiet: bool,
    store: Arc<dyn Store>,
}

/// The longest name of a job, in characters.
const NAME_CHARS_MAX: usize = 200;

pub(super) fn run<P: Program>(arguments: Arguments<P::Arguments>) -> Result<ExitCode, Failure> {
    let Arguments { program, cluster, name, wait, attempts, json, quiet, log } = arguments;
    log.start(Level::Warn);
    let name = name.unwrap_or_else(|| P::NAME.to_owned());
    if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) || name.is_empty() {
        return Err(Failure::usage(format!(
            "the name of a job has 1 to {NAME_CHARS_MAX} characters, none of them a control character"
        )));
    }
    let (connect, paths) = (cluster.connect()?, cluster.paths()?);
    let prepared = P::prepare(program, Place::Cluster)?;
    runtime()?.block_on(async move {
        let store: Arc<dyn Store> = connect.open().await?;
        paths.prepare(&*store).await?;
        let target = Target {
            store,
            connect,
            cluster: paths,
            runs: runs::<P>(),
            name,
            submitter: whoami(),
            attempts_max: attempts,
            quiet: quiet || json,
        };
        let mut job = prepared.submit(&target).await?;
        let id = job.submitted().job.clone();
        if !target.has_nodes().await? {
            eprintln!(
                "note: no node of cluster {} runs {} {} now; the job waits until one does",
                target.cluster.name(),
                target.runs.program,
                target.runs.version
            );
        }
        if !wait {
            print(&if json { format!("{}\n", json!({ "job": id.0 })) } else { format!("{id}\n") });
            return Ok(ExitCode::SUCCESS);
        }
        if !target.quiet {
            eprintln!("job {id}");
        }
        let mut shown = job.wait(&target).await?;
        if let Some(object) = shown.json.as_object_mut() {
            object.insert("job".to_owned(), json!(id.0));
        }
        shown.print(json);
        Ok(if shown.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Who submits: for people, nothing is decided by it.
fn whoami() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let name: String = user.unwrap_or_default().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

impl Target {
    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Whether there is a node that will take the job.
    async fn has_nodes(&self) -> Result<bool, Failure> {
        let members = membership::list(&*self.store, &self.cluster).await?;
        let runs = |member: &membership::Member| {
            member.program == self.runs.program && member.program_version == self.runs.version
        };
        Ok(members.iter().any(runs))
    }
}

/// How often the line is renewed while a job is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The pause before something that failed for the moment is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Waits for the end of a job, however often the connection is lost meanwhile. Ctrl-C cancels the job; a second one ends the
/// waiting, for the servers may be away.
pub(super) async fn until_over<T: Task>(
    submitted: &mut Submitted,
    target: &Target,
    line: fn(&Progress) -> String,
) -> Result<JobRecord, Failure> {
    let bar = watch::bar(target.quiet);
    let mut interrupted = false;
    let record = loop {
        let ended = tokio::select! {
            ended = submitted.end() => ended,
            _ = tokio::signal::ctrl_c() => {
                if std::mem::replace(&mut interrupted, true) {
                    return Err(not_cancelled(&submitted.job));
                }
                submitted.stop("cancelled by its submitter").await
            }
            () = show::<T>(submitted, bar.as_ref(), line) => continue,
        };
        match ended {
            Ok(record) => break record,
            Err(JobError::Coordination(zk::Error::SessionExpired)) => {
                tracing::warn!(job = %submitted.job, "the session is over; a new one is begun");
                submitted.store = target.connect.open().await?;
            }
            Err(JobError::Coordination(error)) if error.is_transient() => {
                tracing::warn!(job = %submitted.job, %error, "the job cannot be read; it is tried again");
                time::sleep(RETRY_PAUSE).await;
            }
            Err(JobError::Coordination(zk::Error::NoNode { .. })) => return Err(forgotten(&submitted.job)),
            Err(error) => return Err(error.into()),
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(record)
}

fn not_cancelled(job: &JobId) -> Failure {
    Failure::failed(format!("interrupted twice; job {job} may still be at work: see taskwork job {job}"))
}

fn forgotten(job: &JobId) -> Failure {
    Failure::failed(format!("job {job} was forgotten before its result was read"))
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
        if let Ok(progress) = submitted.progress::<T>().await {
            bar.set_message(line(&progress));
            bar.tick();
        }
    }
}

//! `taskwork`: what an operator sees of a cluster and can do to it, whatever programs its nodes run.

mod act;
mod doctor;
mod job;
mod jobs;
mod nodes;
mod overview;
mod status;
mod table;
mod wait;

use std::{
    collections::BTreeMap, ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use clap::{Parser, Subcommand};
use zk::{ClusterPaths, Store, is_name};

use self::overview::Overview;
use super::{
    Failure,
    failure::print,
    log::{Level, LogArguments},
    program::ended,
    steady::{Line, interruptible},
    target::{ClusterArguments, Patience, runtime, seconds},
};
use crate::id::NodeId;

/// Sees to the clusters of programs on the taskwork runtime.
#[derive(Debug, Parser)]
#[command(name = "taskwork", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say how the cluster is: its nodes, who leads, the job at work, jobs that wait.
    Status(Common),
    /// Look whether anything is wrong: servers, access, clocks, nodes, jobs. Exit code 1 if something is.
    Doctor(Common),
    /// List the nodes.
    Nodes(Common),
    /// List the jobs.
    Jobs(Common),
    /// Say everything about a job: its progress, its nodes, what it has cost.
    Job(Job),
    /// Print what a job has produced, as JSON.
    Result(OfJob),
    /// Wait for the end of a job, however long ZooKeeper is away meanwhile, and print what it has produced, as JSON.
    Wait(OfJob),
    /// Let a node leave: it hands on its unfinished tasks first. Asked again, it leaves at once.
    Drain(Drain),
    /// Say something to a job that is at work: give it a solution, mostly, in JSON. Its program checks it.
    Inject(Inject),
    /// Stop a job.
    Cancel(Cancel),
    /// Put a job aside: its tasks are parked, its nodes take the next job.
    Suspend(OfJob),
    /// Let a job that was put aside go on.
    Resume(OfJob),
    /// Remove everything that is kept of jobs that are over, or whose submission was abandoned.
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    patience: Patience,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogArguments,
}

#[derive(Debug, clap::Args)]
struct OfJob {
    /// The job, as `taskwork jobs` lists it; the number alone will do.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Job {
    #[command(flatten)]
    of: OfJob,
    /// Also say what has happened, and when.
    #[arg(long)]
    timeline: bool,
}

#[derive(Debug, clap::Args)]
struct Drain {
    /// The node, as `taskwork nodes` lists it; the beginning will do.
    node: String,
    /// Wait until it has left.
    #[arg(long)]
    wait: bool,
    /// How long to wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    timeout: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    /// The job, as `taskwork jobs` lists it; the number alone will do.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: String,
    /// Why; it is kept with the job.
    #[arg(long, default_value = "cancelled by an operator")]
    reason: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Inject {
    /// The job, as `taskwork jobs` lists it; the number alone will do.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: String,
    /// A file with what to say, in JSON; - is standard input.
    file: PathBuf,
    /// How long to wait for the answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Forget {
    /// The jobs, as `taskwork jobs` lists them; the numbers alone will do.
    #[arg(value_name = "ID", value_parser = job_id, required_unless_present = "all")]
    jobs: Vec<String>,
    /// All jobs that are over, or whose submission was abandoned.
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    /// Also jobs that are being submitted. Without it they must be abandoned: begun ten minutes ago, and not done.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

/// A cluster, looked at by an operator.
struct Desk {
    line: Line,
    cluster: ClusterPaths,
    json: bool,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs a command line, the name of the command first.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match CommandLine::try_parse_from(arguments) {
        Ok(line) => ended(perform(line.command)),
        Err(error) => {
            // It goes where it belongs: help to standard output, errors to standard error.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

fn perform(command: Command) -> Result<ExitCode, Failure> {
    let common = match &command {
        Command::Status(common)
        | Command::Doctor(common)
        | Command::Nodes(common)
        | Command::Jobs(common)
        | Command::Job(Job { of: OfJob { common, .. }, .. })
        | Command::Result(OfJob { common, .. })
        | Command::Wait(OfJob { common, .. })
        | Command::Suspend(OfJob { common, .. })
        | Command::Resume(OfJob { common, .. })
        | Command::Drain(Drain { common, .. })
        | Command::Inject(Inject { common, .. })
        | Command::Cancel(Cancel { common, .. })
        | Command::Forget(Forget { common, .. }) => common,
    };
    common.log.start(Level::Warn);
    let (connect, cluster, json) = (common.cluster.connect()?, common.cluster.paths()?, common.json);
    let patience = match &command {
        Command::Wait(_) => common.patience.of_waiting(),
        _ => Some(common.patience.of_a_step()),
    };
    if let Command::Doctor(_) = command {
        return runtime()?.block_on(doctor::run(&connect, &cluster, json));
    }
    runtime()?.block_on(async {
        let desk = Desk { line: Line::open(connect, patience).await?, cluster, json };
        let done = interruptible(&desk.line, async {
            desk.check_cluster().await?;
            desk.perform(command).await
        });
        let done = done.await;
        desk.line.close().await;
        done
    })
}

impl Desk {
    /// The cluster must be there: nothing is made by looking.
    async fn check_cluster(&self) -> Result<(), Failure> {
        if self.ask(async |store| store.exists(&self.cluster.jobs()).await).await?.is_some() {
            return Ok(());
        }
        let known = self.ask(async |store| match store.children(ClusterPaths::ALL).await {
            Err(zk::Error::NoNode { .. }) => Ok(Vec::new()),
            other => other,
        });
        let known = known.await?;
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Failure::usage(format!(
            "there is no cluster {:?} at {}; there is: {known}. A cluster is made by its first node or job",
            self.cluster.name(),
            self.line.hosts()
        )))
    }

    /// Asks until there is an answer. What is asked must be such that asking again does no harm.
    async fn ask<T>(&self, ask: impl AsyncFnMut(Arc<dyn Store>) -> zk::Result<T>) -> Result<T, Failure> {
        self.line.ask(ask).await
    }

    /// Of each node the task that does not stop, with its job.
    async fn silent(&self, overview: &Overview) -> Result<BTreeMap<String, String>, Failure> {
        self.ask(async |store| overview.silent(&*store, &self.cluster).await).await
    }

    async fn perform(&self, command: Command) -> Result<ExitCode, Failure> {
        match command {
            Command::Status(_) | Command::Doctor(_) => status::run(self).await?,
            Command::Nodes(_) => nodes::run(self).await?,
            Command::Jobs(_) => jobs::run(self).await?,
            Command::Job(Job { of, timeline }) => job::run(self, &of.job, timeline).await?,
            Command::Result(OfJob { job, .. }) => act::result(self, &job).await?,
            Command::Wait(OfJob { job, .. }) => wait::run(self, &job).await?,
            Command::Drain(Drain { node, wait, timeout, .. }) => {
                act::drain(self, &node, wait.then_some(timeout)).await?;
            }
            Command::Inject(Inject { job, file, timeout, .. }) => {
                return act::inject(self, &job, &file, timeout).await;
            }
            Command::Cancel(Cancel { job, reason, .. }) => act::cancel(self, &job, &reason).await?,
            Command::Suspend(OfJob { job, .. }) => act::suspend(self, &job).await?,
            Command::Resume(OfJob { job, .. }) => act::resume(self, &job).await?,
            Command::Forget(Forget { jobs, force, .. }) => act::forget(self, jobs, force).await?,
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn overview(&self) -> Result<Overview, Failure> {
        self.ask(async |store| Overview::read(&*store, &self.cluster).await).await
    }

    /// Prints one or the other.
    fn say(&self, json: impl FnOnce() -> serde_json::Value, text: impl FnOnce() -> String) {
        let text = if self.json { json().to_string() } else { text() };
        print(&format!("{}\n", text.trim_end_matches('\n')));
    }

    /// The member that is meant by the beginning of its name.
    async fn member(&self, given: &str) -> Result<NodeId, Failure> {
        let names = self.ask(async |store| store.children(&self.cluster.members()).await).await?;
        let meant: Vec<&String> = names.iter().filter(|name| name.starts_with(given)).collect();
        match meant.as_slice() {
            [name] => name.parse().map_err(Failure::usage),
            [] => {
                Err(Failure::usage(format!("no node of cluster {} is called {given:?}", self.cluster.name())))
            }
            _ => Err(Failure::usage(format!(
                "{} nodes are called {given}…: say more of the name",
                meant.len()
            ))),
        }
    }
}

/// A job's id, or its number.
fn job_id(text: &str) -> Result<String, String> {
    if let Ok(number) = text.parse::<u32>() {
        return Ok(format!("j-{number:010}"));
    }
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("expected an id such as j-0000000003, or 3".to_owned())
    }
}

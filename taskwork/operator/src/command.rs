//! The operator's command line.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use taskwork::{JobId, client::doctor};
use taskwork_cli::{
    Failure,
    command::{
        ClusterArguments, Level, Man, Notes, ended, goes_on, interruptible, job_id, not_parsed, print,
        runtime, seconds, with_notes,
    },
};

use crate::{
    act, agent, compare, completions,
    connection::{Common, Connection},
    dashboard, events, findings, job, jobs, node, nodes, report, scale,
    selection::Selection,
    show, status, top, up, wait, whatif,
};

/// The name of the command.
const NAME: &str = "taskwork";

/// Inspect and control clusters of programs on the taskwork runtime.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a small cluster on this machine or over ssh: ZooKeeper and nodes. Again with other machines, another number of
    /// nodes or another program, it changes the cluster.
    Up(up::Up),
    /// End the nodes of a cluster that `up` has created, and its ZooKeeper. Nodes transfer their tasks first; jobs are kept.
    Down(up::Down),
    /// Run an agent: it starts nodes of the programs that travel with jobs (`submit --bring`), until it is asked to leave
    /// (SIGTERM, `taskwork drain`).
    Agent(agent::Arguments),
    /// Show the state of the cluster: its nodes, the running jobs and their leaders, the waiting jobs.
    Status(Common),
    /// Check the servers, access, clocks, nodes and jobs for problems. Exit code 1 if there are any.
    Doctor(Common),
    /// List the nodes.
    Nodes(With<nodes::Arguments>),
    /// Show the details of a node, or of all nodes on a host.
    Node(OfNode),
    /// List the jobs.
    Jobs(With<jobs::Arguments>),
    /// List the latest events that are recorded, and further ones as they happen.
    Events(With<events::Arguments>),
    /// Show the details of a job: its progress, nodes and cost.
    Job(Job),
    /// Print the result of a job, as JSON; for a stopped job, the best values that were known.
    Result(OfJob),
    /// Wait until jobs are over, however long ZooKeeper is unavailable, and print their results as JSON; of several jobs, one
    /// line each.
    Wait(OfJobs),
    /// Ask nodes to leave after they have handed over their unfinished tasks. A second request makes a node leave at once.
    Drain(Drain),
    /// Cordon nodes: they stay, but start no job, and take no more tasks in the jobs that they work on.
    Cordon(With<Selection>),
    /// Let cordoned nodes take work again.
    Uncordon(With<Selection>),
    /// Send a suggestion in JSON, usually a solution, to a running job. Its program checks the suggestion.
    Inject(Inject),
    /// Cancel jobs.
    Cancel(Cancel),
    /// Finish adding tasks to jobs that stay open: a job is finished when all its tasks are complete.
    Finish(OfJobs),
    /// Change the weight or the priority of jobs that are not over. Their nodes apply it at once.
    Set(Set),
    /// Suspend jobs: their tasks are parked, and their nodes work on the next job.
    Suspend(OfJobs),
    /// Resume suspended jobs.
    Resume(OfJobs),
    /// Retry the tasks that jobs have set aside because they repeatedly took down nodes. A job keeps the output of its
    /// other tasks.
    Retry(OfJobs),
    /// Remove all data of finished jobs and of abandoned submissions.
    Forget(Forget),
    /// Observe the cluster until Ctrl-C, and serve its state and metrics to browsers.
    Dashboard(Dashboard),
    /// Write the page of a job to one file, which a browser opens without a server. The data comes from the cluster or
    /// from a record.
    Report(With<report::Arguments>),
    /// Compare two jobs of the cluster or of records: as a table, or with -o as a page with both on one axis.
    Compare(With<compare::Arguments>),
    /// Observe the cluster on the terminal until q is pressed. Without a terminal, print the present state once.
    Top(With<top::Arguments>),
    /// Start and terminate machines for the cluster, as its jobs need them, until Ctrl-C. Only one controller of a
    /// cluster is active at a time; the others wait.
    Scale(With<scale::Arguments>),
    /// Estimate the finish time and the cost of a job with other numbers of nodes.
    Whatif(With<whatif::Arguments>),
    /// Print the JSON Schema of the outputs by --json.
    Schema,
    /// Print the completion script for a shell: bash, elvish, fish, powershell or zsh.
    Completions(completions::Arguments),
    /// Write the man pages of this command.
    Man(Man),
}

#[derive(Debug, clap::Args)]
struct OfJob {
    /// The job, as `taskwork jobs` lists it; the number alone suffices.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: JobId,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct OfNode {
    /// The node, as `taskwork nodes` lists it, or the beginning of its name; or the name of a host.
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct OfJobs {
    /// The jobs, as `taskwork jobs` lists them; the numbers alone suffice.
    #[arg(value_name = "ID", value_parser = job_id, required = true)]
    jobs: Vec<JobId>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Job {
    /// Also list the events and their times.
    #[arg(long)]
    timeline: bool,
    #[command(flatten)]
    document: show::Arguments,
    #[command(flatten)]
    of: OfJob,
}

#[derive(Debug, clap::Args)]
struct Drain {
    #[command(flatten)]
    of: Selection,
    /// Wait until the nodes have left.
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    timeout: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Set {
    #[command(flatten)]
    share: act::NewShare,
    #[command(flatten)]
    of: OfJobs,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    /// The reason; it is recorded with the jobs.
    #[arg(long, default_value = "cancelled by an operator")]
    reason: String,
    #[command(flatten)]
    of: OfJobs,
}

#[derive(Debug, clap::Args)]
struct Inject {
    /// The job, as `taskwork jobs` lists it; the number alone suffices.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: JobId,
    /// A file with the suggestion, in JSON; - is standard input.
    file: PathBuf,
    /// Maximum time to wait for the answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Dashboard {
    #[command(flatten)]
    served: dashboard::Arguments,
    #[command(flatten)]
    common: Common,
}

/// The arguments of a command, with those common to all commands.
#[derive(Debug, clap::Args)]
struct With<A: clap::Args> {
    #[command(flatten)]
    of: A,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Forget {
    /// The jobs, as `taskwork jobs` lists them; the numbers alone suffice.
    #[arg(value_name = "ID", value_parser = job_id, required_unless_present = "all")]
    jobs: Vec<JobId>,
    /// All finished jobs and abandoned submissions.
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    /// Also remove jobs that are being submitted. Without this option, only abandoned submissions are removed: those
    /// started ten minutes ago or earlier and not completed.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

impl Command {
    /// Returns the common options of a command that connects to a cluster in the common way.
    fn common(&self) -> Option<&Common> {
        match self {
            Self::Schema
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Up(_)
            | Self::Down(_)
            | Self::Agent(_)
            | Self::Dashboard(_)
            | Self::Top(_)
            | Self::Scale(_) => None,
            Self::Report(With { common, .. })
            | Self::Compare(With { common, .. })
            | Self::Status(common)
            | Self::Doctor(common)
            | Self::Nodes(With { common, .. })
            | Self::Node(OfNode { common, .. })
            | Self::Jobs(With { common, .. })
            | Self::Events(With { common, .. })
            | Self::Job(Job { of: OfJob { common, .. }, .. })
            | Self::Result(OfJob { common, .. })
            | Self::Wait(OfJobs { common, .. })
            | Self::Finish(OfJobs { common, .. })
            | Self::Suspend(OfJobs { common, .. })
            | Self::Resume(OfJobs { common, .. })
            | Self::Retry(OfJobs { common, .. })
            | Self::Drain(Drain { common, .. })
            | Self::Cordon(With { common, .. })
            | Self::Uncordon(With { common, .. })
            | Self::Inject(Inject { common, .. })
            | Self::Cancel(Cancel { of: OfJobs { common, .. }, .. })
            | Self::Set(Set { of: OfJobs { common, .. }, .. })
            | Self::Forget(Forget { common, .. })
            | Self::Whatif(With { common, .. }) => Some(common),
        }
    }

    /// Returns whether the command runs until Ctrl-C, so that it waits while ZooKeeper is unavailable.
    fn watches(&self) -> bool {
        match self {
            Self::Nodes(With { of, .. }) => of.watch.watch,
            Self::Jobs(With { of, .. }) => of.watch.watch,
            Self::Events(With { of, .. }) => of.watch,
            _ => false,
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs a command line; the first argument is the name of the command.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let matches = with_notes(CommandLine::command()).try_get_matches_from(arguments);
    match matches.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => ended(perform(line.command)),
        Err(error) => not_parsed(&error, NAME, env!("CARGO_PKG_VERSION")),
    }
}

/// Runs a command that needs no cluster, or has its own connection.
fn perform_alone(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Schema => {
            print(crate::json::SCHEMA_TEXT);
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions(arguments) => Ok(arguments.run(CommandLine::command())),
        Command::Man(man) => man.run(CommandLine::command()),
        Command::Up(up) => up.run(),
        Command::Down(down) => down.run(),
        Command::Agent(arguments) => agent::run(arguments),
        Command::Dashboard(Dashboard { served, common }) => {
            if common.json {
                return Err(Failure::usage(
                    "the dashboard prints no JSON: leave out --json, and read /api/view and /api/job/ID of the pages",
                ));
            }
            common.log.start(Level::Warn);
            show(served, common)
        }
        Command::Top(With { of, common }) => top::run(of, common),
        Command::Scale(With { of, common }) => scale::run(of, common),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn perform(command: Command) -> Result<ExitCode, Failure> {
    let Some(common) = command.common() else { return perform_alone(&command) };
    match &command {
        Command::Report(With { of, .. }) => {
            of.check(common.json)?;
            if let Some(written) = of.of_record(common.json) {
                return written;
            }
        }
        Command::Compare(With { of, .. }) => {
            of.check(common.json)?;
            if !of.needs_cluster() {
                return of.of_records(common.json);
            }
        }
        _ => {}
    }
    common.log.start(Level::Warn);
    let (cluster, json) = (&common.cluster, common.json);
    if let Command::Doctor(_) = command {
        return diagnose(cluster, json);
    }
    let patience = match &command {
        Command::Wait(_) => common.patience.of_waiting(),
        command if command.watches() => common.patience.of_waiting(),
        _ => Some(common.patience.of_a_step()),
    };
    let hint = match &command {
        Command::Wait(OfJobs { jobs, .. }) => jobs.iter().map(goes_on).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    };
    let client = cluster.client(&Notes::default())?.patience(patience);
    runtime()?.block_on(async {
        let connection = Connection { client: client.connect().await?, json };
        let done = interruptible(async {
            connection.client.check_cluster().await?;
            perform_on(&connection, command).await
        });
        let done = Box::pin(done).await;
        connection.client.close().await;
        done.map_err(|failure| if hint.is_empty() { failure } else { failure.hint(&hint) })
    })
}

fn diagnose(cluster: &ClusterArguments, json: bool) -> Result<ExitCode, Failure> {
    let found = runtime()?.block_on(doctor::diagnose(&cluster.connect()?, cluster.name()))?;
    print(&if json {
        format!("{}\n", crate::json::versioned(findings::json(&found)))
    } else {
        findings::text(&found)
    });
    let well = found.iter().all(|finding| finding.ok);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows a cluster, or a record of one, until Ctrl-C.
fn show(served: &dashboard::Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let here = runtime.enter();
    // Opened first: an error in the address is reported before a server is contacted or a long file is read.
    let site = served.open()?;
    // Read before Ctrl-C is intercepted, so that Ctrl-C stops the process at once.
    let replayed = served.replayed()?;
    drop(here);
    if let Some(board) = replayed {
        return runtime.block_on(interruptible(dashboard::show(site, board))).map(|never| match never {});
    }
    let (cluster, patience) = (&common.cluster, common.patience.of_a_step());
    let client = cluster.client(&Notes::default())?.patience(Some(patience));
    let observing = async {
        let client = client.connect().await?;
        let checked = client.check_cluster().await;
        // The observer has its own session; this one is opened again on demand.
        client.close().await;
        let missing = match checked {
            // The first node or job may start later.
            Err(error @ taskwork::ClientError::NoCluster { .. }) => Some(error),
            other => other.map(|()| None)?,
        };
        let site = site.with_client(&client);
        dashboard::observe(client, site, served, cluster.name(), missing).await
    };
    runtime.block_on(interruptible(observing)).map(|never| match never {})
}

async fn perform_on(connection: &Connection, command: Command) -> Result<ExitCode, Failure> {
    match command {
        // The others need no cluster, or have their own client.
        Command::Status(_)
        | Command::Doctor(_)
        | Command::Schema
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Up(_)
        | Command::Down(_)
        | Command::Agent(_) => {
            status::run(connection).await?;
        }
        Command::Nodes(With { of, .. }) => nodes::run(connection, &of).await?,
        Command::Node(OfNode { node, .. }) => node::run(connection, &node).await?,
        Command::Jobs(With { of, .. }) => jobs::run(connection, &of).await?,
        Command::Events(With { of, .. }) => events::run(connection, &of).await?,
        Command::Job(Job { of, timeline, document }) => match document.asked() {
            Some(name) => show::run(connection, &of.job, name, &document).await?,
            None => job::run(connection, &of.job, timeline).await?,
        },
        Command::Result(OfJob { job, .. }) => return act::result(connection, &job).await,
        Command::Wait(OfJobs { jobs, .. }) => return wait::run(connection, &jobs).await,
        Command::Drain(Drain { of, wait, timeout, .. }) => {
            act::drain(connection, &of, wait.then_some(timeout)).await?;
        }
        Command::Cordon(With { of, .. }) => act::cordon(connection, &of, true).await?,
        Command::Uncordon(With { of, .. }) => act::cordon(connection, &of, false).await?,
        Command::Inject(Inject { job, file, timeout, .. }) => {
            return act::inject(connection, &job, &file, timeout).await;
        }
        Command::Cancel(Cancel { of: OfJobs { jobs, .. }, reason }) => {
            act::each(&jobs, async |job| act::cancel(connection, job, &reason).await).await?;
        }
        Command::Finish(OfJobs { jobs, .. }) => {
            act::each(&jobs, async |job| act::finish(connection, job).await).await?;
        }
        Command::Set(Set { of: OfJobs { jobs, .. }, share }) => {
            act::each(&jobs, async |job| act::set(connection, job, share).await).await?;
        }
        Command::Suspend(OfJobs { jobs, .. }) => {
            act::each(&jobs, async |job| act::suspend(connection, job).await).await?;
        }
        Command::Resume(OfJobs { jobs, .. }) => {
            act::each(&jobs, async |job| act::resume(connection, job).await).await?;
        }
        Command::Retry(OfJobs { jobs, .. }) => {
            act::each(&jobs, async |job| act::retry(connection, job).await).await?;
        }
        Command::Forget(Forget { jobs, force, .. }) => act::forget(connection, jobs, force).await?,
        Command::Report(With { of, .. }) => return report::run(connection, &of).await,
        Command::Compare(With { of, .. }) => return compare::run(connection, &of).await,
        Command::Whatif(With { of, .. }) => whatif::run(connection, &of).await?,
        Command::Dashboard(_) | Command::Top(_) | Command::Scale(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod manual_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboard_with_record_needs_no_servers() {
        let line = CommandLine::try_parse_from([NAME, "dashboard", "--replay", "record.jsonl"]);
        assert!(matches!(line, Ok(CommandLine { command: Command::Dashboard(_) })));
    }
}

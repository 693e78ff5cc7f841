//! `submit`: submits a job to a cluster.

use std::{net::SocketAddr, process::ExitCode};

use clap::Args;
use serde_json::json;
use taskwork::{Client, JobId, Labels, Limits, Release, client::ClientBuilder, node::Address};

use crate::{
    Failure, Prepared,
    build::BuildArguments,
    failure::{lost_output, print, tell},
    interrupts::{Notes, interruptible, terminated},
    job_log::{JobLogArguments, Viewing},
    log::{Level, LogArguments},
    naming::submitter,
    prepared::Waits,
    target::{ClusterArguments, Patience, job_id, merged, runtime},
};

// A program's own arguments may have the name that clap would choose for this group.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Arguments<A: Args> {
    #[command(flatten)]
    pub(crate) program: A,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// The options of every program.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    patience: Patience,
    /// A name for the job. [default: the program and its arguments without options, such as `tsp berlin52.tsp`]
    #[arg(long)]
    name: Option<String>,
    /// Wait until the job is over and print its result; Ctrl-C then cancels the job. By default the job's id is
    /// printed, and `taskwork wait ID` waits for it.
    #[arg(long)]
    wait: bool,
    /// The maximum number of attempts. A lost node fails one only if it held more than it could write.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// The number of consecutive nodes lost with the same task, or panics of the task, after which the job continues
    /// without it. With 0 no task is ever set aside: any number of nodes may be lost, and a panic fails the
    /// job.
    #[arg(long, default_value_t = Limits::default().crashes_max, value_parser = crashes)]
    crashes: u32,
    /// A label that a node must have to work on the job, or several separated by commas. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = str::parse::<Labels>)]
    require: Vec<Labels>,
    /// A job that must be done before this one starts. May be repeated. If it fails or is cancelled, this job fails.
    #[arg(long, value_name = "ID", value_parser = job_id)]
    after: Vec<JobId>,
    #[command(flatten)]
    share: ShareArguments,
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    build: BuildArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    job_log: JobLogArguments,
    #[command(flatten)]
    log: LogArguments,
}

/// The transfer of the job's data to the nodes, if it is too large for ZooKeeper, and of the program to agents.
#[derive(Debug, Clone, Args)]
#[group(skip)]
struct DataArguments {
    /// Let this program travel with the job: agents (`taskwork agent`) fetch it from this process, and start nodes from it.
    /// With --zk-tls-cert, it is signed, so that agents know its submitter.
    #[arg(long, conflicts_with = "any_build")]
    bring: bool,
    /// The address to listen on for nodes. They fetch the job's data from this process if it is larger than 64 MiB, and
    /// agents fetch the program (--bring). Port 0 selects any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The address at which nodes reach this process, if it differs: an IP address or a host name, with or without a
    /// port.
    #[arg(long, value_name = "ADDR", value_parser = str::parse::<Address>)]
    advertise: Option<Address>,
    /// The number of nodes that must have such data before this process exits, without --wait, and of agents with the required
    /// labels that must have the program: all, if there are fewer. They fetch it when the job waits for no other job
    /// (--after). The job waits forever if none of them is left.
    #[arg(long, value_name = "NODES", default_value_t = 2, value_parser = copies)]
    copies: usize,
}

/// The job's share of the nodes, relative to other jobs.
#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
pub(crate) struct ShareArguments {
    /// The weight of the job. Nodes work on several jobs at a time; their workers are divided in proportion to the
    /// weights of the jobs that have tasks. At most 1000.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) weight: u32,
    /// The priority of the job, from -100 to 100. Jobs of a higher priority come first, regardless of weights; those
    /// of a lower one use idle workers.
    #[arg(
        long, default_value_t = 0, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-100..=100)
    )]
    pub(crate) priority: i32,
    /// Run alone: the nodes work on no other job. The job starts when all jobs that started before it are over.
    #[arg(long)]
    pub(crate) exclusive: bool,
}

/// The cluster to submit jobs to.
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) notes: Notes,
    pub(crate) name: Option<String>,
    pub(crate) attempts_max: u32,
    pub(crate) crashes_max: u32,
    pub(crate) require: Labels,
    pub(crate) after: Vec<JobId>,
    pub(crate) share: ShareArguments,
    pub(crate) bring: bool,
    copies: usize,
    pub(crate) viewing: Viewing,
    release: Release,
}

/// Submits the job of a program with this name and version.
pub(crate) fn run(
    options: Options,
    job_name: String,
    name: &str,
    version: &str,
    prepare: impl FnOnce() -> Result<Prepared, Failure>,
) -> Result<ExitCode, Failure> {
    options.log.start(Level::Warn);
    let notes = Notes::default();
    let release = options.build.release(name, version)?;
    let client = options.cluster.client(&notes)?;
    let prepared = prepare()?;
    let options = Options { name: options.name.or(Some(job_name)), ..options };
    run_prepared(options, notes, client, release, prepared)
}

/// Not generic, so that it is compiled once with this crate.
fn run_prepared(
    options: Options,
    notes: Notes,
    client: ClientBuilder,
    release: Release,
    prepared: Prepared,
) -> Result<ExitCode, Failure> {
    let Options {
        patience, name, wait, attempts, crashes, require, after, share, data, json, job_log, ..
    } = options;
    let require = merged("--require", &require)?;
    let DataArguments { bring, listen, advertise, copies } = data;
    let mut client =
        client.release(release.clone()).submitter(submitter()).patience(Some(patience.of_a_step()));
    client = client.listen(listen);
    if let Some(address) = advertise {
        client = client.advertise(address);
    }
    runtime()?.block_on(async move {
        let client = client.connect().await?;
        let (attempts_max, crashes_max, viewing) = (attempts, crashes, job_log.viewing(json));
        let target = Target {
            client,
            notes,
            name,
            attempts_max,
            crashes_max,
            require,
            after,
            share,
            bring,
            copies,
            viewing,
            release,
        };
        let done = submit(&target, prepared, wait.then_some(&patience), json).await;
        target.client.close().await;
        done
    })
}

/// Parses a number of copies.
fn copies(given: &str) -> Result<usize, String> {
    let copies = given.parse().ok().filter(|&copies| copies > 0);
    copies.ok_or_else(|| "expected a number, at least 1".to_owned())
}

/// Parses the limit of crashes. One is not allowed: a single loss need not be the fault of the task.
fn crashes(given: &str) -> Result<u32, String> {
    match given.parse() {
        Ok(1) => Err("expected 0 or at least 2: a single loss says nothing about a task".to_owned()),
        Ok(crashes) => Ok(crashes),
        Err(_) => Err("expected a number, 0 or at least 2".to_owned()),
    }
}

/// Submits a job, and waits until it is over if a patience for that is given.
async fn submit(
    target: &Target,
    prepared: Prepared,
    wait: Option<&Patience>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let submitting = interruptible(prepared.submit(target)).await;
    let unknown = "It is unknown whether the job was submitted: see taskwork jobs";
    let mut job = submitting.map_err(|failure| failure.hint(unknown))?;
    let id = job.id().clone();
    let Some(patience) = wait else {
        print(&if json { format!("{}\n", json!({ "job": id.as_str() })) } else { format!("{id}\n") });
        if lost_output().is_some() {
            tell(format_args!("job {id}"));
        }
        target.note_without_nodes(&id).await;
        let handed_over = hand_over(&*job, target).await;
        job.withdraw_data().await;
        handed_over?;
        return Ok(ExitCode::SUCCESS);
    };
    target.note_without_nodes(&id).await;
    if !target.viewing.quiet {
        tell(format_args!("job {id}"));
    }
    let client = target.client.with_patience(patience.of_waiting());
    let waited = tokio::select! {
        waited = job.wait(client, target) => waited,
        signal = terminated() => {
            let signal = signal?;
            tell(format_args!("note: ended by signal {signal}. {}", goes_on(&id)));
            // The convention of shells for a process terminated by a signal.
            return Ok(ExitCode::from(128 + signal));
        }
    };
    let mut shown = waited.map_err(|failure| failure.hint(&goes_on(&id)))?;
    if let Some(object) = shown.json.as_object_mut() {
        object.insert("job".to_owned(), json!(id.as_str()));
    }
    shown.print(json);
    if shown.json.get("set_aside").is_some() {
        tell(format_args!("note: taskwork retry {id} gives what was set aside another chance"));
    }
    Ok(if shown.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until enough nodes have the job's data, if they fetch it from this process.
async fn hand_over(job: &dyn Waits, target: &Target) -> Result<(), Failure> {
    if !job.brings_data() {
        return Ok(());
    }
    let copies = target.copies;
    if !target.viewing.quiet {
        let members = if target.bring { "agent" } else { "node" };
        let what = if target.bring { "program" } else { "job's data" };
        let some = if copies == 1 { format!("1 {members} has") } else { format!("{copies} {members}s have") };
        let all = if target.bring { " (all, if there are fewer)" } else { "" };
        tell(format_args!("{members}s fetch the {what} from here; waiting until {some} it{all}"));
    }
    let unknown = format!(
        "Job {} continues if a member has what it needs, and otherwise never starts: taskwork cancel {} cancels it",
        job.id(),
        job.id()
    );
    interruptible(job.handed_over(copies)).await.map_err(|failure| failure.hint(&unknown))
}

/// Returns a hint for the user of an interrupted wait for the job.
pub fn goes_on(job: &JobId) -> String {
    format!("Job {job} may go on without it: taskwork wait {job} gives its result")
}

impl Target {
    /// Prints a note if no node accepts the job. The job is submitted nevertheless, so errors are ignored.
    async fn note_without_nodes(&self, id: &JobId) {
        let overview = match self.client.overview().await {
            Ok(overview) => overview,
            Err(error) => return tracing::debug!(%error, "it is unknown whether there are nodes"),
        };
        let Some(missing) = overview.job(id.as_str()).and_then(|job| job.missing.as_ref()) else { return };
        let (program, version) = (self.release.program(), self.release.version());
        let cluster = self.client.cluster_name();
        let mut versions =
            overview.members.iter().filter(|member| member.program == program).map(|m| &m.program_version);
        let has_nodes = versions.clone().any(|running| running == version);
        let other =
            versions.find(|running| !has_nodes && !self.bring && self.release.is_other_build(running));
        if let Some(other) = other {
            tell(format_args!(
                "note: the nodes of cluster {cluster} run another build of {program} ({other}; this one is \
                 {version}); the job waits. Start nodes from the same file, or say --any-build on both \
                 sides if the source is the same"
            ));
        } else if self.bring {
            tell(format_args!("note: in cluster {cluster} {missing}; the job waits for agents"));
        } else {
            tell(format_args!("note: in cluster {cluster} {missing} now; the job waits until one does"));
        }
    }
}

//! `solve`: solves a problem on this machine, without a server.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::json;
use taskwork::State;

use crate::{
    Failure, Prepared, build,
    failure::tell,
    job_log::JobLogArguments,
    log::{Level, LogArguments},
    prepared::{Place, Solved},
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
    /// The number of nodes to run within this process, each with its own pool; they communicate over QUIC on the
    /// loopback interface. [default: 1]
    #[arg(long)]
    nodes: Option<usize>,
    /// The number of workers per node; by default the processors are divided among the nodes.
    #[arg(long)]
    workers: Option<usize>,
    /// Keep the state in this directory, which is created if it does not exist. The same command continues after any
    /// interruption: Ctrl-C, a time limit, a crash, a full disk. A time limit then applies to each run.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Also continue from the state of another build of this version; only safe if both builds have the same
    /// source.
    #[arg(long, requires = "state")]
    any_build: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    job_log: JobLogArguments,
    #[command(flatten)]
    log: LogArguments,
}

/// Solves the job of a program with this name and version.
pub(crate) fn run(
    options: Options,
    name: &str,
    version: &str,
    prepare: impl FnOnce() -> Result<Prepared, Failure>,
) -> Result<ExitCode, Failure> {
    options.log.start(Level::Warn);
    let prepared = prepare()?;
    run_prepared(options, name, version, prepared)
}

/// Not generic, so that it is compiled once with this crate.
fn run_prepared(
    options: Options,
    name: &str,
    version: &str,
    prepared: Prepared,
) -> Result<ExitCode, Failure> {
    let Options { nodes, workers, state, any_build, json, job_log, .. } = options;
    let kept = match &state {
        Some(dir) => Some(State::new(dir, build::release(any_build, name, version)?)),
        None => None,
    };
    let Solved { mut shown, suspended } =
        prepared.solve(Place { nodes, workers, state: kept }, job_log.viewing(json))?;
    if let (Some(_), Some(object)) = (&state, shown.json.as_object_mut()) {
        object.insert("suspended".to_owned(), json!(suspended));
    }
    shown.print(json);
    if let (Some(dir), true) = (&state, suspended) {
        tell(format_args!("note: the state is in {}; the same command continues from it", dir.display()));
    } else if let (Some(dir), Some(_)) = (&state, shown.json.get("set_aside")) {
        tell(format_args!(
            "note: the tasks set aside are kept in {}; the same command retries them",
            dir.display()
        ));
    }
    Ok(if shown.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

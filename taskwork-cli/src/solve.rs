//! `solve`: solves a problem on this machine, without a server.

use std::process::ExitCode;

use clap::Args;

use crate::{
    Failure, Prepared,
    log::{Level, LogArguments},
    prepared::Size,
};

// A program's own arguments may have the name that clap would give to this group.
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
    /// The number of nodes to run within this process, each with a pool of its own; they communicate by QUIC
    /// over the loopback interface. [default: 1]
    #[arg(long)]
    nodes: Option<usize>,
    /// The workers of each node; by default the processors are shared among the nodes.
    #[arg(long)]
    workers: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Do not show progress.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    log: LogArguments,
}

/// Solves what `prepare` makes.
pub(crate) fn run(
    options: &Options,
    prepare: impl FnOnce() -> Result<Prepared, Failure>,
) -> Result<ExitCode, Failure> {
    options.log.start(Level::Warn);
    run_prepared(options, prepare()?)
}

/// Not generic: it is compiled with this crate, and not in every program.
fn run_prepared(options: &Options, prepared: Prepared) -> Result<ExitCode, Failure> {
    let &Options { nodes, workers, json, quiet, .. } = options;
    let shown = prepared.solve(Size { nodes, workers }, quiet || json)?;
    shown.print(json);
    Ok(if shown.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `solve`: solves a problem on this machine, without a server.

use std::process::ExitCode;

use clap::Args;

use crate::{
    Failure, Program,
    log::{Level, LogArguments},
    prepared::Size,
};

// A program's own arguments may have the name that clap would give to this group.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Arguments<A: Args> {
    #[command(flatten)]
    program: A,
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

pub(crate) fn run<P: Program>(arguments: Arguments<P::Arguments>) -> Result<ExitCode, Failure> {
    let Arguments { program, nodes, workers, json, quiet, log } = arguments;
    log.start(Level::Warn);
    let shown = P::prepare(program)?.solve(Size { nodes, workers }, quiet || json)?;
    shown.print(json);
    Ok(if shown.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `limited`: a node of `uts` or `maxclique` that writes its holdings at a chosen interval, or never, for
//! which these programs have no option. Both sides of a comparison run it. It works on jobs that were
//! submitted with `--any-build`.

use anyhow::Result;
use bnb_framework::{EnumerationTask, cli::Counts};
use bnb_problems::{maxclique::Cliques, uts::Uts};
use clap::{Args, Parser, ValueEnum};
use taskwork::{Limits, Node, Release, client::Connect};
use taskwork_cli::{Kinds, Program};

#[derive(Parser)]
enum Command {
    /// Run a node with one worker until it is killed.
    Node(Arguments),
}

#[derive(Args)]
struct Arguments {
    /// The program whose jobs it runs.
    program: Known,
    /// `Limits::ledger_interval_ms`.
    #[arg(long)]
    ledger_interval_ms: u64,
    /// The ZooKeeper servers.
    #[arg(long, env = "TASKWORK_ZK")]
    zk: String,
    /// The name of the cluster.
    #[arg(long)]
    cluster: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Known {
    Uts,
    Maxclique,
}

fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false).init();
    let Command::Node(Arguments { program, ledger_interval_ms, zk, cluster }) = Command::parse();
    let mut kinds = Kinds::default();
    let release = match program {
        Known::Uts => {
            kinds.add::<EnumerationTask<Uts>>(<Uts as Counts>::NAME);
            Release::new(<Uts as Counts>::NAME, <Uts as Counts>::VERSION)
        }
        Known::Maxclique => {
            Cliques::kinds(&mut kinds);
            Release::new(Cliques::NAME, Cliques::VERSION)
        }
    }?;
    let mut limits = Limits::default();
    limits.ledger_interval_ms = ledger_interval_ms;
    let node = Node::builder_at(Connect::new(zk), &cluster, release)?.kinds(kinds).limits(limits).workers(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(node.serve()?.ended().await?) })
}

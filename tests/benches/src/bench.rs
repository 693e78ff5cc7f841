//! The benchmarks, by name.

use anyhow::Result;
use clap::ValueEnum;

use crate::{bulk, cluster, dataflow, flow, inside, ledger, routines, row::Row, search};

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// UTS on one and two workers, against a loop, rayon and crossbeam.
    Uts,
    /// N-Queens against a recursion.
    Queens,
    /// Every tour of twelve cities, against a stack and a recursion.
    Paths,
    /// The travelling salesman by spanning trees, against a recursion.
    Mst,
    /// `tsp solve` as a process, on sixty cities.
    Tsp,
    /// The largest clique, against a recursion.
    Clique,
    /// The cost of checking for requests to a task.
    Polls,
    /// UTS on node processes over ZooKeeper and QUIC.
    Nodes,
    /// Sixty node processes on states that only take time, not processor.
    Waits,
    /// Small jobs on two and on forty node processes.
    Jobs,
    /// The time until eight node processes stop when a target is met.
    Decide,
    /// Branch and bound: states on more workers, speedup, and the time until solutions are good.
    Search,
    /// Workflows: the cost of a call, and the efficiency of tasks that work or wait.
    Dataflow,
    /// The memory that a node uses.
    Memory,
    /// The time from a job's last task to its end.
    Termination,
    /// The rate at which a byte object is fetched, against a plain stream of quinn.
    Bulk,
    /// The cost of keeping the state of a search in a directory.
    Ledger,
    /// The cost of losing nodes, in at most three rounds of 150 s each; with `TASKWORK_LONG=1` jobs take a
    /// minute, and there are six.
    Losses,
    /// Routines: direct calls, jobs and searches of Python functions over REST; with `--peers` also empty calls in
    /// Dask, Parsl and Ray.
    Routines,
    /// A job file of `flow`; with `--peers` also the same pipeline in Snakemake and `HyperQueue`.
    Flow,
}

impl Bench {
    /// Returns its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Runs the benchmark with this many repetitions of each comparison, with `peers` also in systems of others.
    ///
    /// # Errors
    /// If a measured program gives a wrong answer, or none.
    pub fn run(self, rounds: usize, peers: bool) -> Result<Vec<Row>> {
        match self {
            Self::Uts => inside::uts::run(rounds),
            Self::Queens => inside::queens::run(rounds),
            Self::Paths => inside::tsp::paths(rounds),
            Self::Mst => inside::tsp::mst(rounds),
            Self::Tsp => inside::tsp::solve(rounds),
            Self::Clique => inside::clique::run(rounds),
            Self::Polls => inside::polls::run(rounds),
            Self::Nodes => cluster::nodes::run(rounds),
            Self::Waits => cluster::waits::run(),
            Self::Jobs => cluster::jobs::run(),
            Self::Decide => cluster::decide::run(rounds),
            Self::Search => search::run(rounds),
            Self::Dataflow => dataflow::run(rounds),
            Self::Memory => cluster::memory::run(),
            Self::Termination => cluster::termination::run(rounds),
            Self::Bulk => bulk::run(rounds),
            Self::Ledger => ledger::kept::run(rounds),
            Self::Losses => ledger::losses::run(rounds.min(3)),
            Self::Routines => routines::run(rounds, peers),
            Self::Flow => flow::run(rounds, peers),
        }
    }
}

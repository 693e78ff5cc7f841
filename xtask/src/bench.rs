//! `cargo xtask bench`: all measurements, each by one command.

use anyhow::Result;
use clap::Args;

use crate::{
    install,
    step::{self, Step},
};

/// The measurements to make.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// `scale` (in the simulator, 10 to 1,000 nodes), `elastic` (nodes that join and leave, 15 minutes),
    /// `deadline` (a controller that starts and terminates nodes, 15 minutes), `all` of the others, or some of
    /// them: uts, queens, paths, mst, tsp, clique, polls, nodes, waits, jobs, decide, search, dataflow, memory,
    /// termination, bulk, losses, routines, flow, ledger (part of it in the simulator)
    #[arg(required = true)]
    names: Vec<String>,
    /// The number of repetitions of each comparison
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For `scale`: numbers of nodes
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// For `elastic`: only the smallest and the largest growth, once, and nothing at random
    #[arg(long)]
    quick: bool,
    /// For `routines`: also measure Dask, Parsl and Ray; for `flow`: Snakemake and `HyperQueue`. Pip installs them next to
    /// the programs
    #[arg(long)]
    peers: bool,
    /// For `elastic` and `deadline`: print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// For `elastic` and `deadline`: the folder for the results, by default docs/figures unless `--quick`
    #[arg(long, value_name = "FOLDER")]
    out: Option<String>,
}

/// The build of the measured programs.
const PROGRAMS: &str = "build --release -p taskwork-operator -p tsp-example -p bnb-problems -p routines -p dataflow-flow -p taskwork-benches --bins";

/// The maximum number of repetitions of `elastic` and `deadline`, each of which takes five minutes.
const ELASTIC_ROUNDS_MAX: usize = 3;

/// Measures, and prints a table. The results of `scale`, `elastic` and `all` are written to docs/figures.
///
/// # Errors
/// A step failed.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    // As in users' programs, also if contributors prefer incremental builds.
    let steps: Vec<_> = bench.steps().into_iter().map(|step| step.env("CARGO_INCREMENTAL", "0")).collect();
    if steps.len() > 1 {
        install::debian_packages(zk_server::PACKAGES)?;
    }
    step::run_chain(&steps)
}

impl Bench {
    fn steps(&self) -> Vec<Step> {
        if self.names == ["scale"] {
            return vec![self.scale()];
        }
        if self.names == ["elastic"] {
            return self.elastic();
        }
        if self.names == ["deadline"] {
            return self.deadline();
        }
        let all = self.names == ["all"];
        let names = if all { String::new() } else { self.names.join(" ") };
        let out = if all { "--out docs/figures/performance.json" } else { "" };
        let peers = if self.peers { "--peers" } else { "" };
        let measure = format!("--rounds {} {peers} {out} {names}", self.rounds);
        let mut steps = vec![
            Step::cargo("programs", PROGRAMS),
            Step::cargo(
                "bench",
                &format!("run --release --quiet -p taskwork-benches --bin bench -- {measure}"),
            ),
        ];
        if all || self.names.iter().any(|name| name == "ledger") {
            let out = if all { " --out docs/figures" } else { "" };
            steps.push(Self::simulate("losses", &format!("--lost-every-s 10 --nodes 100,200{out}")));
        }
        steps
    }

    fn elastic(&self) -> Vec<Step> {
        let rounds = if self.quick { 1 } else { self.rounds.min(ELASTIC_ROUNDS_MAX) };
        let mut measure = vec![format!("--rounds {rounds}")];
        measure.extend(self.quick.then(|| "--quick".to_owned()));
        measure.extend(self.json.then(|| "--json".to_owned()));
        let usual = (!self.quick).then_some("docs/figures");
        measure.extend(self.out.as_deref().or(usual).map(|folder| format!("--out {folder}")));
        let run = "run --release --quiet -p taskwork-benches --bin elastic --";
        vec![
            Step::cargo("programs", "build --release -p taskwork-benches --bins"),
            Step::cargo("elastic", &format!("{run} {}", measure.join(" "))),
        ]
    }

    fn deadline(&self) -> Vec<Step> {
        let mut measure = format!("--rounds {}", self.rounds.min(ELASTIC_ROUNDS_MAX));
        measure += if self.json { " --json" } else { "" };
        let folder = self.out.as_deref().unwrap_or("docs/figures");
        let run = "run --release --quiet -p taskwork-benches --bin deadline --";
        vec![
            Step::cargo("programs", "build --release -p taskwork-operator -p taskwork-benches --bins"),
            Step::cargo("deadline", &format!("{run} {measure} --out {folder}")),
        ]
    }

    /// Creates a step that measures in the simulator.
    fn simulate(name: &'static str, measure: &str) -> Step {
        let run = "run --release --quiet -p taskwork-simulation --bin scale --";
        Step::cargo(name, &format!("{run} {measure}"))
    }

    fn scale(&self) -> Step {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        let chosen = if nodes.is_empty() { String::new() } else { format!("--nodes {}", nodes.join(",")) };
        Self::simulate("scale", &format!("--out docs/figures {chosen}"))
    }
}

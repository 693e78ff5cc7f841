//! The command line of the flow shop.

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{
    cli::{self, BuildProblem, DisplaySolution, Failure},
    parse::text_of,
};
use serde_json::{Value, json};

use super::{FILE_BYTES_MAX, FlowShop, JOBS_MAX, MACHINES_MAX, SEED_END, parse};

impl DisplaySolution for FlowShop {
    const COST: &'static str = "makespan";
    const SOLUTION: &'static str = "order";

    /// Jobs are displayed from 1.
    fn show(&self, order: &Vec<u16>) -> (String, Value) {
        let order: Vec<u16> = order.iter().map(|job| job + 1).collect();
        (format!("{order:?}"), json!(order))
    }
}

/// The choice of the instance.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The instance, in Taillard's format: the numbers of jobs and machines, then the times of all jobs, a
    /// line for each machine. Transpose a file that has a line for each job: with as many jobs as machines it
    /// cannot be recognised.
    #[arg(required_unless_present = "seed")]
    file: Option<PathBuf>,
    /// The number of the instance in the file, if it has several.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    instance: u32,
    /// Generate an instance like Taillard, from the seed of its times.
    #[arg(long, conflicts_with_all = ["file", "instance"], requires = "jobs", requires = "machines",
          value_parser = clap::value_parser!(u32).range(1..i64::from(SEED_END)))]
    seed: Option<u32>,
    /// The number of jobs.
    #[arg(long, requires = "seed", value_parser = clap::value_parser!(u16).range(1..=JOBS_MAX as i64))]
    jobs: Option<u16>,
    /// The number of machines.
    #[arg(long, requires = "seed", value_parser = clap::value_parser!(u16).range(1..=MACHINES_MAX as i64))]
    machines: Option<u16>,
}

impl BuildProblem for FlowShop {
    const NAME: &'static str = "flowshop";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str =
        "Orders jobs so that the last machine is done with the last of them as early as can be";
    type Arguments = Arguments;

    fn from_arguments(arguments: Arguments) -> Result<Self, Failure> {
        let Arguments { file, instance, seed, jobs, machines } = arguments;
        match (file, seed, jobs, machines) {
            (_, Some(seed), Some(jobs), Some(machines)) => {
                Ok(Self::generate(jobs.into(), machines.into(), seed))
            }
            (Some(file), ..) => {
                let text = text_of(&file, FILE_BYTES_MAX).map_err(Failure::usage)?;
                parse(&file.display().to_string(), &text, instance).map_err(Failure::usage)
            }
            _ => Err(Failure::usage("a file was expected, or --seed, --jobs and --machines")),
        }
    }

    fn start(&self) -> Option<(u32, Vec<u16>)> {
        Some(self.start_order())
    }
}

/// Runs the program `flowshop`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    cli::main::<FlowShop>()
}

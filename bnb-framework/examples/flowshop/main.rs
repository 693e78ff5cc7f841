//! `flowshop`: solves the permutation flow shop: jobs go through all machines in the same order; which order is done first?
//!
//! ```text
//! cargo run --release -p bnb-framework --example flowshop -- solve ta001
//! cargo run --release -p bnb-framework --example flowshop -- solve --jobs 20 --machines 5 --seed 873654221
//! ```

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{
    SearchTask, Solver,
    cli::{self, SearchArguments},
    words,
};
use taskwork_cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::{
    read::{JOBS_MAX, MACHINES_MAX, parse},
    shop::FlowShop,
};

mod read;
mod shop;

/// What `flowshop` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The instance, in Taillard's format: the numbers of jobs and machines, then the times of all jobs for each machine.
    #[arg(required_unless_present = "seed")]
    file: Option<PathBuf>,
    /// Which instance of the file, if it has several.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    instance: u32,
    /// Make an instance as Taillard did, from the seed of its times.
    #[arg(long, conflicts_with_all = ["file", "instance"], requires = "jobs", requires = "machines",
          value_parser = clap::value_parser!(u32).range(1..i64::from(shop::SEED_END)))]
    seed: Option<u32>,
    /// How many jobs it has.
    #[arg(long, requires = "seed", value_parser = clap::value_parser!(u16).range(1..=JOBS_MAX as i64))]
    jobs: Option<u16>,
    /// How many machines it has.
    #[arg(long, requires = "seed", value_parser = clap::value_parser!(u16).range(1..=MACHINES_MAX as i64))]
    machines: Option<u16>,
    #[command(flatten)]
    search: SearchArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "flowshop";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str =
        "Orders jobs so that the last machine is done with the last of them as early as can be";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<FlowShop>>("flowshop");
    }

    fn prepare(arguments: Arguments, _: Place) -> Result<Prepared, Failure> {
        let shop = match (&arguments.file, arguments.seed, arguments.jobs, arguments.machines) {
            (_, Some(seed), Some(jobs), Some(machines)) => {
                FlowShop::generate(jobs.into(), machines.into(), seed)
            }
            (Some(file), ..) => {
                let text = words::text_of(file).map_err(Failure::usage)?;
                parse(&file.display().to_string(), &text, arguments.instance).map_err(Failure::usage)?
            }
            _ => return Err(Failure::usage("a file was expected, or --seed, --jobs and --machines")),
        };
        let (makespan, order) = shop.insertion();
        cli::prepare("flowshop", Solver::new(shop).start(makespan, order), &arguments.search)
    }
}

fn main() -> ExitCode {
    taskwork_cli::main::<Command>()
}

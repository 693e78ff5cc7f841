//! `knapsack`: which items are worth the most and still fit?
//!
//! ```text
//! cargo run --release -p bnb-framework --example knapsack -- solve knapPI_1_100_1000_1
//! ```

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{
    SearchTask, Solver,
    cli::{self, SearchArguments},
    words,
};
use taskwork::cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::items::Knapsack;

mod items;

/// What `knapsack` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The items: their number, the capacity, then the value and the weight of each.
    file: PathBuf,
    #[command(flatten)]
    search: SearchArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "knapsack";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Packs the most valuable items that fit";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<Knapsack>>("knapsack");
    }

    fn prepare(Arguments { file, search }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let text = words::text_of(&file).map_err(Failure::usage)?;
        let knapsack = items::parse(&file.display().to_string(), &text).map_err(Failure::usage)?;
        cli::prepare("knapsack", Solver::new(knapsack), &search)
    }
}

fn main() -> ExitCode {
    taskwork::cli::main::<Command>()
}

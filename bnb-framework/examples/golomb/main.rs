//! `golomb`: finds a shortest Golomb ruler.
//!
//! ```text
//! cargo run --release -p bnb-framework --example golomb -- solve 10
//! ```

use std::process::ExitCode;

use bnb_framework::{
    SearchTask, Solver,
    cli::{self, SearchArguments},
};
use taskwork_cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::ruler::{Golomb, MARKS_MAX};

mod ruler;

/// What `golomb` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// How many marks the ruler has, 2 to 32.
    marks: usize,
    #[command(flatten)]
    search: SearchArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "golomb";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Finds a shortest Golomb ruler";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<Golomb>>("golomb");
    }

    fn prepare(Arguments { marks, search }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let wrong = || Failure::usage(format!("a ruler of {marks} marks: 2 to {MARKS_MAX} were expected"));
        cli::prepare("golomb", Solver::new(Golomb::new(marks).ok_or_else(wrong)?), &search)
    }
}

fn main() -> ExitCode {
    taskwork_cli::main::<Command>()
}

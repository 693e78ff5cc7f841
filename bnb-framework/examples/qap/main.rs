//! `qap`: solves the quadratic assignment problem.
//!
//! ```text
//! cargo run --release -p bnb-framework --example qap -- solve nug15.dat
//! ```

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{
    SearchTask, Solver,
    cli::{self, SearchArguments},
    words,
};
use taskwork::cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::{facilities::Qap, read::parse};

mod facilities;
mod read;

/// What `qap` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The instance, in QAPLIB format: the number of facilities, then the two matrices.
    file: PathBuf,
    #[command(flatten)]
    search: SearchArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "qap";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Places facilities so that what flows between them goes the shortest way";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<Qap>>("qap");
    }

    fn prepare(Arguments { file, search }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let text = words::text_of(&file).map_err(Failure::usage)?;
        let qap = parse(&file.display().to_string(), &text).map_err(Failure::usage)?;
        let (cost, places) = qap.descent();
        cli::prepare("qap", Solver::new(qap).start(cost, places), &search)
    }
}

fn main() -> ExitCode {
    taskwork::cli::main::<Command>()
}

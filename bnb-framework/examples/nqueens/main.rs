//! `nqueens`: counts the ways to place n queens.
//!
//! ```text
//! cargo run --release -p bnb-framework --example nqueens -- solve 14
//! ```

use std::process::ExitCode;

use bnb_framework::{
    EnumerationTask,
    cli::{CountArguments, prepare_count},
};
use serde_json::json;
use taskwork_cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::board::Board;

mod board;

/// What `nqueens` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The size of the board, up to 31.
    size: u32,
    #[command(flatten)]
    count: CountArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "nqueens";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the ways to place n queens so that none attacks another";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<EnumerationTask<Board>>("nqueens");
    }

    fn prepare(Arguments { size, count }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let too_large = || Failure::usage(format!("a board of {size} is too large: at most 31"));
        let board = Board::new(size).ok_or_else(too_large)?;
        Ok(prepare_count("nqueens", board, &count, |ways| (format!("{ways} ways"), json!({ "ways": ways }))))
    }
}

fn main() -> ExitCode {
    taskwork_cli::main::<Command>()
}

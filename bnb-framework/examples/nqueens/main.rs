//! `nqueens`: counts the ways to place n queens.
//!
//! ```text
//! cargo run --release -p bnb-framework --example nqueens -- solve 14
//! ```

use std::process::ExitCode;

use bnb_framework::EnumerationTask;
use taskwork::cli::{Failure, Kinds, NoMore, Place, Prepared, Program, Shown};

use crate::board::Board;

mod board;

/// What `nqueens` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The size of the board, up to 31.
    size: u32,
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

    fn prepare(Arguments { size }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let too_large = || Failure::usage(format!("a board of {size} is too large: at most 31"));
        let board = Board::new(size).ok_or_else(too_large)?;
        Ok(Prepared::new("nqueens", EnumerationTask::job(board), |report| {
            let text = format!("{} ways", report.output);
            let json = serde_json::json!({
                "ways": report.output,
                "finished": report.finished,
                "seconds": report.elapsed.as_secs_f64(),
                "figures": report.figures,
            });
            Ok(Shown { text, json, complete: report.finished })
        }))
    }
}

fn main() -> ExitCode {
    taskwork::cli::main::<Command>()
}

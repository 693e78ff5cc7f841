//! The command line of `tsp`.
//!
//! Exit codes: 0 done; 1 not proven, or the tour is not what was to be checked; 2 wrong usage or input.

mod check;
mod generate;
mod report;
mod solve;
mod watch;

use std::process::ExitCode;

use bnb_framework::JobError;
use clap::{Parser, Subcommand};
use thiserror::Error;

use crate::read::ReadError;

#[derive(Debug, Parser)]
#[command(name = "tsp", version, about = "Solves the travelling salesman exactly, on all cores")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find a shortest tour, and prove that there is no shorter one.
    Solve(solve::Arguments),
    /// Check that a tour visits every city once, and say its length.
    Check(check::Arguments),
    /// Write a random instance to standard output, in TSPLIB format.
    Generate(generate::Arguments),
}

/// How a command ended, if nothing went wrong.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Done,
    /// The answer is not proven.
    NotProven,
}

/// Why a command came to nothing.
#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0}")]
    Usage(String),
    #[error("{file}: the file cannot be written: {source}")]
    Write { file: String, source: std::io::Error },
    #[error(transparent)]
    Job(#[from] JobError),
}

impl CommandError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Read(_) | Self::Usage(_) | Self::Write { .. } | Self::Job(JobError::Count { .. }) => {
                ExitCode::from(2)
            }
            Self::Job(_) => ExitCode::from(1),
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Solve(arguments) => solve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Generate(arguments) => Ok(generate::run(&arguments)),
    };
    match outcome {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::NotProven) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}

/// Writes to standard output; that nobody reads it any more (`tsp … | head`) is no mistake.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

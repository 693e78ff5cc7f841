//! The command line of `tsp`: the commands common to every program of the runtime, and two of its own.

mod check;
mod generate;
mod report;
mod solve;

use std::{path::Path, process::ExitCode};

use clap::Subcommand;
use taskwork_cli::{Failure, Kinds, Prepared, Program, note};

use crate::instance::Instance;

struct Tsp;

#[derive(Debug, Subcommand)]
enum More {
    /// Check that a tour visits every city once, and print its length; or look for mistakes in the program.
    Check(check::Arguments),
    /// Write a random instance to standard output, in TSPLIB format.
    Generate(generate::Arguments),
}

impl Program for Tsp {
    const NAME: &'static str = "tsp";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Solves the travelling salesman exactly, on all cores or on many machines";
    type Arguments = solve::Arguments;
    type More = More;

    fn kinds(kinds: &mut Kinds) {
        solve::kinds(kinds);
    }

    fn prepare(arguments: solve::Arguments) -> Result<Prepared, Failure> {
        solve::prepare(arguments)
    }

    fn more(command: More) -> Result<ExitCode, Failure> {
        match command {
            More::Check(arguments) => check::run(&arguments),
            More::Generate(arguments) => {
                generate::run(&arguments);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    taskwork_cli::main::<Tsp>()
}

/// Warns about an instance whose coordinates are so close that rounding distorts the distances.
fn note_coarse(file: &Path, instance: &Instance) {
    if instance.is_coarse {
        note(&format!(
            "{}: the coordinates are so close together that rounding to whole numbers has changed the distances by more \
             than 5 % on average; multiply the coordinates, by 1000 for example, for lengths that mean something",
            file.display()
        ));
    }
}

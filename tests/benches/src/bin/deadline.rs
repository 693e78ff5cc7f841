//! `deadline`: measures a job that a controller completes by a deadline, prints a table, writes JSON and a
//! plot.

use std::error::Error;

use clap::Parser;
use taskwork_benches::{elastic::deadline, kept::Kept};

/// Let a controller start and end processes for a job that has a deadline. A round takes four minutes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench deadline")]
struct Arguments {
    /// The number of repetitions of each deadline.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    #[command(flatten)]
    kept: Kept,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { rounds, kept } = Arguments::parse();
    let measured = deadline::run(rounds.into())?;
    kept.keep("deadline", measured.table(), &measured.json(), |path| measured.draw(path))
}

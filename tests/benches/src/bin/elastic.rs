//! `elastic`: measures the contribution of nodes that join a job and leave it again, prints tables, writes
//! JSON and a plot.

use std::error::Error;

use clap::Parser;
use taskwork_benches::{
    elastic::{self, Plan, plot},
    kept::Kept,
};

/// Add nodes to a job for a while, and print the change in speedup. Three rounds take a quarter of an hour.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench elastic")]
struct Arguments {
    /// The number of repetitions of each setting.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Measure only +10 and +40 nodes, for 15 seconds, and nothing at random.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    kept: Kept,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { rounds, quick, kept } = Arguments::parse();
    let measured = elastic::run(Plan { rounds: rounds.into(), quick })?;
    kept.keep("elastic", measured.tables(), &measured.json(), |path| plot::draw(path, &measured))
}

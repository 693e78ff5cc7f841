//! `elastic`: measures what nodes contribute that join a job and leave it again, prints tables, writes JSON
//! and a plot.

use std::{error::Error, fs, path::PathBuf};

use clap::Parser;
use taskwork_benches::elastic::{self, Plan, plot};

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
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// The folder for `elastic.json` and `elastic.svg`.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let measured = elastic::run(Plan { rounds: arguments.rounds.into(), quick: arguments.quick })?;
    let json = serde_json::to_string_pretty(&measured.json())?;
    if arguments.json {
        println!("{json}");
    } else {
        println!("{}", measured.tables());
    }
    if let Some(folder) = &arguments.out {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("elastic.json"), json + "\n")?;
        plot::draw(&folder.join("elastic.svg"), &measured)?;
    }
    Ok(())
}

//! `deadline`: measures a job that a controller brings to its end in time, prints a table, writes JSON and a plot.

use std::{error::Error, fs, path::PathBuf};

use clap::Parser;
use taskwork_benches::elastic::deadline;

/// Let a controller start and end processes for a job that has a deadline. A round takes four minutes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench deadline")]
struct Arguments {
    /// The number of repetitions of each deadline.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The folder for `deadline.json` and `deadline.svg`.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let measured = deadline::run(arguments.rounds.into())?;
    let json = serde_json::to_string_pretty(&measured.json())?;
    if arguments.json {
        println!("{json}");
    } else {
        println!("{}", measured.table());
    }
    if let Some(folder) = &arguments.out {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("deadline.json"), json + "\n")?;
        measured.draw(&folder.join("deadline.svg"))?;
    }
    Ok(())
}

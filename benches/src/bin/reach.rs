//! `reach`: measures which published instances the example programs prove in a limited time, prints a row for
//! each as soon as it is known, and writes them as JSON.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;
use taskwork_benches::{
    machine,
    reach::{self, Plan, heading, line, summary},
};

/// Solve each published instance on two workers, and print which are proven and the time until solutions are
/// good.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench reach")]
struct Arguments {
    /// The time for each instance, in seconds. Most take less than one.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// The folder of the programs to measure, such as that of an older build.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Only instances whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The file for the rows as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Arguments { limit, programs, only, out } = Arguments::parse();
    println!("{}", heading());
    let plan = Plan { limit_s: limit, programs, only };
    let all = reach::run(&plan, |reached| println!("{}", line(reached)))?;
    println!("\n{}", summary(&all));
    if let Some(file) = &out {
        let json = serde_json::json!({ "machine": machine::describe(), "limit_s": limit, "instances": all });
        fs::write(file, serde_json::to_string_pretty(&json)? + "\n")
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}

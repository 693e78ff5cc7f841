//! `cargo xtask bench`: compares the runtime with references, prints a table, and writes the figures as JSON.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use taskwork_benches::{bench::Bench, machine, row};

/// Run benchmarks, each alternately with its reference.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// The benchmarks to run; all if none is named.
    benches: Vec<Bench>,
    /// The number of repetitions of each comparison.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For `routines`: also measure Dask, Parsl and Ray, which pip installs.
    #[arg(long)]
    peers: bool,
    /// The file for the figures.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.rounds > 0, "--rounds 0 would measure nothing");
    let benches = if arguments.benches.is_empty() { Bench::value_variants() } else { &arguments.benches };
    let mut rows = Vec::new();
    for bench in benches {
        eprintln!("{} …", bench.name());
        let measured = bench.run(arguments.rounds, arguments.peers);
        let measured = measured.with_context(|| format!("{} failed", bench.name()))?;
        eprintln!("{}\n", row::table(&measured));
        rows.extend(measured);
    }
    println!("{}", row::table(&rows));
    if let Some(file) = &arguments.out {
        let json = serde_json::json!({ "machine": machine::describe(), "figures": rows });
        fs::write(file, serde_json::to_string_pretty(&json)? + "\n")
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}

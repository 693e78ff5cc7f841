//! Job files of `flow`: a pipeline of 200 samples, and the same pipeline in other systems.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    routines::{figures, python_with, sample},
    row::{Row, Target},
};

/// The other systems, which have the names of their packages.
const PEERS: [&str; 2] = ["snakemake", "hyperqueue"];

/// Runs the benchmark, with `peers` also in other systems, which are installed from `PyPI`.
///
/// # Errors
/// If a system does not run all commands.
pub fn run(rounds: usize, peers: bool) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("no folder for the script")?;
    let script = folder.path().join("measure.py");
    fs::write(&script, include_str!("measure.py"))?;
    let mut measure = Command::new("python3");
    measure.arg(&script).arg(rounds.to_string()).arg(std::env::current_exe()?.with_file_name("flow"));
    let mut systems = vec!["flow"];
    for name in PEERS.into_iter().filter(|_| peers) {
        match python_with(name, name) {
            Ok(python) => {
                measure.arg(format!("{name}={}", python.display()));
                systems.push(name);
            }
            Err(error) => eprintln!("{name} is not measured: {error:#}"),
        }
    }
    let figures = figures(&mut measure)?;
    let mut rows = Vec::new();
    for system in systems {
        for (name, what, unit) in [
            ("s", "404 commands of a pipeline, 2 workers", "s"),
            ("lines", "lines of the job file", ""),
            ("repeated", "commands repeated after the loss of the master", ""),
        ] {
            let sample = sample(&figures, &format!("{system}_{name}"))?;
            rows.push(Row::new(format!("{system}: {what}"), unit, Target::Told, sample));
        }
    }
    Ok(rows)
}

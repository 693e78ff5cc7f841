//! One worker within this process, with and without a directory that keeps its state.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{cluster::program, data};

use super::progress;
use crate::{
    measure::Sample,
    row::{Row, Target},
};

/// A program, its instance, the name of the number of states in its result, and further arguments.
type Given = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// The last one takes four times as long as the first: creating the files takes the same time for all.
const INSTANCES: [Given; 3] = [
    ("uts", "T1L", "nodes", &[]),
    ("maxclique", "clique/brock400_4.clq", "states", &[]),
    ("uts", "T1L", "nodes", &["--spin", "3"]),
];

/// The measurements of a run.
struct Took {
    /// Its states. A single worker always visits the same.
    states: f64,
    /// As the program reports it.
    seconds: f64,
}

/// Runs the comparison.
///
/// # Errors
/// If a program fails.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for given in INSTANCES {
        if given.0 == "maxclique" && data::folder().is_none() {
            continue;
        }
        let (_, instance, _, more) = given;
        let what = format!("{}, one worker, --state", [&[instance], more].concat().join(" "));
        let mut rates = Vec::new();
        // The first pair does not count.
        for pair in 0..=rounds {
            let (with, without) = if pair % 2 == 0 {
                let with = solve(given, true)?;
                (with, solve(given, false)?)
            } else {
                let without = solve(given, false)?;
                (solve(given, true)?, without)
            };
            ensure!((with.states - without.states).abs() < 0.5, "{what}: other states were visited");
            if pair > 0 {
                progress(&what, pair - 1, rounds, without.seconds / with.seconds);
                rates.push(without.seconds / with.seconds);
            }
        }
        let what = format!("{what} ÷ without, states by second");
        rows.push(Row::new(what, "", Target::AtLeast(0.99), Sample::of(rates)));
    }
    Ok(rows)
}

fn solve((name, instance, states, more): Given, state: bool) -> Result<Took> {
    let mut command = Command::new(program(name)?);
    command.args(["solve", "--workers", "1", "--quiet", "--json"]).args(more);
    let file = data::folder().map(|folder| folder.join(instance)).filter(|file| file.is_file());
    command.arg(file.as_deref().map_or(instance.as_ref(), |file| file.as_os_str()));
    let folder = tempfile::tempdir().context("no folder for the state")?;
    if state {
        command.arg("--state").arg(folder.path().join("state"));
    }
    let said = command.output()?;
    ensure!(said.status.success(), "{name} {instance}: {}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).context("the program printed no JSON")?;
    let number = |field: &str| said[field].as_f64().with_context(|| format!("no {field}: {said}"));
    Ok(Took { states: number(states)?, seconds: number("seconds")? })
}

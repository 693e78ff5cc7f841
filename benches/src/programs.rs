//! The programs of `bnb-problems` as processes: the speedup from a second worker, and the cost of a
//! replicable search.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use taskwork_tests::{cluster::program, data};

use crate::{
    measure::Sample,
    row::{Row, Target},
};

/// A program, its arguments, a field of its result, and the expected value.
type Given = (&'static str, &'static [&'static str], &'static str, u64);

const INSTANCES: [Given; 4] = [
    ("maxclique", &["clique/brock400_4.clq"], "vertices", 33),
    ("flowshop", &["flowshop/ta022", "--cutoff", "2100"], "makespan", 2099),
    ("qap", &["qap/nug15.dat"], "cost", 1150),
    ("uts", &["T3L"], "nodes", 111_345_631),
];

const REPLICABLE: [Given; 4] = [
    ("maxclique", &["clique/brock200_1.clq"], "vertices", 21),
    ("maxclique", &["clique/p_hat300-3.clq"], "vertices", 36),
    ("qap", &["qap/nug15.dat"], "cost", 1150),
    ("flowshop", &["flowshop/ta012"], "makespan", 1659),
];

fn solve((name, arguments, field, answer): Given, more: &[&str]) -> Result<Value> {
    let folder = data::folder().context("no published instances")?;
    let mut command = Command::new(program(name)?);
    command.arg("solve").args(["--quiet", "--json"]).args(more);
    for argument in arguments {
        let file = folder.join(argument);
        command.arg(if file.is_file() { file.as_os_str() } else { argument.as_ref() });
    }
    let said = command.output()?;
    ensure!(said.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).context("no JSON")?;
    ensure!(said[field] == answer, "{name} {arguments:?}: {answer} was expected: {said}");
    Ok(said)
}

fn number(said: &Value, field: &str) -> Result<f64> {
    said[field].as_f64().with_context(|| format!("there is no {field}"))
}

/// Measures the speedup from a second worker.
///
/// # Errors
/// If an answer is wrong, or the instances are missing.
pub fn workers(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for given in INSTANCES {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        // The largest instance takes minutes.
        for _ in 0..rounds.min(3) {
            one.push(number(&solve(given, &["--workers", "1"])?, "seconds")?);
            two.push(number(&solve(given, &["--workers", "2"])?, "seconds")?);
        }
        let ratio: Vec<f64> = one.iter().zip(&two).map(|(one, two)| one / two).collect();
        let what = format!("{} {}", given.0, given.1.join(" "));
        rows.push(Row::new(format!("{what}, 1 worker"), "s", Target::Told, Sample::of(one)));
        rows.push(Row::new(format!("{what}, 2 workers"), "s", Target::Told, Sample::of(two)));
        rows.push(Row::new(format!("{what}, speedup"), "", Target::Told, Sample::of(ratio)));
    }
    Ok(rows)
}

/// Measures the cost of a replicable search, with two workers.
///
/// # Errors
/// If an answer is wrong, or the instances are missing.
pub fn replicable(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for given in REPLICABLE {
        let (mut times, mut states) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let plain = solve(given, &["--workers", "2"])?;
            let replicable = solve(given, &["--workers", "2", "--replicable"])?;
            times.push(number(&replicable, "seconds")? / number(&plain, "seconds")?);
            states.push(number(&replicable, "states")? / number(&plain, "states")?);
        }
        let what = format!("{} {}, replicable ÷ plain", given.0, given.1.join(" "));
        rows.push(Row::new(format!("{what}, time"), "", Target::Told, Sample::of(times)));
        rows.push(Row::new(format!("{what}, states"), "", Target::Told, Sample::of(states)));
    }
    Ok(rows)
}

//! `cargo xtask mutants`: applies deliberate bugs, one at a time, to a copy of the workspace, and counts the
//! seeds that the simulator needs to find each.
//!
//! A simulator that finds no bugs proves nothing unless it is known to find existing ones.

mod routines;
mod runtime;
mod workflows;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace;

/// A deliberate bug: a piece of source text and its replacement.
struct Mutant {
    name: &'static str,
    file: &'static str,
    original: &'static str,
    mutated: &'static str,
}

impl Mutant {
    fn is_of_workflows(&self) -> bool {
        self.file.starts_with("dataflow-")
    }

    fn is_of_routines(&self) -> bool {
        self.file.starts_with("routines/")
    }

    /// Returns the number of seeds within which it must be found.
    fn seeds(&self) -> u32 {
        match (self.is_of_workflows(), self.is_of_routines()) {
            (true, _) => workflows::SEEDS,
            (_, true) => routines::SEEDS,
            _ => runtime::SEEDS,
        }
    }
}

const fn mutant(
    name: &'static str,
    file: &'static str,
    original: &'static str,
    mutated: &'static str,
) -> Mutant {
    Mutant { name, file, original, mutated }
}

/// The result of finding a bug.
struct Found {
    /// The number of seeds that were run.
    seeds: u64,
    /// The failure.
    what: String,
    /// The seed that has shown it.
    seed: u64,
}

/// Tries all mutants, or those with `only` in their names, and prints a table.
///
/// # Errors
/// If a mutant no longer fits the source, does not compile, or is not found; or if the seed that found it also fails
/// without it.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let copy = copy_workspace()?;
    let unchanged = unchanged(&copy)?;
    let chosen = all().filter(|mutant| only.is_none_or(|only| mutant.name.contains(only)));
    let mut survivors = Vec::new();
    println!("| bug | seeds until it is found | found by |\n|---|---|---|");
    for mutant in chosen {
        let found = find(&copy, mutant).with_context(|| format!("mutant {:?}", mutant.name))?;
        if let Some(Found { seeds, what, seed }) = found {
            let is_real = if mutant.is_of_routines() {
                simulate_batches(&copy)?.is_some()
            } else {
                fails(&unchanged, seed)?
            };
            ensure!(
                !is_real,
                "seed {seed} fails without {:?}, too: that is a bug of the real code",
                mutant.name
            );
            println!("| {} | {seeds} | {what} |", mutant.name);
        } else {
            println!("| {} | not within {} | |", mutant.name, mutant.seeds());
            survivors.push(mutant.name);
        }
    }
    ensure!(survivors.is_empty(), "these bugs were not found: {}", survivors.join(", "));
    Ok(())
}

/// Returns all bugs.
fn all() -> impl Iterator<Item = &'static Mutant> {
    runtime::MUTANTS.iter().chain(workflows::MUTANTS).chain(routines::MUTANTS)
}

/// Builds the simulator without a bug, and returns where it is. A seed counts for a bug only if it passes there.
fn unchanged(copy: &Path) -> Result<PathBuf> {
    let mut cargo = cargo(copy, "build");
    ensure!(cargo.status().context("cannot start cargo")?.success(), "the simulator could not be built");
    let kept = copy.join("target/unchanged");
    fs::copy(copy.join("target/debug/simulate"), &kept).context("the simulator could not be copied")?;
    Ok(kept)
}

/// Returns whether a seed fails.
fn fails(simulator: &Path, seed: u64) -> Result<bool> {
    let seed = seed.to_string();
    let output =
        Command::new(simulator).args(["--first", &seed, "--seeds", "1", "--json", "--terse"]).output();
    Ok(found(&output.context("cannot start the simulator")?)?.is_some())
}

/// Applies the bug, runs seeds until one fails, and reverts it. Returns how it was found.
fn find(copy: &Path, mutant: &Mutant) -> Result<Option<Found>> {
    let file = copy.join(mutant.file);
    let source = fs::read_to_string(&file)?;
    fs::write(&file, mutated(&source, mutant)?)?;
    let found = if mutant.is_of_routines() { simulate_batches(copy) } else { simulate(copy, mutant) };
    fs::write(&file, source)?;
    found
}

fn mutated(source: &str, mutant: &Mutant) -> Result<String> {
    let places = source.matches(mutant.original).count();
    ensure!(places == 1, "{}: the text to be changed is there {places} times, not once", mutant.file);
    Ok(source.replace(mutant.original, mutant.mutated))
}

fn simulate(copy: &Path, mutant: &Mutant) -> Result<Option<Found>> {
    let mut cargo = cargo(copy, "run");
    cargo.args(["--", "--seeds", &mutant.seeds().to_string(), "--json", "--terse"]);
    if mutant.is_of_workflows() {
        cargo.args(["--kind", workflows::KINDS]);
    }
    found(&cargo.stderr(Stdio::inherit()).output().context("cannot start cargo")?)
}

/// Runs the simulation of batches, which is a test: its panic has the seed and the violation.
fn simulate_batches(copy: &Path) -> Result<Option<Found>> {
    let mut cargo = cargo_in(copy);
    cargo.args(["test", "--quiet", "-p", "routines", "--lib", "--", "batch::simulation"]);
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let violation = text.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    let (seed, what) = violation.with_context(|| format!("the simulation has not run: {text}"))?;
    let seed = seed.parse()?;
    Ok(Some(Found { seeds: seed + 1, what: what.to_owned(), seed }))
}

/// Returns the command that builds or runs the simulator of the copy.
fn cargo(copy: &Path, verb: &str) -> Command {
    let mut cargo = cargo_in(copy);
    cargo.args([verb, "--quiet", "-p", "taskwork-simulation", "--bin", "simulate"]);
    cargo
}

fn cargo_in(copy: &Path) -> Command {
    let mut cargo = workspace::command("cargo");
    cargo.current_dir(copy);
    cargo.env("RUSTFLAGS", "--cap-lints=allow").env("CARGO_TARGET_DIR", copy.join("target"));
    cargo
}

/// Parses the output of the simulator; `None` if all seeds have passed.
fn found(output: &Output) -> Result<Option<Found>> {
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().find(|line| line.starts_with('{')) else {
        bail!("the simulator could not be built, or has no output: {}", output.status);
    };
    let tally: serde_json::Value = serde_json::from_str(line)?;
    let seeds = tally["seeds"].as_u64().context("the number of seeds is missing")?;
    let Some(what) = tally["broken"].as_str().map(str::to_owned) else { return Ok(None) };
    let seed = tally["failed"][0].as_u64().context("the failed seed is missing")?;
    Ok(Some(Found { seeds, what, seed }))
}

/// Copies the files that git tracks to a separate folder, which keeps its builds.
fn copy_workspace() -> Result<PathBuf> {
    let root = workspace::root();
    let copy = root.join("target/mutants");
    let listed = workspace::command("git").args(["ls-files", "-z"]).output().context("cannot start git")?;
    ensure!(listed.status.success(), "git ls-files: {}", listed.status);
    for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), copy.join(name));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        // Copies only changed files, so that only those are rebuilt.
        let content = fs::read(&from).with_context(|| format!("cannot read {name}"))?;
        if fs::read(&to).ok().as_ref() != Some(&content) {
            fs::write(&to, content)?;
        }
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_applies_to_the_source() {
        for mutant in all() {
            let source = fs::read_to_string(workspace::root().join(mutant.file)).unwrap();
            assert_ne!(mutated(&source, mutant).unwrap(), source, "{}", mutant.name);
        }
    }
}

//! The cost of the ledger: without losses, and when nodes are killed.
//!
//! The number of measurements of each line, for a given number of rounds:
//!
//! | line | measurements |
//! |---|---|
//! | with ÷ without | twice in each round |
//! | one worker with `--state` ÷ without | once in each round |
//! | nodes killed ([`losses`]) | once in each round |
//!
//! The job in which nodes are killed takes about [`losses::job_s`]. Clusters of hundreds of nodes are
//! measured by the simulator, also with `cargo xtask bench ledger`.

pub mod compared;
pub mod kept;
pub mod losses;

use anyhow::Result;

use crate::row::Row;

/// Runs the measurements without losses.
///
/// # Errors
/// If a result is wrong.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = compared::run(rounds)?;
    rows.extend(kept::run(rounds)?);
    Ok(rows)
}

/// Prints the progress of a long measurement, and the figure of this round, so that rounds with other load on
/// the machine can be recognised.
fn progress(what: &str, round: usize, rounds: usize, figure: f64) {
    eprintln!("  {what}: {} of {rounds}: {figure:.3}", round + 1);
}

//! What the ledger costs: while nothing is lost, and when nodes are killed.
//!
//! How often each line is measured, for a given number of rounds:
//!
//! | line | how often |
//! |---|---|
//! | with ÷ without, and steals | twice in each round |
//! | one worker with `--state` ÷ without | once in each round |
//! | nodes killed ([`losses`]) | once in each round |
//!
//! The job in which nodes are killed takes about [`losses::job_s`]. How a cluster of hundreds of nodes fares
//! is measured by the simulator, with `cargo xtask bench ledger` as well.

pub mod compared;
pub mod kept;
pub mod losses;

use anyhow::Result;

use crate::row::Row;

/// Runs the measurements in which nothing is lost.
///
/// # Errors
/// If an answer is wrong.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = compared::run(rounds)?;
    rows.extend(kept::run(rounds)?);
    Ok(rows)
}

/// Says how far a long measurement has come, and the figure of this round, so that one in which the machine was
/// busy with something else can be told.
fn progress(what: &str, round: usize, rounds: usize, figure: f64) {
    eprintln!("  {what}: {} of {rounds}: {figure:.3}", round + 1);
}

//! The cost of written tasks: in a directory without losses, and on a cluster when nodes are killed.
//!
//! The number of measurements of each line, for a given number of rounds:
//!
//! | line | measurements |
//! |---|---|
//! | one worker with `--state` ÷ without | once in each round |
//! | nodes killed ([`losses`]) | once in each round |
//!
//! The job in which nodes are killed takes about [`losses::job_s`]. Clusters of hundreds of nodes are
//! measured by the simulator, also with `cargo xtask bench ledger`.

pub mod kept;
pub mod losses;

/// Prints the progress of a long measurement, and the figure of this round, so that rounds with other load on
/// the machine can be recognised.
fn progress(what: &str, round: usize, rounds: usize, figure: f64) {
    eprintln!("  {what}: {} of {rounds}: {figure:.3}", round + 1);
}

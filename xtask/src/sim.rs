//! `cargo xtask sim`: builds the simulator and runs it.

use anyhow::Result;

use crate::step::{self, Step};

/// Passes all arguments to the simulator.
///
/// # Errors
/// If it cannot be built, or a seed has failed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let cargo = ["run", "--release", "--quiet", "-p", "taskwork-simulation", "--bin", "simulate", "--"];
    let arguments = cargo.into_iter().chain(arguments.iter().map(String::as_str));
    step::run_chain(&[Step::new("simulation", "cargo", arguments)])
}

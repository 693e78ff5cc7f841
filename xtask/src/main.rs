//! The project's own commands.
//!
//! | command | does |
//! |---|---|
//! | `cargo xtask test` | everything that must pass: unit, property and scenario tests, published answers, examples in the docs |
//! | `cargo xtask check` | formatting, lints, docs, dependencies |
//! | `cargo xtask fix` | formats, and mends what clippy can mend |

mod data;
mod deny;
mod steps;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::steps::{Step, Steps};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every test, and install what they need.
    Test,
    /// Check formatting, lints, docs and dependencies.
    Check,
    /// Format, and mend what clippy can mend.
    Fix,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let mut steps = Steps::default();
    match command {
        Command::Test => {
            let data = data::folder()?;
            let with_data = |step: Step| step.env("TASKWORK_DATA", &data);
            steps.run(with_data(Step::cargo(["test", "--workspace", "--all-targets"])))?;
            steps.run(with_data(Step::cargo(["test", "--workspace", "--doc"])))?;
        }
        Command::Check => {
            steps.run(Step::cargo(["fmt", "--all", "--check"]))?;
            steps.run(Step::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
            steps.run(Step::cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
            steps.run(deny::step(&mut Steps::default())?)?;
        }
        Command::Fix => {
            steps.run(Step::cargo(["fmt", "--all"]))?;
            let mend = ["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"];
            steps.run(Step::cargo(mend))?;
            steps.run(Step::cargo(["fmt", "--all"]))?;
        }
    }
    steps.print_table();
    Ok(())
}

//! The project's own commands: `cargo xtask test`, `check`, `fix`, `sim`, `fuzz`, `mutants`, `bench`,
//! `chart`, `package` and `release`.

mod axe;
mod bench;
mod chart;
mod check;
mod data;
mod failures;
mod fix;
mod fuzz;
mod install;
mod kubernetes;
#[cfg(test)]
mod manifests;
mod monitoring;
mod mutants;
mod package;
mod release;
mod schemas;
#[cfg(test)]
mod scripts;
mod sim;
mod step;
mod test;
#[cfg(test)]
mod units;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test that must pass, and install the packages that they need
    Test(test::Arguments),
    /// Check formatting, lints, documentation and dependencies; changes no file of the project
    Check,
    /// Apply the fixes that clippy and rustfmt make automatically
    Fix,
    /// Simulate clusters with all kinds of faults; see `cargo xtask sim --help`
    #[command(disable_help_flag = true)]
    Sim {
        /// The arguments of the simulator.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Feed arbitrary input to every parser, for a while each (requires a nightly toolchain)
    Fuzz {
        /// How long to run each target, in seconds
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Only this target
        only: Option<String>,
    },
    /// Put deliberate bugs into a copy of the workspace, and count the seeds that the simulator needs to find
    /// each
    Mutants {
        /// Only bugs with this text in their names
        only: Option<String>,
    },
    /// Run benchmarks
    Bench(bench::Bench),
    /// Generate the Helm chart from the manifests for Kubernetes
    Chart,
    /// Package the public crates, and build and test the packages without the rest of the repository
    Package,
    /// Build the artefacts for users from a commit: static programs, packages, checksums
    Release(release::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Check => check::run(),
        Command::Fix => fix::run(),
        Command::Sim { arguments } => sim::run(&arguments),
        Command::Fuzz { seconds, only } => fuzz::run(seconds, only.as_deref()),
        Command::Mutants { only } => mutants::run(only.as_deref()),
        Command::Chart => chart::run(),
        Command::Package => package::run(),
        Command::Release(arguments) => release::run(&arguments),
        Command::Bench(bench) => bench::run(&bench),
    };
    // Printed instead of returned: with RUST_BACKTRACE set, a backtrace of xtask would bury the one line that
    // matters.
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}

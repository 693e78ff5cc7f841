//! The operator's command, for the clusters of every program.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork::cli::operator::main()
}

//! The operator's command, for the clusters of every program.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_cli::operator::main()
}

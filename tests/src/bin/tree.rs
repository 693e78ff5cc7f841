//! The program `tree`, used by scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_cli::main::<taskwork_tests::tree::TreeProgram>()
}

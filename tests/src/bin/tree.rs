//! The program `tree`, for scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork::cli::main::<taskwork_tests::tree::TreeProgram>()
}

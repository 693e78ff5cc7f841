//! The program `uts`, for scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork::cli::main::<taskwork_tests::uts::Uts>()
}

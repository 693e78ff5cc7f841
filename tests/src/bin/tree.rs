//! The program `tree`, used by scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(taskwork_tests::tree::UNPROTECTED_NODE) {
        return taskwork_tests::tree::unprotected_node();
    }
    taskwork_cli::main::<taskwork_tests::tree::TreeProgram>()
}

//! The program `mesh`, used by scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_tests::mesh::main()
}

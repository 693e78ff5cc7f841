//! The program `grove`, used by scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_tests::grove::main()
}

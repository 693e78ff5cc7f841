//! The program `grove`, used by scenarios.

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_framework::cli::main::<taskwork_tests::grove::Grove>()
}

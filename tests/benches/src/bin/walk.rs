//! The program `walk`, which measures the loss of nodes.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_cli::main::<taskwork_benches::walk::WalkProgram>()
}

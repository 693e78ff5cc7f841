//! The program `walk`, with which the loss of nodes is measured.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_cli::main::<taskwork_benches::walk::WalkProgram>()
}

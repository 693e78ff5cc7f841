//! The operator's command for clusters of any program.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskwork_operator::main()
}

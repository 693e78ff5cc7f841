//! The command `flow`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_flow::main()
}

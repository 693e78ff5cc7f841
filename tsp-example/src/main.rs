//! The command `tsp`: solves the travelling salesman exactly.

use std::process::ExitCode;

fn main() -> ExitCode {
    tsp_example::command::main()
}

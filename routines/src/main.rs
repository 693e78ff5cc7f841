//! The command of the library of routines.

use std::process::ExitCode;

fn main() -> ExitCode {
    routines::main()
}

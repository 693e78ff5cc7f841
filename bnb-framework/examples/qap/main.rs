//! `qap`: solves the quadratic assignment problem.
//!
//! ```text
//! cargo run --release -p bnb-framework --example qap -- solve nug15.dat
//! ```

use std::process::ExitCode;

mod facilities;
mod read;

fn main() -> ExitCode {
    bnb_framework::cli::main::<facilities::Qap>()
}

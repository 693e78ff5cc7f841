//! `qap`: solves the quadratic assignment problem.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin qap -- solve nug15.dat
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::qap::main()
}

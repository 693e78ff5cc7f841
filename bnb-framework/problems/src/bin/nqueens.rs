//! `nqueens`: counts the ways to place n queens.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin nqueens -- solve 14
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::nqueens::main()
}

//! `flowshop`: solves the permutation flow shop. Jobs go through all machines in the same order; which order
//! finishes first?
//!
//! ```text
//! cargo run --release -p bnb-problems --bin flowshop -- solve ta001
//! cargo run --release -p bnb-problems --bin flowshop -- solve --jobs 20 --machines 5 --seed 873654221
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::flowshop::main()
}

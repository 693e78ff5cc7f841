//! `numerical-semigroups`: counts the numerical semigroups of a genus.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin numerical-semigroups -- solve 25
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::numerical_semigroups::main()
}

//! `uts`: counts the nodes of a published unbalanced tree.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin uts -- solve T1
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::uts::main()
}

//! `golomb`: finds a shortest Golomb ruler.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin golomb -- solve 10
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::golomb::main()
}

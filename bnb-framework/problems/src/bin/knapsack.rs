//! `knapsack`: which items are worth the most and still fit?
//!
//! ```text
//! cargo run --release -p bnb-problems --bin knapsack -- solve knapPI_1_100_1000_1
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::knapsack::main()
}

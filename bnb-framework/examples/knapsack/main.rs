//! `knapsack`: which items are worth the most and still fit?
//!
//! ```text
//! cargo run --release -p bnb-framework --example knapsack -- solve knapPI_1_100_1000_1
//! ```

use std::process::ExitCode;

mod items;

fn main() -> ExitCode {
    bnb_framework::cli::main::<items::Knapsack>()
}

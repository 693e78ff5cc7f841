//! `genes`: searches the regions of a genome for genes.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin genes -- solve --regions 3068
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::genes::main()
}

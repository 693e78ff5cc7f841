//! `mergesort`: sorts a list.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin mergesort -- solve --length 10000000 --splits 6
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::mergesort::main()
}

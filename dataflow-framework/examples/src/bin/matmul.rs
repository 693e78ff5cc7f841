//! `matmul`: multiplies two matrices of blocks.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin matmul -- solve --blocks 8 --size 200
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::matmul::main()
}

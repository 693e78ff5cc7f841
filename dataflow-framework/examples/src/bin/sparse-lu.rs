//! `sparse-lu`: factorises a sparse matrix of blocks.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin sparse-lu -- solve --blocks 32 --size 100
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::sparse_lu::main()
}

//! `increment`: increases a counter in a file.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin increment -- solve --times 100 --output counter.txt
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::increment::main()
}

//! `kmeans`: divides points among centres.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin kmeans -- solve --fragments 64 --points 10000
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::kmeans::main()
}

//! `hmmpfam`: searches for motifs in sequences by an external program.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin hmmpfam -- solve motifs.fasta sequences.fasta
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::hmmpfam::main()
}

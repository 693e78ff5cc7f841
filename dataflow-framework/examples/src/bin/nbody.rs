//! `nbody`: moves bodies that attract each other.
//!
//! ```text
//! cargo run --release -p dataflow-examples --bin nbody -- solve --domains 8 --bodies 500
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_examples::nbody::main()
}

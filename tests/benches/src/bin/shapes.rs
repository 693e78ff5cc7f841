//! `shapes`: workflows of tasks that do nothing, or wait, to measure the cost of calls.

use std::process::ExitCode;

fn main() -> ExitCode {
    dataflow_framework::cli::main::<taskwork_benches::dataflow::shapes::Shapes>()
}

//! The rate at which a byte object is fetched from a node, against plain streams of quinn.

mod fleet;
mod pair;
pub mod party;
mod plain;

use anyhow::Result;
use tokio::runtime::{self, Runtime};

use crate::row::Row;

const MIB: usize = 1 << 20;

/// Runs the benchmark.
///
/// # Errors
/// If a transfer fails.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = pair::run(rounds)?;
    for row in &rows {
        eprintln!("{row}");
    }
    // Each round takes a minute.
    rows.extend(fleet::run(rounds.min(3))?);
    Ok(rows)
}

fn current_thread() -> Result<Runtime> {
    Ok(runtime::Builder::new_current_thread().enable_all().build()?)
}

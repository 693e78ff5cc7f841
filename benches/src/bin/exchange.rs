//! `exchange`: owns or fetches a byte object, controlled by its standard input.

use anyhow::Result;

fn main() -> Result<()> {
    taskwork_benches::bulk::party::run()
}

//! `exchange`: has a byte object, or fetches one, as its input says.

use anyhow::Result;

fn main() -> Result<()> {
    taskwork_benches::bulk::party::run()
}

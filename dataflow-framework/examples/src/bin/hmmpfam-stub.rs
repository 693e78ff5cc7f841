//! `hmmpfam-stub`: stands in for an external program, and searches for texts instead of profiles.
//!
//! ```text
//! hmmpfam-stub [OPTIONS] DATABASE SEQUENCES
//! ```

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write as _},
};

use dataflow_examples::hmmpfam::search;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--fail") {
        return Err("it was to fail".into());
    }
    let [.., database, sequences] = &arguments[..] else {
        return Err("two files are needed: the database and the sequences".into());
    };
    let report = search(&fs::read_to_string(database)?, &fs::read_to_string(sequences)?);
    io::stdout().write_all(report.as_bytes())?;
    Ok(io::stdout().flush()?)
}

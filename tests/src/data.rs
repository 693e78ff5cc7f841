//! Published instances with their proven optima. They are not part of the project: `TASKWORK_DATA` names
//! their folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// A row of an index: a file and the length of its shortest tour.
#[derive(Debug, Clone)]
pub struct Known {
    /// The file.
    pub file: PathBuf,
    /// The length of a shortest tour.
    pub optimum: u64,
}

/// Returns the root of the workspace.
///
/// # Panics
/// Never: this crate is in the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace")
}

/// Returns the folder of published instances: `TASKWORK_DATA`, by default a folder next to the workspace.
/// Returns `None` if it does not exist.
///
/// # Panics
/// If it does not exist although `CI` is `true`: a skipped layer of tests is a failure there.
pub fn folder() -> Option<PathBuf> {
    let folder =
        env::var_os("TASKWORK_DATA").map_or_else(|| workspace().join("../shared/data"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    let message = format!("no published instances at {}: set TASKWORK_DATA", folder.display());
    assert!(env::var("CI").as_deref() != Ok("true"), "{message}");
    eprintln!("\nWARNING: {message}. THIS TEST IS LEFT OUT.\n");
    None
}

/// Returns the folder's symmetric instances of TSPLIB with at most this many cities.
///
/// # Errors
/// If the index cannot be read.
pub fn tsp_instances(folder: &Path, cities_max: usize) -> Result<Vec<Known>> {
    let index = fs::read_to_string(folder.join("INDEX.tsv")).context("reading the index of instances")?;
    let mut known = Vec::new();
    for row in index.lines() {
        let fields: Vec<&str> = row.split('\t').collect();
        if let [file, "tsp", optimum, ..] = fields.as_slice() {
            let digits: String = file.chars().filter(char::is_ascii_digit).collect();
            if digits.parse::<usize>().is_ok_and(|cities| cities <= cities_max) {
                known.push(Known { file: folder.join(file), optimum: optimum.parse()? });
            }
        }
    }
    ensure!(!known.is_empty(), "the index names no instance");
    Ok(known)
}

/// Returns the project's own instances.
///
/// # Errors
/// If their table cannot be read.
pub fn own_instances() -> Result<Vec<Known>> {
    let folder = workspace().join("tsp-example/instances");
    let table = fs::read_to_string(folder.join("optima.tsv")).context("reading the table of optima")?;
    let rows = table.lines().skip(1).map(|row| {
        let (file, optimum) = row.split_once('\t').context("a row of the table has two fields")?;
        Ok(Known { file: folder.join(file), optimum: optimum.parse()? })
    });
    rows.collect()
}

/// Returns whether the tests were asked for their long form, by `cargo xtask test --long`.
pub fn is_long() -> bool {
    env::var_os("TASKWORK_LONG").is_some()
}

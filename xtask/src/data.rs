//! Where the published instances lie that some tests are run on. They are no part of the project.

use std::{env, path::PathBuf};

use anyhow::{Result, bail};

use crate::steps::root;

/// The folder, from `TASKWORK_DATA` or beside the workspace. Tests on published instances are left out without it,
/// which is said loudly, and is an error where `CI` is `true`.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = env::var_os("TASKWORK_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let Ok(folder) = folder.canonicalize() else {
        let message = format!(
            "there is no folder of published instances at {}: set TASKWORK_DATA to one that has tsp/*.tsp",
            folder.display()
        );
        if env::var("CI").is_ok_and(|ci| ci == "true") {
            bail!(message);
        }
        eprintln!("\nWARNING: {message}. THE TESTS ON PUBLISHED INSTANCES ARE LEFT OUT.\n");
        return Ok(folder);
    };
    Ok(folder)
}

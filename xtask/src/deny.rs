//! `cargo deny`, installed if it is missing.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::steps::{Step, Steps};

/// The version that is installed where there is none.
const VERSION: &str = "0.20.2";

/// The check of the dependencies: what may be used, under which licences, from where.
pub(crate) fn step(installing: &mut Steps) -> Result<Step> {
    // Into cargo's own folder: another clone on the same machine finds it there.
    if !is_installed() {
        installing.run(Step::cargo(["install", "cargo-deny", "--locked", "--version", VERSION]))?;
    }
    Ok(Step::cargo(["deny", "--all-features", "check", "bans", "licenses", "sources"]))
}

fn is_installed() -> bool {
    let asked = Command::new("cargo")
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

//! Installs axe-core, which checks the accessibility of web pages. Tests of the dashboard's pages run it in a
//! browser; no build depends on it.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::workspace;

/// A package of `PyPI` that has axe-core in it, with its version: that of axe-core is 4.12.1.
const PACKAGE: &str = "axe-playwright-python==0.1.8";

/// The Debian package with pip, which installs it.
pub(crate) const PACKAGES: &[&str] = &["python3-pip"];

/// The installation folder in the workspace, and the script in it.
const PLACE: &str = "target/axe";
const SCRIPT: &str = "axe_playwright_python/axe.min.js";

/// The variable with the path of the script, for the tests.
pub(crate) const VARIABLE: &str = "TASKWORK_AXE";

/// Returns where the script is, or will be.
pub(crate) fn script() -> PathBuf {
    workspace::root().join(PLACE).join(SCRIPT)
}

/// Installs it if it is missing. If it is not available, such as without a network, the tests skip it with a warning.
///
/// # Errors
/// It is not available in CI.
pub(crate) fn prepare() -> Result<()> {
    if script().is_file() {
        return Ok(());
    }
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--target",
        PLACE,
        PACKAGE,
    ];
    let installed = workspace::command("python3").args(install).status();
    if !installed.is_ok_and(|status| status.success()) || !script().is_file() {
        let what =
            format!("{PACKAGE} cannot be installed: whether everybody can use the pages is NOT CHECKED");
        ensure!(!workspace::in_ci(), what);
        eprintln!("\n!!! WARNING: {what}");
    }
    Ok(())
}

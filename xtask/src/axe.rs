//! Brings axe-core, which finds out whether people with a keyboard, a screen reader or weak sight can use a page. Tests of
//! the dashboard's pages run it in a browser; it is part of nothing that is built.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::workspace;

/// A package of `PyPI` that has axe-core in it, with its version: that of axe-core is 4.12.1.
const PACKAGE: &str = "axe-playwright-python==0.1.8";

/// The Debian package with pip, by which that is installed.
pub(crate) const PACKAGES: &[&str] = &["python3-pip"];

/// Where it is installed, in the workspace, and the script there.
const PLACE: &str = "target/axe";
const SCRIPT: &str = "axe_playwright_python/axe.min.js";

/// The variable that tells the tests where the script is.
pub(crate) const VARIABLE: &str = "TASKWORK_AXE";

/// Returns where the script is, or will be.
pub(crate) fn script() -> PathBuf {
    workspace::root().join(PLACE).join(SCRIPT)
}

/// Installs it if it is not there. Where it cannot be had, such as without a network, the tests go without it, and say so.
///
/// # Errors
/// It cannot be had in CI.
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

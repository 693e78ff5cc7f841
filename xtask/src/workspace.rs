//! The location of the workspace, whether this is CI, and the environment of its commands.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Returns the folder with the root `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    // Read at run time first: two clones may share one build folder, and with it this program.
    let xtask = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut root = PathBuf::from(xtask);
    root.pop();
    root
}

/// Returns whether this runs in CI, where a skipped layer is a failure.
pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// Returns a command for `program` in the workspace root, with the environment of the user's shell.
///
/// `cargo run` sets variables that describe xtask's package. If they were passed on, build scripts that watch
/// them (such as ring's) would rerun at each change between `cargo xtask test` and `cargo test`.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(resolve(program));
    command.current_dir(root());
    for (name, _) in env::vars_os().filter(|(name, _)| describes_a_package(name)) {
        command.env_remove(name);
    }
    command
}

/// Returns the names of all integration tests.
///
/// # Errors
/// If cargo fails.
pub(crate) fn test_targets() -> Result<BTreeSet<String>> {
    let output = command("cargo").args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata prints no JSON")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    Ok(tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

/// Returns the cargo that runs xtask, so that `cargo +toolchain xtask` uses that toolchain throughout.
fn resolve(program: &str) -> OsString {
    match program {
        "cargo" => env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        other => other.into(),
    }
}

fn describes_a_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_")
        || matches!(
            &*name,
            "CARGO_MANIFEST_DIR"
                | "CARGO_MANIFEST_PATH"
                | "CARGO_CRATE_NAME"
                | "CARGO_BIN_NAME"
                | "CARGO_PRIMARY_PACKAGE"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_contains_workspace() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest in the root");
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn test_targets_contain_those_of_all_packages() {
        let targets = test_targets().expect("cargo knows the workspace");
        for name in ["integration", "scenarios", "seeds", "policy"] {
            assert!(targets.contains(name), "{targets:?}");
        }
    }

    #[test]
    fn only_package_variables_are_withheld() {
        assert!(describes_a_package(OsStr::new("CARGO_PKG_NAME")));
        assert!(describes_a_package(OsStr::new("CARGO_MANIFEST_DIR")));
        for kept in
            ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_INCREMENTAL", "CI", "RUSTFLAGS", "TASKWORK_DATA"]
        {
            assert!(!describes_a_package(OsStr::new(kept)), "{kept} must reach the tests");
        }
    }
}

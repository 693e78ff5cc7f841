//! The released programs, according to cargo.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// The packages with released programs.
const RELEASED: [&str; 6] =
    ["bnb-problems", "dataflow-examples", "dataflow-flow", "routines", "taskwork-operator", "tsp-example"];

/// The released features of these packages: all.
const FEATURES: &str = "cloud,health,man,s3,tls";

/// The program among them that replaces another one in tests.
const NOT_RELEASED: &str = "hmmpfam-stub";

/// The released part of a workspace.
#[derive(Debug)]
pub(super) struct Project {
    pub(super) version: String,
    /// Cargo's target folder.
    pub(super) target: PathBuf,
    pub(super) packages: Vec<Package>,
}

/// A package with released programs.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest: PathBuf,
    pub(super) programs: Vec<String>,
    /// Whether packages for distributions are made of it.
    pub(super) is_packaged: bool,
}

impl Project {
    /// Queries cargo about the workspace in a folder.
    ///
    /// # Errors
    /// If cargo fails, or its output is unexpected.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let arguments = ["metadata", "--format-version", "1", "--locked", "--no-deps"];
        let output = workspace::command("cargo").args(arguments).current_dir(source).output();
        let output = output.context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata prints no JSON")?;
        Self::parse(&metadata, |package| RELEASED.iter().any(|name| package["name"] == *name))
            .context("the output of cargo metadata is unexpected")
    }

    fn parse(metadata: &Value, is_released: impl Fn(&Value) -> bool) -> Option<Self> {
        let packages: Vec<_> =
            metadata["packages"].as_array()?.iter().filter(|package| is_released(package)).collect();
        Some(Self {
            version: packages.first()?["version"].as_str()?.to_owned(),
            target: metadata["target_directory"].as_str()?.into(),
            packages: packages.into_iter().map(Package::parse).collect::<Option<_>>()?,
        })
    }

    /// Returns the names of all programs.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().flat_map(|package| &package.programs).map(String::as_str)
    }

    /// Returns the arguments of `cargo build` for everything that is released.
    pub(super) fn selection(&self) -> Vec<&str> {
        let packages = RELEASED.iter().flat_map(|package| ["--package", package]);
        let programs = self.programs().flat_map(|program| ["--bin", program]);
        packages.chain(["--features", FEATURES]).chain(programs).collect()
    }
}

impl Package {
    fn parse(package: &Value) -> Option<Self> {
        let is_program = |target: &&Value| target["kind"][0] == "bin" && target["name"] != NOT_RELEASED;
        let programs = package["targets"].as_array()?.iter().filter(is_program);
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            manifest: package["manifest_path"].as_str()?.into(),
            programs: programs
                .map(|target| Some(target["name"].as_str()?.to_owned()))
                .collect::<Option<_>>()?,
            is_packaged: package["metadata"]["deb"].is_object(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_users_is_released() {
        let project = Project::read(&workspace::root()).unwrap();
        let released: Vec<_> = project.programs().collect();
        for program in ["flow", "kmeans", "routines", "taskwork", "tsp", "uts"] {
            assert!(released.contains(&program), "{program}");
        }
        assert!(!released.contains(&NOT_RELEASED));
        let selection = project.selection();
        assert!(selection.windows(2).any(|pair| pair == ["--bin", "tsp"]), "{selection:?}");
        let packaged = project.packages.iter().filter(|package| package.is_packaged);
        let packaged: Vec<_> = packaged.map(|package| package.name.as_str()).collect();
        assert_eq!(packaged, ["taskwork-operator", "tsp-example", "dataflow-flow", "routines"]);

        let output = workspace::command("cargo")
            .args(["metadata", "--format-version", "1", "--locked", "--no-deps"])
            .output()
            .unwrap();
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let members = metadata["workspace_default_members"].as_array().unwrap();
        let of_users = Project::parse(&metadata, |package| members.contains(&package["id"])).unwrap();
        for program in of_users.programs() {
            assert!(released.contains(&program), "{program} is not released");
        }
    }
}

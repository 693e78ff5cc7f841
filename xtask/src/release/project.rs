//! The project according to cargo: its programs, and the packages in them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::build::TRIPLE;
use crate::workspace;

/// The packages with released programs.
const RELEASED: [&str; 4] = ["bnb-problems", "dataflow-examples", "taskwork-operator", "tsp-example"];

/// The released features of these packages: all.
const FEATURES: &str = "cloud,health,man,tls";

/// The program among them that stands in for another one in tests.
const NOT_RELEASED: &str = "hmmpfam-stub";

/// A workspace, as cargo describes it.
#[derive(Debug)]
pub(crate) struct Project {
    /// Its version.
    pub(crate) version: String,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    /// The names of the programs that are released, sorted.
    pub(crate) programs: Vec<String>,
    /// All packages that are needed for anything, by cargo's ids.
    pub(crate) packages: BTreeMap<String, Package>,
}

/// A package.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Its licence, as an expression of SPDX.
    pub(crate) licence: Option<String>,
    pub(crate) authors: Vec<String>,
    /// The folder of its source.
    pub(crate) folder: PathBuf,
    /// Whether it is a part of the project.
    pub(crate) is_own: bool,
}

impl Project {
    /// Queries cargo about the workspace in a folder.
    ///
    /// # Errors
    /// If cargo fails, or its output is unexpected.
    pub(crate) fn read(source: &Path) -> Result<Self> {
        let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", TRIPLE];
        let output = workspace::command("cargo").args(arguments).current_dir(source).output();
        let output = output.context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let value = serde_json::from_slice(&output.stdout).context("cargo metadata prints no JSON")?;
        Self::parse(&value).context("the output of cargo metadata is unexpected")
    }

    pub(crate) fn parse(metadata: &Value) -> Option<Self> {
        let mut packages = BTreeMap::new();
        let mut programs = Vec::new();
        let mut version = None;
        for package in metadata["packages"].as_array()? {
            let parsed = Package::parse(package)?;
            if parsed.is_own && RELEASED.contains(&parsed.name.as_str()) {
                version = Some(parsed.version.clone());
                programs.extend(names_of_programs(package));
            }
            packages.insert(package["id"].as_str()?.to_owned(), parsed);
        }
        programs.sort();
        let target = metadata["target_directory"].as_str()?.into();
        Some(Self { version: version?, target, programs, packages })
    }

    /// Returns the arguments of `cargo build` for everything that is released.
    pub(crate) fn selection(&self) -> Vec<&str> {
        let packages = RELEASED.iter().flat_map(|package| ["--package", package]);
        let programs = self.programs.iter().flat_map(|program| ["--bin", program]);
        packages.chain(["--features", FEATURES]).chain(programs).collect()
    }
}

impl Package {
    fn parse(package: &Value) -> Option<Self> {
        let text = |name: &str| package[name].as_str().map(str::to_owned);
        let authors = package["authors"].as_array().into_iter().flatten();
        Some(Self {
            name: text("name")?,
            version: text("version")?,
            licence: text("license"),
            authors: authors.filter_map(Value::as_str).map(str::to_owned).collect(),
            folder: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
            is_own: package["source"].is_null(),
        })
    }
}

fn names_of_programs(package: &Value) -> Vec<String> {
    let targets = package["targets"].as_array().into_iter().flatten();
    let is_program = |target: &&Value| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
    };
    let names = targets.filter(is_program).filter_map(|target| target["name"].as_str());
    names.filter(|name| *name != NOT_RELEASED).map(str::to_owned).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a project with one program, and a package of others.
    pub(crate) fn small() -> Value {
        let own = json!({
            "id": "path+file:///p#tsp-example", "name": "tsp-example", "version": "0.1.0", "license": "MIT",
            "authors": [], "manifest_path": "/p/tsp-example/Cargo.toml", "source": null,
            "targets": [{"kind": ["lib"], "name": "tsp_example"}, {"kind": ["bin"], "name": "tsp"}],
        });
        let other = json!({
            "id": "registry#bytes@1.0.0", "name": "bytes", "version": "1.0.0", "license": "MIT",
            "authors": ["A"], "manifest_path": "/r/bytes-1.0.0/Cargo.toml", "source": "registry",
            "targets": [{"kind": ["bin"], "name": "not-ours"}],
        });
        json!({ "packages": [own, other], "target_directory": "/p/target" })
    }

    #[test]
    fn only_programs_of_project_are_released() {
        let project = Project::parse(&small()).unwrap();
        assert_eq!(project.programs, ["tsp"]);
        assert!(project.selection().ends_with(&[
            "--package",
            "tsp-example",
            "--features",
            FEATURES,
            "--bin",
            "tsp"
        ]));
        assert_eq!(project.packages["registry#bytes@1.0.0"].folder, Path::new("/r/bytes-1.0.0"));
    }

    #[test]
    fn incomplete_metadata_is_an_error() {
        for missing in ["packages", "target_directory"] {
            let mut metadata = small();
            metadata.as_object_mut().unwrap().remove(missing);
            assert!(Project::parse(&metadata).is_none(), "{missing}");
        }
    }

    #[test]
    fn workspace_releases_programs_without_stubs() {
        let project = Project::read(&workspace::root()).unwrap();
        for program in ["taskwork", "tsp", "uts", "kmeans"] {
            assert!(project.programs.iter().any(|name| name == program), "{program}");
        }
        assert!(!project.programs.iter().any(|name| name == NOT_RELEASED));
        assert!(project.packages.values().any(|package| package.name == "quinn" && !package.is_own));
    }
}

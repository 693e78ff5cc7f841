//! The tests that cover a path: those of its module, of its integration test, or of its scenario.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{build, with_threads};
use crate::{step::Step, workspace};

/// The package of the scenarios, which start the programs of all others.
const SCENARIOS: &str = "taskwork-tests";

/// Documents with programs, which are doc tests of the package of the scenarios.
const DOCUMENTS: [&str; 3] = ["README.md", "docs/tutorial.md", "docs/workflows.md"];

/// The arguments that select doc tests.
const DOC: &str = "--doc";

/// The steps that test some paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Covering {
    pub(super) steps: Vec<Step>,
    /// Whether the tests start servers or node processes.
    pub(super) start_processes: bool,
}

/// Returns the steps that test these paths, which are relative to the root of the workspace or to the current folder.
///
/// # Errors
/// If a path does not exist, or no test covers it.
pub(super) fn steps(paths: &[PathBuf]) -> Result<Covering> {
    let mut covering = Covering::default();
    for path in paths {
        let inside = inside_workspace(path)?;
        let (package, arguments) = target(&inside)?;
        if package == SCENARIOS && arguments != DOC {
            if !covering.start_processes {
                covering.steps.push(build());
            }
            covering.start_processes = true;
        }
        let step = Step::cargo("tests", &format!("test -p {package} {arguments}"));
        let step = with_threads(step);
        if !covering.steps.contains(&step) {
            covering.steps.push(step);
        }
    }
    Ok(covering)
}

/// Returns a path relative to the root of the workspace.
fn inside_workspace(path: &Path) -> Result<PathBuf> {
    let root = workspace::root();
    let place = if path.exists() { path.to_owned() } else { root.join(path) };
    let place = place.canonicalize().with_context(|| format!("{} does not exist", path.display()))?;
    let inside = place.strip_prefix(root.canonicalize()?);
    Ok(inside.with_context(|| format!("{} is not in this workspace", path.display()))?.to_owned())
}

/// Returns the package of a path, and the arguments of `cargo test` that select its tests.
fn target(inside: &Path) -> Result<(String, String)> {
    if DOCUMENTS.iter().any(|document| inside == Path::new(document)) {
        return Ok((SCENARIOS.to_owned(), DOC.to_owned()));
    }
    if inside.starts_with("docs/models") {
        return Ok((SCENARIOS.to_owned(), "--test scenarios models::".to_owned()));
    }
    let root = workspace::root();
    for folder in inside.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if let Some(package) = package_in(&root.join(folder)) {
            let below = inside.strip_prefix(folder).unwrap_or(Path::new(""));
            return Ok((package, arguments(&root.join(folder), below)));
        }
    }
    bail!("no test covers {}: tests/README.md lists behaviours and their tests", inside.display())
}

/// Returns the name of the package with its manifest in a folder.
fn package_in(folder: &Path) -> Option<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let (_, package) = manifest.split_once("[package]")?;
    let name = package.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim_matches('"').to_owned())
}

/// Returns the arguments that select the tests of a path within a package.
fn arguments(package: &Path, below: &Path) -> String {
    let names: Vec<_> =
        below.iter().map(|name| name.to_string_lossy().trim_end_matches(".rs").to_owned()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let is_file = below.extension().is_some();
    let unit = if package.join("src/lib.rs").is_file() { "--lib" } else { "--bins" };
    match names[..] {
        ["README.md"] => DOC.to_owned(),
        // A file in the root of a crate is one module; deeper ones are tested with their folder.
        ["src", "lib" | "main"] | ["src"] => unit.to_owned(),
        ["src", "bin", program] => format!("--bin {program}"),
        ["src", module] if is_file => format!("{unit} {}", module.trim_end_matches("_tests")),
        ["src", .., folder, _] if is_file => format!("{unit} {folder}::"),
        ["src", .., folder] => format!("{unit} {folder}::"),
        // A binary of tests is a file, or a folder with a `main.rs`.
        ["tests", binary] | ["tests", binary, "main"] => format!("--test {binary}"),
        ["tests", binary, module, ..] => format!("--test {binary} {module}::"),
        [binary] | [binary, "main"] if package.join(binary).join("main.rs").is_file() => {
            format!("--test {binary}")
        }
        [binary, module, ..] if package.join(binary).join("main.rs").is_file() => {
            format!("--test {binary} {module}::")
        }
        _ => "--all-targets".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_target(path: &str, package: &str, arguments: &str) {
        assert_eq!(target(Path::new(path)).unwrap(), (package.to_owned(), arguments.to_owned()), "{path}");
    }

    #[test]
    fn path_of_module_selects_tests_of_its_folder() {
        assert_target("taskwork/src/pool", "taskwork", "--lib pool::");
        assert_target("taskwork/src/pool/queue.rs", "taskwork", "--lib pool::");
        assert_target("taskwork/core/src/thief.rs", "taskwork-core", "--lib thief");
        assert_target("bnb-framework/src/state_tests.rs", "bnb-framework", "--lib state");
        assert_target("zk/src/lib.rs", "taskwork-zk", "--lib");
        assert_target("xtask/src/step.rs", "xtask", "--bins step");
        assert_target("taskwork", "taskwork", "--all-targets");
    }

    #[test]
    fn path_of_test_selects_its_binary_and_module() {
        assert_target("tests/scenarios/elastic.rs", "taskwork-tests", "--test scenarios elastic::");
        assert_target(
            "tests/scenarios/conformance/lost.rs",
            "taskwork-tests",
            "--test scenarios conformance::",
        );
        assert_target("tests/kubernetes/main.rs", "taskwork-tests", "--test kubernetes");
        assert_target("taskwork/tests/integration/spawn.rs", "taskwork", "--test integration spawn::");
        assert_target("tests/simulation/tests/seeds.rs", "taskwork-simulation", "--test seeds");
    }

    #[test]
    fn document_with_programs_selects_doc_tests() {
        assert_target("docs/tutorial.md", "taskwork-tests", DOC);
        assert_target("bnb-framework/README.md", "bnb-framework", DOC);
    }

    #[test]
    fn path_without_tests_is_refused_with_remedy() {
        let error = target(Path::new("docs/cluster.md")).unwrap_err().to_string();
        assert!(error.contains("tests/README.md"), "{error}");
    }
}

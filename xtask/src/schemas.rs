//! Checks the manifests for Kubernetes against the schemas of several of its versions, strictly: a field that is
//! mistyped is an error, and not passed over as a server would.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{step::Step, workspace};

/// The program that has the schemas, a package of `PyPI`, with its version.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";

/// The Debian package with pip, by which that is installed.
pub(crate) const PACKAGES: &[&str] = &["python3-pip"];

/// The versions of Kubernetes: an old one that is still met, and newer ones.
const VERSIONS: [&str; 3] = ["1.28", "1.31", "1.35"];

const KUBERNETES: &str = "deploy/kubernetes";

/// The folders of manifests, as users give them to kubectl.
const FOLDERS: [&str; 5] = ["base", "overlays/dev", "overlays/production", "overlays/spot", "zookeeper"];

/// Where the validator is installed and the manifests are written, in the workspace.
const PLACE: &str = "target/manifests";

/// Returns the steps; none, with a word about it, where pip is missing.
///
/// Debian's kubectl is too old for the overlays, so where there is no newer one only what they are made of is checked.
///
/// # Errors
/// The manifests cannot be made, or pip is missing in CI.
pub(crate) fn steps() -> Result<Vec<Step>> {
    if !succeeds(Command::new("python3").args(["-m", "pip", "--version"])) {
        let what = "there is no pip: the manifests for Kubernetes are not checked";
        ensure!(!workspace::in_ci(), what);
        eprintln!("warning: {what}");
        return Ok(Vec::new());
    }
    let overlay = workspace::root().join(KUBERNETES).join("overlays/dev");
    let files = if succeeds(Command::new("kubectl").arg("kustomize").arg(overlay)) {
        render()?
    } else {
        eprintln!(
            "warning: there is no kubectl that is new enough: the overlays are not checked, but their bases are"
        );
        bases()?
    };
    let installed = workspace::root().join(PLACE).join("python/kubernetes_validate").is_dir();
    Ok(steps_for(&files, installed))
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns the manifests that need no kubectl to be read.
fn bases() -> Result<Vec<String>> {
    let mut files = Vec::new();
    for folder in ["base", "zookeeper"] {
        for entry in fs::read_dir(workspace::root().join(KUBERNETES).join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "kustomization.yaml" {
                files.push(format!("{KUBERNETES}/{folder}/{name}"));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Writes what kubectl makes of each folder, and returns the files.
fn render() -> Result<Vec<String>> {
    let place = workspace::root().join(PLACE);
    fs::create_dir_all(&place)?;
    let rendered = FOLDERS.iter().map(|folder| {
        let from: PathBuf = workspace::root().join(KUBERNETES).join(folder);
        let output = Command::new("kubectl").arg("kustomize").arg(from).output().context("kubectl")?;
        if !output.status.success() {
            bail!("kubectl kustomize {folder}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let name = format!("{}.yaml", folder.replace('/', "-"));
        fs::write(place.join(&name), output.stdout)?;
        Ok(format!("{PLACE}/{name}"))
    });
    rendered.collect()
}

fn steps_for(files: &[String], installed: bool) -> Vec<Step> {
    let python = format!("{PLACE}/python");
    let mut steps = Vec::new();
    if !installed {
        let words = ["-m", "pip", "install", "--quiet", "--target", &python, VALIDATOR];
        steps.push(Step::new("schemas", "python3", words));
    }
    steps.extend(VERSIONS.iter().map(|version| {
        let words = ["-m", "kubernetes_validate", "--strict", "--quiet", "-k", version];
        let words = words.into_iter().chain(files.iter().map(String::as_str));
        Step::new("manifests", "python3", words).env("PYTHONPATH", python.clone())
    }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_validator_is_installed_once_and_strict() {
        let files = ["a.yaml".to_owned()];
        let [install, steps @ ..] = &steps_for(&files, false)[..] else { panic!("there are several") };
        assert!(install.line().contains("pip install") && install.line().ends_with(VALIDATOR));
        assert_eq!(steps, steps_for(&files, true));
        assert_eq!(steps.len(), VERSIONS.len());
        assert!(
            steps.iter().all(|step| step.line().contains(" --strict ") && step.line().ends_with(" a.yaml"))
        );
    }

    #[test]
    fn every_folder_of_manifests_is_checked() {
        let kubernetes = workspace::root().join(KUBERNETES);
        let folders = |place: PathBuf, prefix: &str| {
            let entries = fs::read_dir(place).unwrap().map(Result::unwrap);
            let folders = entries.filter(|entry| entry.path().join("kustomization.yaml").is_file());
            folders
                .map(|entry| format!("{prefix}{}", entry.file_name().to_string_lossy()))
                .collect::<Vec<_>>()
        };
        let mut there = folders(kubernetes.clone(), "");
        there.extend(folders(kubernetes.join("overlays"), "overlays/"));
        there.sort();
        assert_eq!(there, FOLDERS);
    }
}

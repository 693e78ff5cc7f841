//! Runs the artefacts of a release as users do: a program of the archive, and the packages in a copy of this system.
//! The copy is an overlay in a mount namespace, so all changes are discarded.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{SUMS, build::printed, files::Files, origin::Origin};
use crate::install;

/// Makes the copy in the folder `$1`, and runs the script that is in `$2` there.
const COPY: &str = "\
set -eu
mount -t tmpfs tmpfs \"$1\"
mkdir \"$1/upper\" \"$1/work\" \"$1/root\"
mount -t overlay overlay -o \"lowerdir=/,upperdir=$1/upper,workdir=$1/work\" \"$1/root\"
mount --rbind /dev \"$1/root/dev\"
mount -t proc proc \"$1/root/proc\"
# So that it is seen whether the packages make the user.
for file in passwd group shadow gshadow; do
    if test -f \"$1/root/etc/$file\"; then sed -i '/^taskwork:/d' \"$1/root/etc/$file\"; fi
done
mkdir \"$1/root/trial\"
cp \"$2\"/* \"$1/root/trial\"
cd \"$1/root\"
exec chroot . sh -eu /trial/script
";

/// The script that runs in the copy: install, check, install again as in an upgrade, remove.
const SCRIPT: &str = include_str!("trial/packages.sh");

/// The maximum time for anything that is run here, in seconds.
const SOON_S: &str = "120";

/// Tries all artefacts in the folder of a release.
///
/// # Errors
/// The artefact that does not work.
pub(super) fn run(out: &Path, version: &str, origin: &Origin) -> Result<()> {
    install::debian_packages(&["lintian"])?;
    let out = &out.canonicalize().with_context(|| out.display().to_string())?;
    said(&["env", "-C", text(out)?, "sha256sum", "--check", "--quiet", "--strict", SUMS])?;
    archive(out, version, origin).context("the archive")?;
    packages(out).context("the packages")?;
    println!("what was made works: archive, packages");
    Ok(())
}

/// Unpacks the archive, and runs programs of it.
fn archive(out: &Path, version: &str, origin: &Origin) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder to unpack it")?;
    let packed = out.join(format!("taskwork-{version}-x86_64.tar.gz"));
    said(&["tar", "-xzf", text(&packed)?, "-C", text(folder.path())?])?;
    let top = folder.path().join(format!("taskwork-{version}"));
    for program in ["taskwork", "tsp"] {
        let shown = said(&[text(&top.join("bin").join(program))?, "--version"])?;
        ensure!(
            shown.contains(&origin.commit) && shown.contains(&origin.day()),
            "{program} --version prints no commit: {shown}"
        );
    }
    for file in ["share/man/man1/tsp-solve.1", "lib/systemd/system/taskwork-node@.service"] {
        ensure!(top.join(file).is_file(), "it has no {file}");
    }
    Ok(())
}

/// Checks the packages with lintian, and installs and removes them in the copy.
fn packages(out: &Path) -> Result<()> {
    let (given, copy) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut check = vec!["lintian", "--allow-root", "--fail-on", "error"];
    let all = Files::of_folder(out)?;
    let packages: Vec<_> =
        all.iter().filter(|(name, _)| Path::new(name).extension().is_some_and(|end| end == "deb")).collect();
    ensure!(packages.len() == 2, "there are {} packages instead of two", packages.len());
    let mut paths = Vec::new();
    for (name, package) in packages {
        let path = given.path().join(name);
        fs::write(&path, &package.bytes).with_context(|| format!("{} cannot be written", path.display()))?;
        paths.push(path);
    }
    for path in &paths {
        check.push(text(path)?);
    }
    said(&check)?;
    fs::write(given.path().join("script"), SCRIPT).context("the script cannot be written")?;
    // Processes of their own: all of them end with the first one.
    let unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", COPY, "sh"];
    said(&[&unshare[..], &[text(copy.path())?, text(given.path())?]].concat())
        .context("in a copy of this system, which only root can make")?;
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Returns the output of a command, which must succeed soon.
fn said(command: &[&str]) -> Result<String> {
    printed("timeout", &[&[SOON_S], command].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_output_is_returned_and_failure_reported() {
        assert_eq!(said(&["echo", "yes"]).unwrap(), "yes");
        let error = said(&["sh", "-c", "echo out; echo err >&2; exit 4"]).unwrap_err().to_string();
        assert!(error.ends_with("out\nerr"), "{error}");
        assert!(said(&["/no/such/program"]).is_err());
    }

    #[test]
    fn scripts_have_valid_shell_syntax() {
        for script in [COPY, SCRIPT] {
            said(&["sh", "-n", "-c", script]).unwrap();
        }
    }
}

//! Installs the Debian packages into a copy of this system, and removes them again. The copy is an overlay in a
//! mount namespace, so all changes are discarded.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::said;

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
const SCRIPT: &str = include_str!("packages.sh");

/// Checks the packages with lintian, and tries them.
///
/// # Errors
/// If lintian finds an error, or a package cannot be installed, does not work, or leaves something behind.
pub(super) fn run(out: &Path, logs: &Path) -> Result<()> {
    let packages = packages(out)?;
    said(Command::new("lintian").args(["--allow-root", "--fail-on", "error"]).args(&packages), logs)?;
    let (given, copy) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for package in &packages {
        let name = package.file_name().context("a package has a name")?;
        fs::copy(package, given.path().join(name)).with_context(|| package.display().to_string())?;
    }
    fs::write(given.path().join("script"), SCRIPT).context("the script")?;
    let mut unshare = Command::new("unshare");
    // Processes of their own: all of them end with the first one.
    unshare
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", COPY, "sh"])
        .arg(copy.path())
        .arg(given.path());
    said(&mut unshare, logs).context("in a copy of this system, which only root can make")?;
    Ok(())
}

fn packages(out: &Path) -> Result<Vec<PathBuf>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(out).with_context(|| out.display().to_string())? {
        packages.push(entry?.path());
    }
    packages.retain(|path| path.extension().is_some_and(|end| end == "deb"));
    packages.sort();
    ensure!(packages.len() == 2, "there are {} packages instead of two", packages.len());
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_valid_shell_syntax() {
        for script in [COPY, SCRIPT] {
            assert!(Command::new("sh").args(["-n", "-c", script]).status().unwrap().success(), "{script}");
        }
    }

    #[test]
    fn missing_package_is_an_error() {
        let out = tempfile::tempdir().unwrap();
        fs::write(out.path().join("taskwork_1_amd64.deb"), "").unwrap();
        fs::write(out.path().join("SHA256SUMS"), "").unwrap();
        assert!(packages(out.path()).unwrap_err().to_string().contains("1 packages instead of two"));
        fs::write(out.path().join("taskwork-tsp_1_amd64.deb"), "").unwrap();
        assert!(packages(out.path()).unwrap()[0].ends_with("taskwork-tsp_1_amd64.deb"));
    }
}

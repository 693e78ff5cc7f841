//! Runs the artefacts of a release as users do: the archive, the images in an otherwise empty root, the packages
//! in a copy of this system.

mod images;
mod packages;

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;

use super::{artefacts::SUMS, origin::Origin};
use crate::install;

/// The required Debian packages, in addition to ZooKeeper.
const PACKAGES: &[&str] = &["bubblewrap", "lintian"];

/// Maximum time for anything that is run here.
const SOON: Duration = Duration::from_secs(120);

/// The interval at which processes are checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Tries all artefacts in the folder of a release.
///
/// # Errors
/// The artefact that does not work.
pub(super) fn run(out: &Path, version: &str, origin: &Origin) -> Result<()> {
    install::debian_packages(&[zk_server::PACKAGES, PACKAGES].concat())?;
    let out = &out.canonicalize().with_context(|| out.display().to_string())?;
    let logs = tempfile::tempdir().context("a folder for what programs print")?;
    let mut sums = Command::new("sha256sum");
    said(sums.current_dir(out).args(["--check", "--quiet", "--strict", SUMS]), logs.path())?;
    archive(out, version, origin, logs.path()).context("the archive")?;
    let image = |program: &str| out.join(format!("{program}-{version}.oci"));
    images::solve(&image("tsp"), logs.path()).context("the image of tsp")?;
    images::ask_version(&image("taskwork"), version, logs.path()).context("the image of taskwork")?;
    packages::run(out, logs.path()).context("the packages")?;
    println!("what was made works: archive, images, packages");
    Ok(())
}

/// Unpacks the archive, and runs a program of it.
fn archive(out: &Path, version: &str, origin: &Origin, logs: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder to unpack it")?;
    let packed =
        File::open(out.join(format!("taskwork-{version}-x86_64.tar.gz"))).context("it is not there")?;
    tar::Archive::new(GzDecoder::new(packed)).unpack(folder.path()).context("it cannot be unpacked")?;
    let top = folder.path().join(format!("taskwork-{version}"));
    for program in ["taskwork", "tsp"] {
        let text = said(Command::new(top.join("bin").join(program)).arg("--version"), logs)?;
        let date = origin.timestamp();
        let date = date.split('T').next().unwrap_or_default();
        ensure!(
            text.contains(&origin.commit) && text.contains(date),
            "{program} --version tells no commit: {text}"
        );
    }
    for file in ["share/man/man1/tsp-solve.1", "lib/systemd/system/taskwork-node@.service"] {
        ensure!(top.join(file).is_file(), "it has no {file}");
    }
    Ok(())
}

/// Returns the output of a command. It must succeed within [`SOON`].
fn said(command: &mut Command, logs: &Path) -> Result<String> {
    let (out, err) = (logs.join("out"), logs.join("err"));
    let (status, output) = (finish(start(command, &out, &err)?, command)?, read(&out));
    ensure!(status.success(), "{command:?}: {status}\n{output}{}", read(&err));
    Ok(output)
}

/// Starts a command that writes into two files, without input.
fn start(command: &mut Command, out: &Path, err: &Path) -> Result<Child> {
    let file =
        |path: &Path| File::create(path).with_context(|| format!("{} cannot be written", path.display()));
    command.stdin(Stdio::null()).stdout(file(out)?).stderr(file(err)?);
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}

/// Waits for the end of a process, which is killed if it takes too long.
fn finish(mut process: Child, command: &Command) -> Result<ExitStatus> {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(status) = process.try_wait().context("a process cannot be asked for")? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            process.kill().and_then(|()| process.wait()).context("a process cannot be killed")?;
            bail!("{command:?} has not ended after {} s", SOON.as_secs());
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_output_is_returned_and_failure_reported() {
        let logs = tempfile::tempdir().unwrap();
        let shell = |script: &str| said(Command::new("sh").args(["-c", script]), logs.path());
        assert_eq!(shell("echo yes").unwrap(), "yes\n");
        let error = shell("echo out; echo err >&2; exit 4").unwrap_err().to_string();
        assert!(error.contains("exit status: 4\nout\nerr\n"), "{error}");
        assert!(said(&mut Command::new("/no/such/program"), logs.path()).is_err());
    }
}

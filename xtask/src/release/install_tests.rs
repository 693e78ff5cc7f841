//! Tests of `deploy/install.sh`, on a release with one program that is a script.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use super::{NAMESPACE, build::Machine};
use crate::{scripts, workspace};

/// Runs a line of shell in a folder; it must succeed.
fn shell(folder: &Path, line: &str) {
    let output = Command::new("sh").args(["-e", "-c", line]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a release with version 1 of a program, a key, and a file of allowed signers.
fn release() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("taskwork-1/bin")).unwrap();
    fs::create_dir_all(folder.path().join("taskwork-1/share/man/man1")).unwrap();
    fs::write(folder.path().join("taskwork-1/share/man/man1/tsp.1"), "page").unwrap();
    scripts::write(&folder.path().join("taskwork-1/bin/tsp"), "echo tsp 1");
    let machine = Machine::this().unwrap().name();
    shell(folder.path(), &format!("mkdir out; tar -czf out/taskwork-1-{machine}.tar.gz taskwork-1"));
    shell(folder.path(), "cd out; sha256sum -- * > ../SHA256SUMS; mv ../SHA256SUMS .");
    shell(
        folder.path(),
        "ssh-keygen -q -t ed25519 -N '' -f key; echo \"a@example.org $(cat key.pub)\" > signers",
    );
    folder
}

fn script() -> PathBuf {
    workspace::root().canonicalize().unwrap().join("deploy/install.sh")
}

/// Returns the command that runs the script on the release in a folder.
fn command(folder: &Path) -> Command {
    let mut install = Command::new("/bin/sh");
    install.arg(script()).args(["--from", "out", "--prefix", "prefix"]).current_dir(folder);
    install
}

/// Runs the script on the release in a folder.
fn install(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn install_replaces_running_program_and_keeps_other_files() {
    let folder = release();
    let bin = folder.path().join("prefix/bin");
    // By another process: a program that this one holds open for writing cannot be run.
    shell(folder.path(), "mkdir -p prefix/bin; cp /bin/sleep prefix/bin/tsp; touch prefix/bin/other");
    let mut running = Command::new(bin.join("tsp")).arg("60").spawn().unwrap();
    let output = install(folder.path(), &[]);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("installed taskwork-1 in prefix\nprefix/bin is not in PATH"),
        "{}",
        said(&output)
    );
    let shown = Command::new(bin.join("tsp")).output().unwrap();
    assert_eq!(shown.stdout, b"tsp 1\n");
    assert!(bin.join("other").exists());
    assert_eq!(fs::read_to_string(folder.path().join("prefix/share/man/man1/tsp.1")).unwrap(), "page");
    let left = fs::read_dir(folder.path().join("prefix")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| name == "bin" || name == "share"), "temporary files are left");
}

#[test]
fn install_refuses_changed_archive_and_installs_nothing() {
    let folder = release();
    shell(folder.path(), "for file in out/*.gz; do echo more >> $file; done");
    let output = install(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("tar.gz is wrong: get it again"), "{}", said(&output));
    assert!(fs::read_dir(folder.path().join("prefix")).unwrap().next().is_none());
}

#[test]
fn install_with_signers_requires_signature_of_known_key() {
    let folder = release();
    let signers = ["--signers", "signers"];
    let refused = |part: &str| {
        let output = install(folder.path(), &signers);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(part), "{}", said(&output));
    };
    refused("out has no signature, SHA256SUMS.sig");
    let sign = format!("ssh-keygen -q -Y sign -n {NAMESPACE} -f key out/SHA256SUMS");
    shell(folder.path(), &sign);
    let output = install(folder.path(), &signers);
    assert!(output.status.success(), "{}", said(&output));
    shell(folder.path(), "cp out/SHA256SUMS good; echo >> out/SHA256SUMS");
    refused("the signature of out is wrong");
    shell(folder.path(), "cp good out/SHA256SUMS; ssh-keygen -q -t ed25519 -N '' -f other");
    shell(folder.path(), &format!("rm out/*.sig; {}", sign.replace("-f key", "-f other")));
    refused("out is signed by a key that is not in signers");
}

#[test]
fn install_reports_wrong_usage() {
    let folder = release();
    for (arguments, message) in
        [(&["--from"][..], "--from needs a value"), (&["--force"], "no option --force")]
    {
        let output = install(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(message), "{}", said(&output));
    }
    let output = install(folder.path(), &["--from", "none"]);
    assert!(said(&output).contains("none has no SHA256SUMS"), "{}", said(&output));
}

#[test]
fn install_without_a_tool_names_it_and_installs_nothing() {
    for tool in ["find", "sha256sum"] {
        let folder = release();
        let others = "cat cp dirname find grep gzip id mkdir mktemp mv rm sha256sum tar uname";
        let link = format!(
            "mkdir tools; for tool in {others}; do ln -s \"$(command -v $tool)\" tools; done; rm tools/{tool}"
        );
        shell(folder.path(), &link);
        let output = command(folder.path()).env("PATH", folder.path().join("tools")).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(&format!("{tool} is missing: install it")), "{}", said(&output));
        assert!(!folder.path().join("prefix").exists());
    }
}

#[test]
fn install_fails_if_files_cannot_be_listed_or_there_are_none() {
    for (find, message) in [("exit 1", "cannot be listed"), ("exit 0", "contains no files")] {
        let folder = release();
        fs::create_dir(folder.path().join("tools")).unwrap();
        scripts::write(&folder.path().join("tools/find"), find);
        let path = format!("{}:{}", folder.path().join("tools").display(), std::env::var("PATH").unwrap());
        let output = command(folder.path()).env("PATH", path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(message), "{}", said(&output));
    }
}

#[test]
fn install_under_private_umask_creates_folders_for_all_users() {
    let folder = release();
    let line = format!("umask 077; exec sh {} --from out --prefix prefix", script().display());
    shell(folder.path(), &line);
    for name in ["prefix", "prefix/bin", "prefix/share/man"] {
        let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{name}");
    }
}

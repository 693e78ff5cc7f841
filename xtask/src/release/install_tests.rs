//! Tests of `deploy/install.sh`, on a release with one program that is a script.

use std::{
    fs,
    path::Path,
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

/// Runs the script on the release in a folder.
fn install(folder: &Path, arguments: &[&str]) -> Output {
    let script = workspace::root().canonicalize().unwrap().join("deploy/install.sh");
    let mut install = Command::new("sh");
    install.arg(script).args(["--from", "out", "--prefix", "prefix"]).args(arguments);
    install.current_dir(folder).output().unwrap()
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

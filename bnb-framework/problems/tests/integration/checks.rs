//! The command `check` of every program, and its output to a full disk.

use std::{
    fs::{self, File},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// The programs, with small instances as arguments or as the content of a file.
const PROGRAMS: [(&str, &str, &[&str], Option<&str>); 8] = [
    ("flowshop", env!("CARGO_BIN_EXE_flowshop"), &[], Some("3 2\n3 1 2\n1 4 2\n")),
    ("golomb", env!("CARGO_BIN_EXE_golomb"), &["5"], None),
    ("knapsack", env!("CARGO_BIN_EXE_knapsack"), &[], Some("3 50\n60 10\n100 20\n120 30\n")),
    ("maxclique", env!("CARGO_BIN_EXE_maxclique"), &[], Some("p edge 4 4\ne 1 2\ne 2 3\ne 3 1\ne 3 4\n")),
    ("nqueens", env!("CARGO_BIN_EXE_nqueens"), &["5"], None),
    ("numerical-semigroups", env!("CARGO_BIN_EXE_numerical-semigroups"), &["6"], None),
    ("qap", env!("CARGO_BIN_EXE_qap"), &[], Some("2\n0 3 5 0\n0 10\n1 0\n")),
    ("uts", env!("CARGO_BIN_EXE_uts"), &["T1", "--depth", "3"], None),
];

fn check(program: &str, arguments: &[&str], instance: Option<&str>, out: impl Into<Stdio>) -> Output {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(program);
    command.arg("check").args(arguments);
    if let Some(text) = instance {
        let file = folder.path().join("instance");
        fs::write(&file, text).unwrap();
        command.arg(file);
    }
    command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

#[test]
fn check_of_every_program_finds_no_mistake() {
    for (name, program, arguments, instance) in PROGRAMS {
        let output = check(program, arguments, instance, Stdio::piped());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.starts_with("no mistake was found"), "{name}: {output:?}");
    }
}

#[test]
fn check_with_weights_finds_no_mistake() {
    let graph = "p edge 4 4\nn 1 7\ne 1 2\ne 2 3\ne 3 1\ne 3 4\n";
    let output = check(env!("CARGO_BIN_EXE_maxclique"), &["--weighted"], Some(graph), Stdio::piped());
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn check_fails_if_its_output_cannot_be_written() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = check(env!("CARGO_BIN_EXE_nqueens"), &["5"], None, full);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the output is lost"), "{output:?}");
}

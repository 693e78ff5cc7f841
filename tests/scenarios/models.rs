//! The small models of the protocols in `docs/models`, checked in every reachable state, and the deliberate
//! bugs in them, each of which must be found. `cargo xtask test` installs the required tools: spin, and a C
//! compiler.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/models").join(name)
}

fn done(what: &str, output: &Output) -> String {
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    said
}

fn started(what: &str, command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{what} cannot be started ({error}); cargo xtask test installs it"))
}

/// Checks every state of a model, with weak fairness if it has a formula; returns the number of errors found
/// (the search ends at the first), and of states.
fn check(name: &str, bug: Option<&str>) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut spin = Command::new("spin");
    spin.current_dir(&folder).args(bug.map(|bug| format!("-D{bug}"))).arg("-a").arg(model(name));
    done("spin", &started("spin", &mut spin));
    // Without a formula only states are checked, and not cycles: that takes half the time.
    let formula = fs::read_to_string(model(name)).unwrap().contains("\nltl ");
    let (kind, search): (&[_], &[_]) =
        if formula { (&["-DNFAIR=3"], &["-a", "-f"]) } else { (&["-DSAFETY"], &[]) };
    let mut cc = Command::new("cc");
    cc.current_dir(&folder).args(["-O1", "-w", "-o", "pan", "pan.c"]).args(kind);
    done("cc", &started("cc", &mut cc));
    // All models have fewer states than this: a truncated search would report it.
    let mut pan = Command::new(folder.path().join("pan"));
    pan.current_dir(&folder).args(search).arg("-m1000000");
    let said = done("the search", &started("the search", &mut pan));
    assert!(!said.contains("max search depth too small"), "{said}");
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let errors = said.lines().find_map(|line| number(line.split_once("errors:")?.1));
    let states = said.lines().find_map(|line| number(line.split_once("states, stored")?.0));
    (errors.expect("it counts errors"), states.expect("it counts states"))
}

fn check_with_bugs(name: &str, bugs: &[&str]) {
    let (errors, states) = check(name, None);
    assert_eq!(errors, 0, "{name}");
    println!("{name}: {states} states");
    assert!(states > 500, "{name} has only {states} states");
    for bug in bugs {
        let (errors, _) = check(name, Some(bug));
        assert!(errors > 0, "{name} does not find {bug}");
    }
}

#[test]
fn accounting_model_ends_job_exactly_when_done() {
    check_with_bugs("accounting.pml", &["BUG_SPLIT", "BUG_TWICE", "BUG_FRESH", "BUG_BATCH"]);
}

#[test]
fn handover_model_keeps_one_owner() {
    check_with_bugs("handover.pml", &["BUG_FORGET", "BUG_WINDOW", "BUG_LEAVE", "BUG_REVOKE"]);
}

#[test]
fn ledger_model_keeps_the_whole_work() {
    let bugs = [
        "BUG_NOTRANSIT",
        "BUG_MEMBER",
        "BUG_FENCE",
        "BUG_EARLY",
        "BUG_VOID",
        "BUG_SILENT",
        "BUG_TWICE",
        "BUG_TAKEBACK",
        "BUG_LATE",
        "BUG_FORGET",
        "BUG_BOTH",
    ];
    check_with_bugs("ledger.pml", &bugs);
}

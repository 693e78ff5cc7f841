//! `solve --state DIR`: interrupted by Ctrl-C, by a kill, by its time limit, and continued; and what is
//! refused.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{CommandOutput, Running, SOON, program},
    tree::Tree,
};
use tempfile::TempDir;

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Begins to solve with a state, in a folder of the scenario.
fn begin(folder: &Path, name: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(name);
    command.arg("solve").args(arguments).arg("--state").arg(folder.join("state"));
    Running::begin(command, folder).unwrap()
}

fn solve(folder: &Path, name: &str, arguments: &[&str]) -> CommandOutput {
    begin(folder, &program(name).unwrap(), arguments).end().unwrap()
}

fn json(said: &CommandOutput) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

fn signal(name: &str, process: &Running) {
    let signal = format!("-{name}");
    assert!(Command::new("kill").args([&signal, &process.id().to_string()]).status().unwrap().success());
}

const DEPTH: &str = "14";
/// Some seconds of work.
const TREE: [&str; 8] = ["14", "--spin", "2000", "--workers", "1", "--json", "--log", "taskwork=info"];

fn assert_right(said: &CommandOutput) {
    let (states, largest) = Tree::sequential(DEPTH.parse().unwrap());
    let said = json(said);
    assert_eq!((&said["states"], &said["largest"]), (&states.into(), &largest.into()), "{said}");
    assert_eq!((&said["finished"], &said["suspended"]), (&true.into(), &false.into()), "{said}");
}

/// Waits until a node works, or the command has ended.
fn wait_for_work(process: &mut Running) {
    let deadline = Instant::now() + SOON;
    while !process.errors().contains("the node takes part") && !process.has_ended().unwrap() {
        assert!(Instant::now() < deadline, "no node works: {}", process.errors());
        thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn what_ctrl_c_interrupts_is_continued_without_repetition() {
    let folder = TempDir::new().unwrap();
    let (folder, tree) = (folder.path(), program("tree").unwrap());
    let (mut worked, mut rounds) = (0, 0);
    let last = loop {
        let mut process = begin(folder, &tree, &TREE);
        if rounds < 4 {
            wait_for_work(&mut process);
            signal("INT", &process);
        }
        let said = process.end().unwrap();
        rounds += 1;
        worked += json(&said)["figures"]["worked"].as_u64().unwrap();
        if said.code == 0 {
            break said;
        }
        assert_eq!((said.code, &json(&said)["suspended"]), (1, &true.into()), "{said:?}");
        assert!(
            said.err.contains("everything is kept in") && said.err.contains("the same command"),
            "{said:?}"
        );
    };
    assert!(rounds > 1, "it was interrupted");
    assert_right(&last);
    assert_eq!(json(&last)["states"], worked, "in {rounds} runs");
    assert_right(&solve(folder, "tree", &TREE));
}

#[test]
fn what_is_killed_is_continued() {
    let folder = TempDir::new().unwrap();
    let (folder, tree) = (folder.path(), program("tree").unwrap());
    for _ in 0..3 {
        let mut process = begin(folder, &tree, &TREE);
        wait_for_work(&mut process);
        if !process.has_ended().unwrap() {
            let second = solve(folder, "tree", &TREE);
            assert!(second.code == 0 || second.err.contains("in use by another process"), "{second:?}");
            signal("KILL", &process);
        }
        process.end().unwrap();
    }
    assert_right(&solve(folder, "tree", &TREE));
}

#[test]
fn a_search_of_many_evenings_finds_and_proves_what_one_long_search_does() {
    let folder = TempDir::new().unwrap();
    let search = ["11", "--json", "--time-limit", "0.3"];
    let mut evenings = 0;
    let proven = loop {
        let said = solve(folder.path(), "golomb", &search);
        let found = json(&said);
        evenings += 1;
        if said.code == 0 {
            break found;
        }
        assert_eq!((said.code, &found["end"], &found["suspended"]), (1, &"suspended".into(), &true.into()));
        assert!(said.err.contains("the same command goes on"), "{said:?}");
        assert!(evenings < 1000, "{said:?}");
    };
    assert_eq!(
        (&proven["length"], &proven["proven"], &proven["end"]),
        (&72.into(), &true.into(), &"proven".into())
    );
    assert!(evenings > 1, "{proven}");
    // Another limit is not another search; another target is.
    let said = solve(folder.path(), "golomb", &["11", "--json"]);
    assert_eq!((said.code, &json(&said)["length"]), (0, &72.into()));
    let said = solve(folder.path(), "golomb", &["11", "--target", "80"]);
    assert!(said.code == 2 && said.err.contains("holds another job of golomb"), "{said:?}");
}

#[test]
fn another_program_instance_or_build_is_refused() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    assert_eq!(solve(folder, "tree", &["5"]).code, 0);
    let refused = |said: CommandOutput, what: &str| {
        assert!(said.code == 2 && said.err.contains(what), "{said:?}");
        assert!(said.err.contains("another directory, or delete"), "{said:?}");
    };
    refused(solve(folder, "tree", &["6"]), "holds another job of tree");
    refused(solve(folder, "golomb", &["5"]), "holds a job of the program tree, and this is golomb");
    // The same program, in a file that differs by a byte.
    let (tree, other) = (program("tree").unwrap(), folder.join("other-tree"));
    fs::write(&other, [fs::read(&tree).unwrap(), vec![0]].concat()).unwrap();
    fs::set_permissions(&other, fs::metadata(&tree).unwrap().permissions()).unwrap();
    refused(begin(folder, &other, &["5"]).end().unwrap(), "another build of tree");
    let said = begin(folder, &other, &["5", "--any-build"]).end().unwrap();
    assert_eq!(said.code, 0, "{said:?}");

    fs::write(folder.join("state/tree.redb"), "dear diary").unwrap();
    // What is not ours is not to be deleted.
    let said = solve(folder, "tree", &["5"]);
    assert!(said.code == 2 && said.err.contains("is not a state of this program"), "{said:?}");
    assert!(said.err.contains("another directory, or move the file away"), "{said:?}");
}

//! `solve --state DIR`: interrupted by Ctrl-C, by a kill, by its time limit, and continued; and refused
//! states.

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
    gate::Gate,
    tree::Tree,
};
use tempfile::TempDir;

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Starts to solve with a state, in a folder of the scenario.
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
/// The number of interruptions of a search.
const ROUNDS: usize = 4;

/// The arguments of a search that does not end before the gate is open.
fn tree(gate: &Gate) -> [&str; 8] {
    [DEPTH, "--gate", gate.path(), "--workers", "1", "--json", "--log", "taskwork=info"]
}

fn assert_right(said: &CommandOutput) {
    let (states, largest) = Tree::sequential(DEPTH.parse().unwrap());
    let said = json(said);
    assert_eq!((&said["states"], &said["largest"]), (&states.into(), &largest.into()), "{said}");
    assert_eq!((&said["finished"], &said["suspended"]), (&true.into(), &false.into()), "{said}");
}

/// Waits until a node works.
fn wait_for_work(process: &mut Running) {
    let deadline = Instant::now() + SOON;
    while !process.errors().contains("the node takes part") {
        let ended = process.has_ended().unwrap();
        assert!(!ended && Instant::now() < deadline, "no node works: {}", process.errors());
        thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn interrupted_search_continues_without_repetition() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let gate = Gate::closed(folder.join("gate")).unwrap();
    let worked = |said: &CommandOutput| json(said)["figures"]["worked"].as_u64().unwrap();
    let mut before = 0;
    for _ in 0..ROUNDS {
        let mut process = begin(folder, &program("tree").unwrap(), &tree(&gate));
        wait_for_work(&mut process);
        signal("INT", &process);
        let said = process.end().unwrap();
        before += worked(&said);
        assert_eq!((said.code, &json(&said)["suspended"]), (1, &true.into()), "{said:?}");
        assert!(said.err.contains("the state is in") && said.err.contains("the same command"), "{said:?}");
    }
    gate.open().unwrap();
    let last = solve(folder, "tree", &tree(&gate));
    assert_right(&last);
    assert_eq!(json(&last)["states"], before + worked(&last), "nothing was repeated");
    assert_right(&solve(folder, "tree", &tree(&gate)));
}

#[test]
fn killed_search_is_continued() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let gate = Gate::closed(folder.join("gate")).unwrap();
    for _ in 0..ROUNDS {
        let mut process = begin(folder, &program("tree").unwrap(), &tree(&gate));
        wait_for_work(&mut process);
        let second = solve(folder, "tree", &tree(&gate));
        assert!(second.code != 0 && second.err.contains("in use by another process"), "{second:?}");
        signal("KILL", &process);
        process.end().unwrap();
    }
    gate.open().unwrap();
    assert_right(&solve(folder, "tree", &tree(&gate)));
}

#[test]
fn repeatedly_limited_search_proves_the_same_result() {
    let folder = TempDir::new().unwrap();
    let mut evenings = 0;
    let proven = loop {
        // No machine completes the search within the first limit.
        let limit = if evenings == 0 { "0.01" } else { "0.3" };
        let said = solve(folder.path(), "golomb", &["11", "--json", "--time-limit", limit]);
        let found = json(&said);
        evenings += 1;
        if said.code == 0 {
            break found;
        }
        assert_eq!((said.code, &found["end"], &found["suspended"]), (1, &"suspended".into(), &true.into()));
        assert!(said.err.contains("the same command continues"), "{said:?}");
        assert!(evenings < 1000, "{said:?}");
    };
    assert_eq!(
        (&proven["length"], &proven["proven"], &proven["end"]),
        (&72.into(), &true.into(), &"proven".into())
    );
    assert!(evenings > 1, "{proven}");
    // A search with another limit is the same search; one with another target is not.
    let said = solve(folder.path(), "golomb", &["11", "--json"]);
    assert_eq!((said.code, &json(&said)["length"]), (0, &72.into()));
    let said = solve(folder.path(), "golomb", &["11", "--target", "80"]);
    assert!(said.code == 2 && said.err.contains("holds another job of golomb"), "{said:?}");
}

#[test]
fn state_of_another_program_instance_or_build_is_refused() {
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
    // Foreign files must not be deleted.
    let said = solve(folder, "tree", &["5"]);
    assert!(said.code == 2 && said.err.contains("is not a state of this program"), "{said:?}");
    assert!(said.err.contains("another directory, or move the file away"), "{said:?}");
}

//! `solve --state DIR` of a workflow: interrupted by Ctrl-C or by a kill, and continued by the same command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{CommandOutput, Running, SOON, program},
    gate::Gate,
};
use tempfile::TempDir;

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The message of the program when no further calls start after an interruption.
const LEAVES: &str = "this node leaves, and is given no more calls";

/// The number of chains, and of the links of each.
const CHAINS: usize = 8;
const LINKS: u64 = 12;

/// The link at which the program is interrupted.
const MIDDLE: u64 = 6;

/// A workflow in a process, whose calls wait at a gate and add lines to a book.
struct Scene {
    folder: TempDir,
    gate: Gate,
    book: PathBuf,
    report: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let [book, report] = ["book", "report"].map(|name| folder.path().join(name));
        let gate = Gate::closed(folder.path().join("gate")).unwrap();
        gate.open_up_to(MIDDLE).unwrap();
        Self { folder, gate, book, report }
    }

    fn begin(&self) -> Running {
        let mut command = Command::new(program("mesh").unwrap());
        command.args(["solve", "--json", "--workers", "2", "--length", &LINKS.to_string()]);
        command.args(["--gate", self.gate.path()]);
        let files = [("--book", &self.book), ("--report", &self.report)];
        command.args(files.into_iter().flat_map(|(option, path)| [option.as_ref(), path.as_os_str()]));
        command.args(["--log", "info"]).arg("--state").arg(self.folder.path().join("state"));
        Running::begin(command, self.folder.path()).unwrap()
    }

    /// Starts the program, and waits until calls wait at the gate; by then the report is published.
    fn begin_until_the_middle(&self) -> Running {
        let mut process = self.begin();
        let (deadline, middle) = (Instant::now() + SOON, format!("begin {MIDDLE}"));
        while !self.lines().contains(&middle) {
            assert!(!process.has_ended().unwrap(), "it has ended: {}", process.errors());
            assert!(Instant::now() < deadline, "there is no line {middle:?}: {}", process.errors());
            thread::sleep(LOOK_EVERY);
        }
        fs::remove_file(&self.report).unwrap();
        process
    }

    /// Runs the rest, and checks that the result is that of the sequential run, and that run-once calls ran
    /// once.
    fn end(&self) {
        self.gate.open().unwrap();
        let said = self.begin().end().unwrap();
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(json(&said)["output"], sequential(self.folder.path())["output"]);
        let notes: Vec<_> = self.lines().into_iter().filter(|line| line.starts_with("note")).collect();
        assert_eq!(notes, ["note 1", "note 5", "note 9"], "each once, in order");
        assert!(!self.report.exists(), "it is published once");
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.book).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn json(said: &CommandOutput) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

fn sequential(folder: &Path) -> Value {
    let mut command = Command::new(program("mesh").unwrap());
    command.args(["solve", "--sequential", "--json", "--length", &LINKS.to_string()]);
    json(&Running::begin(command, folder).unwrap().end().unwrap())
}

fn wait_until_it_says(process: &Running, text: &str) {
    let deadline = Instant::now() + SOON;
    while !process.errors().contains(text) {
        assert!(Instant::now() < deadline, "it does not print {text:?}: {}", process.errors());
        thread::sleep(LOOK_EVERY);
    }
}

fn signal(name: &str, process: &Running) {
    let signal = format!("-{name}");
    assert!(Command::new("kill").args([&signal, &process.id().to_string()]).status().unwrap().success());
}

#[test]
fn interrupted_workflow_is_continued() {
    let scene = Scene::new();
    let process = scene.begin_until_the_middle();
    signal("INT", &process);
    // It completes its running calls, and starts no others.
    wait_until_it_says(&process, LEAVES);
    scene.gate.open_up_to(MIDDLE + 1).unwrap();
    let said = process.end().unwrap();
    assert_eq!((said.code, &json(&said)["suspended"]), (1, &true.into()), "{said:?}");
    assert!(said.err.contains("the state is in") && said.err.contains("the same command"), "{said:?}");
    scene.end();
    let links = scene.lines().iter().filter(|line| line.starts_with("link")).count();
    let all = CHAINS * usize::try_from(LINKS).unwrap();
    assert!(links <= all + CHAINS, "{links} links have run, of {all}");
}

#[test]
fn killed_workflow_is_continued() {
    let scene = Scene::new();
    let process = scene.begin_until_the_middle();
    signal("KILL", &process);
    process.end().unwrap();
    scene.end();
}

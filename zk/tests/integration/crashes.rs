//! Processes that are killed while they write, and processes that run out of space.
//!
//! The test starts itself again as the writing process, which writes numbered multis and prints each number
//! once the multi was acknowledged.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;
use zk::{CreateMode, MemoryStore, MemoryTree, Op, Store as _, durable};

use crate::durable::runtime;

/// The folder of the writing process.
const DIR: &str = "ZK_TEST_WRITES_TO";
/// The number of bytes of new data in each multi; 0 keeps the tree small.
const ADDS: &str = "ZK_TEST_ADDS_BYTES";
/// The text before each printed number.
const ACKNOWLEDGED: &str = "acknowledged ";
/// The text before the final error.
const FAILED: &str = "failed: ";
/// The number of znodes that each multi sets.
const FOLDERS: u64 = 5;

fn folder(k: u64) -> String {
    format!("/f{k}")
}

/// The bytes that multi `number` writes to the znode `k`: of several sizes, across pages.
fn data(number: u64, k: u64) -> Vec<u8> {
    let length = usize::try_from((number * 37 + k * 1009) % 9000).unwrap();
    let mut data = number.to_be_bytes().to_vec();
    data.resize(8 + length, u8::try_from(number % 251).unwrap());
    data
}

/// Not a test: the writing process.
#[test]
fn writer() {
    let Some(dir) = env::var_os(DIR) else { return };
    let adds: usize = env::var(ADDS).unwrap().parse().unwrap();
    let say = |what: String| {
        // The harness does not capture this, and each line is complete when the process is killed.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{what}").and_then(|()| out.flush()).unwrap();
    };
    runtime().block_on(async {
        let tree = match durable::open(Path::new(&dir)) {
            Ok(tree) => tree,
            Err(error) => return say(format!("{FAILED}{error}")),
        };
        let store = tree.connect();
        let mut number = 0;
        loop {
            let done =
                if number == 0 { prepare(&tree, &store).await } else { write(&store, number, adds).await };
            if let Err(error) = done {
                assert_eq!(store.exists("/").await, Err(error.clone()), "further requests are rejected");
                assert_eq!(tree.failure().as_ref(), Some(&error));
                return say(format!("{FAILED}{error}"));
            }
            if number == 0 {
                number = last(&store).await;
            } else {
                say(format!("{ACKNOWLEDGED}{number}"));
            }
            number += 1;
        }
    });
}

/// Creates missing znodes.
async fn prepare(tree: &MemoryTree, store: &MemoryStore) -> zk::Result<()> {
    if !tree.paths_below("/f0").is_empty() {
        return Ok(());
    }
    let create = |k| Op::Create { path: folder(k), data: data(0, k), mode: CreateMode::Persistent };
    store.multi((0..FOLDERS).map(create).collect()).await.map(drop)
}

async fn write(store: &MemoryStore, number: u64, adds: usize) -> zk::Result<()> {
    store.multi(multi(number, adds)).await.map(drop)
}

fn multi(number: u64, adds: usize) -> Vec<Op> {
    let set = |k| Op::Set { path: folder(k), data: data(number, k), version: None };
    let mut ops: Vec<Op> = (0..FOLDERS).map(set).collect();
    // Each multi creates a znode and deletes the previous one.
    let child = |number| format!("/f0/{number}");
    ops.push(Op::Create { path: child(number), data: vec![1; adds], mode: CreateMode::Persistent });
    if number > 1 && adds == 0 {
        ops.push(Op::Delete { path: child(number - 1), version: None });
    }
    ops
}

/// Returns the number of the last multi, and checks that it is whole and the last.
async fn last(store: &MemoryStore) -> u64 {
    let (first, _) = store.get(&folder(0)).await.unwrap();
    let number = u64::from_be_bytes(first[..8].try_into().unwrap());
    for k in 0..FOLDERS {
        let (found, stat) = store.get(&folder(k)).await.unwrap();
        assert_eq!(found, data(number, k), "znode {k} of multi {number}");
        assert_eq!(u64::try_from(stat.version).unwrap(), number);
    }
    let children = store.children(&folder(0)).await.unwrap();
    assert_eq!(children.contains(&number.to_string()), number > 0);
    assert!(!children.contains(&(number + 1).to_string()));
    number
}

/// Returns the number of the last multi in a folder that is not in use.
fn kept(dir: &Path) -> u64 {
    let tree = durable::open(dir).unwrap_or_else(|error| panic!("{error}"));
    runtime().block_on(async { last(&tree.connect()).await })
}

fn writes(command: &mut Command, dir: &Path, adds: usize) -> Child {
    command.env(DIR, dir).env(ADDS, adds.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("this program can be started")
}

const ARGUMENTS: [&str; 3] = ["crashes::writer", "--exact", "--nocapture"];

fn this_program() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(ARGUMENTS);
    command
}

fn number_in(line: &str) -> Option<u64> {
    // The harness prints the name of the test before the first line.
    let (_, number) = line.split_once(ACKNOWLEDGED)?;
    number.parse().ok()
}

#[test]
fn acknowledged_writes_survive_kill() {
    let dir = TempDir::new().unwrap();
    let mut before = 0;
    for round in 0..30_u64 {
        let mut child = writes(&mut this_program(), dir.path(), 0);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = before;
        // It is killed after some acknowledgements, in the middle of its next operation.
        let enough = before + round * 7 % 23;
        while acknowledged < enough {
            let line = lines.next().expect("it writes until it is killed").unwrap();
            acknowledged = number_in(&line).unwrap_or(acknowledged);
        }
        for _ in 0..(round * 7919) % 20_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that were printed before the kill.
        for line in lines.map_while(Result::ok) {
            acknowledged = number_in(&line).unwrap_or(acknowledged);
        }
        before = still_there(dir.path(), acknowledged);
    }
    assert!(before > 100, "{before}");
}

/// Runs a process until it has no more space, and returns its last number and its error.
fn until_full(command: &mut Command, dir: &Path) -> (u64, String) {
    let mut child = writes(command, dir, 20_000);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut acknowledged, mut failed) = (0, String::new());
    for line in lines.map_while(Result::ok) {
        acknowledged = number_in(&line).unwrap_or(acknowledged);
        if let Some((_, error)) = line.split_once(FAILED) {
            error.clone_into(&mut failed);
        }
    }
    assert!(child.wait().unwrap().success());
    (acknowledged, failed)
}

/// Returns whether an error names the file.
fn is_clear(error: &str) -> bool {
    error.contains("tree.redb") || error.contains("tree.new")
}

/// Checks that all acknowledged multis are in the folder, and at most one more, and returns the number of the
/// last.
fn still_there(dir: &Path, acknowledged: u64) -> u64 {
    if acknowledged == 0 {
        return 0;
    }
    let found = kept(dir);
    assert!((acknowledged..=acknowledged + 1).contains(&found), "{found}, acknowledged {acknowledged}");
    found
}

/// Returns a shell command that executes this program at its end.
fn shell(before: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before} exec \"$0\" \"$@\"")]);
    command.arg(env::current_exe().unwrap()).args(ARGUMENTS);
    command
}

#[test]
fn file_size_limit_fails_clearly_without_loss() {
    let dir = TempDir::new().unwrap();
    let mut acknowledged = 0;
    // In units of 512 bytes. The limit grows each time, sometimes only a little.
    for limit in [1, 2000, 6000, 6100, 12_000, 12_000] {
        // Without the trap the process would be killed by a signal.
        let limited = format!("trap '' XFSZ; ulimit -f {limit};");
        let (more, failed) = until_full(&mut shell(&limited), dir.path());
        assert!(is_clear(&failed) && failed.contains("File too large"), "{failed}");
        acknowledged = still_there(dir.path(), acknowledged.max(more));
    }
    assert!(acknowledged > 50, "{acknowledged}");
    assert_eq!(continues(dir.path()), acknowledged + 1, "with room");
}

/// Returns the number of the first multi of a process that has space.
fn continues(dir: &Path) -> u64 {
    let mut child = writes(&mut this_program(), dir, 0);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.find_map(|line| number_in(&line));
    child.kill().unwrap();
    child.wait().unwrap();
    first.expect("it continues")
}

/// The files of a process in a separate mount namespace, which are removed with it: the state is copied there
/// and back. The disk has about 4 MiB.
const ON_A_SMALL_DISK: &str = "set -e; mount -t tmpfs -o size=4m tmpfs /mnt; cp -a \"$STATE\"/. /mnt; ";

#[test]
fn full_disk_fails_clearly_without_loss() {
    let dir = TempDir::new().unwrap();
    let in_namespace = |script: String| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script]).arg(env::current_exe().unwrap()).args(ARGUMENTS);
        command.env("STATE", dir.path());
        command
    };
    let tried = in_namespace(ON_A_SMALL_DISK.to_owned()).output();
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        assert!(env::var("CI").as_deref() != Ok("true"), "no disk can be mounted: {tried:?}");
        eprintln!("\nWARNING: no disk can be mounted in a namespace. THIS TEST IS LEFT OUT.\n");
        return;
    }
    let mut acknowledged = 0;
    // The second time the disk is nearly full from the start.
    for _ in 0..2 {
        let script = format!("{ON_A_SMALL_DISK} \"$0\" \"$@\"; cp -a /mnt/. \"$STATE\"");
        let (more, failed) = until_full(&mut in_namespace(script), Path::new("/mnt"));
        assert!(is_clear(&failed) && failed.contains("No space left on device"), "{failed}");
        acknowledged = still_there(dir.path(), acknowledged.max(more));
        assert!(acknowledged > 10, "{acknowledged}");
    }
    assert_eq!(continues(dir.path()), acknowledged + 1, "with room");

    // The disk is full before the first multi.
    let script = "set -e; mount -t tmpfs -o size=32k tmpfs /mnt; \"$0\" \"$@\"";
    let (none, failed) = until_full(&mut in_namespace(script.to_owned()), Path::new("/mnt"));
    assert_eq!(none, 0);
    assert!(is_clear(&failed) && failed.contains("No space left on device"), "{failed}");
}

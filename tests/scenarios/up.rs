//! `taskwork up` and `taskwork down`: clusters on this machine and over ssh.

use std::{
    fs, iter,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{CommandOutput, Running, edited, program},
    tree::Tree,
};
use tempfile::TempDir;

/// The maximum time of a command: Java starts, and nodes leave.
const COMMAND_MAX: Duration = Duration::from_secs(150);

/// Takes the options of ssh, and runs the command in the home directory of the host.
const SSH: &str = r#"#!/bin/sh
while :; do
    case $1 in
    -o) shift 2 ;;
    -G) printf 'user root\nhostname 127.0.0.9\n'; exit ;;
    *) break ;;
    esac
done
home=$HOSTS/$1
[ -d "$home" ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
shift
HOME=$home exec sh -c "$*"
"#;

/// A home directory, and those of other hosts. At its end, no process of their clusters is left.
struct Homes(TempDir);

impl Homes {
    fn new(hosts: &[&str]) -> Self {
        let homes = Self(tempfile::tempdir().unwrap());
        for host in hosts {
            fs::create_dir_all(homes.path().join("hosts").join(host)).unwrap();
        }
        let folder = homes.path().join("bin");
        fs::create_dir(&folder).unwrap();
        let ssh = folder.join("ssh");
        // By another process, since a file that this one has open for writing cannot be run.
        let written =
            Command::new("sh").args(["-c", "printf %s \"$1\" > \"$0\""]).arg(&ssh).arg(SSH).status();
        assert!(written.unwrap().success());
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        homes
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        let paths = format!("{}:{}", self.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(name);
        command.args(arguments).env("PATH", paths).env("HOME", self.path());
        command.env("HOSTS", self.path().join("hosts"));
        Running::begin(command, self.path()).unwrap().end_within(COMMAND_MAX).unwrap()
    }

    fn taskwork(&self, arguments: &[&str]) -> CommandOutput {
        self.run(program("taskwork").unwrap().to_str().unwrap(), arguments)
    }

    /// Creates or changes a cluster of nodes of `tree`.
    fn up(&self, arguments: &[&str]) -> Value {
        self.up_with(&program("tree").unwrap(), arguments)
    }

    /// As [`up`](Self::up), with nodes of another program.
    fn up_with(&self, program: &Path, arguments: &[&str]) -> Value {
        let ran =
            self.taskwork(&[&["up", "--json", "--program", program.to_str().unwrap()], arguments].concat());
        assert!(ran.code == 0 && !ran.err.contains("wrong"), "no check found a problem: {ran:?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    }

    /// Runs a program with the environment of the cluster, and returns its JSON.
    fn json(&self, name: &str, arguments: &str) -> Value {
        let line = format!(
            ". ~/.local/share/taskwork/default/env; exec {} {arguments} --json",
            program(name).unwrap().display()
        );
        let ran = self.run("sh", &["-c", &line]);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    }

    /// Returns the processes that were started, by the files with their numbers.
    fn processes(&self) -> Vec<PathBuf> {
        let homes = fs::read_dir(self.path().join("hosts")).into_iter().flatten();
        let homes = homes.map(|home| home.unwrap().path()).chain([self.path().to_owned()]);
        let folders = homes.map(|home| home.join(".local/share/taskwork/default"));
        let within =
            |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path());
        let files = folders.flat_map(within).filter(|path| path.is_dir()).flat_map(within);
        files.filter(|file| file.extension().is_some_and(|end| end == "pid")).collect()
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        for file in self.processes() {
            let process = fs::read_to_string(file).unwrap_or_default();
            let _ = Command::new("kill").args(["-KILL", process.trim()]).status();
        }
    }
}

/// Returns a port below those that the kernel gives to connections, since nothing holds it until a server starts.
fn free_port() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports =
        iter::repeat_with(|| 12_000 + (std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000);
    let is_free = |port: &u32| TcpListener::bind(format!("127.0.0.1:{port}")).is_ok();
    ports.take(1_000).find(is_free).expect("a free port").to_string()
}

fn is_running(process: &Value) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn cluster_of_this_machine_is_created_changed_ended_and_continued() {
    let homes = Homes::new(&[]);
    let port = free_port();
    let created = homes.up(&["--nodes", "2", "--zk-port", &port, "--", "--workers", "1"]);
    let nodes = created["nodes"].as_array().unwrap().clone();
    assert_eq!((nodes.len(), &nodes[0]["workers"]), (2, &1.into()), "{created}");
    assert_eq!(homes.json("tree", "submit 12 --wait")["states"], Tree::sequential(12).0);
    let credentials = homes.path().join(".local/share/taskwork/default/credentials");
    assert_eq!(fs::metadata(credentials).unwrap().permissions().mode() & 0o77, 0);

    let again = homes.up(&["--nodes", "2", "--", "--workers", "1"]);
    assert_eq!(again["nodes"], created["nodes"], "running nodes stay");
    let changed = homes.up(&["--nodes", "1", "--", "--workers", "2"]);
    assert_eq!(changed["nodes"][0]["workers"], 2, "{changed}");
    assert!(!nodes.iter().any(|node| is_running(&node["pid"])), "{nodes:?}");
    assert_eq!(homes.json("taskwork", "nodes").as_array().unwrap().len(), 1);

    let other = homes.taskwork(&["up", "--program", "tree", "--cluster", "other", "--zk-port", &port]);
    assert!(other.code == 1 && other.err.contains("--zk-port"), "{other:?}");
    let wrong = homes.taskwork(&["up", "--program", "tree", "--", "--no-such-option"]);
    assert!(wrong.code == 1 && wrong.err.contains("--no-such-option"), "{wrong:?}");

    assert_eq!(homes.taskwork(&["down"]).code, 0);
    assert_eq!(homes.processes(), Vec::<PathBuf>::new());
    assert_eq!(homes.taskwork(&["down"]).code, 5);
    homes.up(&["--zk-port", &port]);
    assert_eq!(homes.json("taskwork", "jobs")[0]["state"], "done");
    assert_eq!(homes.taskwork(&["down"]).code, 0);
}

#[test]
fn another_build_replaces_the_nodes() {
    let homes = Homes::new(&[]);
    let port = free_port();
    let before = homes.up(&["--zk-port", &port, "--port", "0", "--", "--workers", "1"])["nodes"][0].clone();
    let edited = edited("tree", &homes.path().join("edited"), "a").unwrap();
    let after = homes.up_with(&edited, &[])["nodes"][0].clone();
    assert!(!is_running(&before["pid"]) && is_running(&after["pid"]), "{before} {after}");
    let nodes = homes.json("taskwork", "nodes");
    assert_eq!((nodes.as_array().unwrap().len(), &nodes[0]["workers"]), (1, &1.into()), "{nodes}");
    let done = homes.json(edited.to_str().unwrap(), "submit 12 --wait");
    assert_eq!(done["states"], Tree::sequential(12).0, "only nodes of the same build run it");
    assert_eq!(homes.taskwork(&["down"]).code, 0);
}

#[test]
fn machines_of_ssh_form_a_cluster_with_tls_until_they_leave() {
    let homes = Homes::new(&["h1", "user@h2"]);
    let port = free_port();
    let options = ["--zk-port", &port, "--port", "0", "--", "--workers", "1"];
    let missing = [&["up", "h1", "h3", "--program", "tree"], &options[..]].concat();
    let missing = homes.taskwork(&missing);
    assert!(missing.code == 1 && missing.err.contains("h3: "), "{missing:?}");

    let twice = [&["up", "h1=127.0.0.2", "h1b=127.0.0.3", "--program", "tree"], &options[..]].concat();
    std::os::unix::fs::symlink("h1", homes.path().join("hosts/h1b")).unwrap();
    let twice = homes.taskwork(&twice);
    assert!(twice.code == 1 && twice.err.contains("h1b: another name"), "{twice:?}");

    homes.up(&[&["h1=127.0.0.2"], &options[..]].concat());
    // Options are those of the last time.
    let created = homes.up(&["user@h2=127.0.0.3"]);
    assert_eq!(created["nodes"][1]["workers"], 1, "{created}");
    let machines: Vec<&Value> =
        created["nodes"].as_array().unwrap().iter().map(|node| &node["machine"]).collect();
    assert_eq!(machines, ["h1", "user@h2"]);
    assert_eq!(homes.json("tree", "submit 14 --wait")["states"], Tree::sequential(14).0);
    assert_eq!(homes.taskwork(&["down", "h1"]).code, 2, "it runs ZooKeeper");
    assert_eq!(homes.taskwork(&["down", "user@h2"]).code, 0);
    assert_eq!(homes.json("taskwork", "nodes").as_array().unwrap().len(), 1);
    assert_eq!(homes.json("tree", "submit 12 --wait")["states"], Tree::sequential(12).0);
    let local = homes.taskwork(&["up", "localhost", "--program", "tree"]);
    assert!(local.code == 2 && local.err.contains("localhost=ADDRESS"), "{local:?}");
    fs::rename(homes.path().join("hosts/h1"), homes.path().join("hosts/gone")).unwrap();
    assert_eq!(homes.taskwork(&["down"]).code, 1, "its first machine is gone");
    assert_eq!(homes.taskwork(&["down"]).code, 5);
    fs::rename(homes.path().join("hosts/gone"), homes.path().join("hosts/h1")).unwrap();
    homes.up(&["user@h2=127.0.0.3", "--zk-port", &free_port(), "--port", "0"]);
    assert_eq!(homes.taskwork(&["down"]).code, 0);
}

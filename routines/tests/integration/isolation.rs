//! Isolated routines: each attempt to leave the isolation is refused, and other code works as without it. The tests need
//! Linux 6.12 or later with Landlock.

use std::{
    collections::HashMap,
    fs,
    net::{TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use serde_json::{Value, json};
use tempfile::TempDir;

const OF_ROUTINES: &str = env!("CARGO_MANIFEST_DIR");

/// Executes a program without the system calls of Landlock.
const WITHOUT_LANDLOCK: &str = r#"
import ctypes, os, struct, sys

# Load the number of the call; 444 is `landlock_create_ruleset`, which fails with ENOSYS; allow others.
code = struct.pack("HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 444, 6, 0, 0, 0x50026, 6, 0, 0, 0x7FFF0000)
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A store with the routines of `probe.py`, a file of the user, and ports.
struct Place {
    folder: TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0";
        let (tcp, udp) = (TcpListener::bind(listen).unwrap(), UdpSocket::bind(listen).unwrap());
        let place = Self { folder, tcp, udp };
        fs::write(place.path("secret"), "a secret").unwrap();
        fs::create_dir(place.path("work")).unwrap();
        for (name, entry) in [("probe", "attempt"), ("other", "read"), ("works", "works"), ("steps", "steps")]
        {
            let text =
                format!("name = '{name}'\nversion = '1.0'\nruntime = 'python3'\nentry = 'probe:{entry}'\n");
            fs::create_dir(place.path(name)).unwrap();
            fs::write(place.path(name).join("routine.toml"), text).unwrap();
            fs::write(place.path(name).join("probe.py"), include_str!("probe.py")).unwrap();
            place.succeed(&["deploy", name]);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn prepared(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("ROUTINES_STORE", "store")
            .env("TMPDIR", self.path("work"));
        for name in
            ["TASKWORK_ZK", "ROUTINES_ISOLATION", "ROUTINES_READ", "ROUTINES_WRITE", "ROUTINES_NETWORK"]
        {
            command.env_remove(name);
        }
        command.env("SECRET", "a secret of the node");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.prepared(env!("CARGO_BIN_EXE_routines")).args(arguments).output().unwrap()
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of each attempt, null if it succeeds.
    fn attempt(&self, attempts: &[(&'static str, Value)], options: &[&str]) -> HashMap<&'static str, Value> {
        fs::write(self.path("attempts"), json!(attempts).to_string()).unwrap();
        let printed =
            self.succeed(&[&["map", "probe@1.0", "--json", "--arguments", "attempts"], options].concat());
        let printed: Value = serde_json::from_str(&printed).unwrap();
        let results = attempts.iter().zip(printed["results"].as_array().unwrap());
        results.map(|((name, _), result)| (*name, result["value"].clone())).collect()
    }

    /// Returns attempts on the secret, attempts without an argument, and those on the folder of the store and on ports.
    fn attempts<'a>(&self, with_secret: &[&'a str], without: &[&'a str]) -> Vec<(&'a str, Value)> {
        let secret = json!(self.path("secret"));
        let mut attempts: Vec<_> = with_secret.iter().map(|name| (*name, secret.clone())).collect();
        attempts.extend(without.iter().map(|name| (*name, Value::Null)));
        attempts.push(("list_folder", json!(self.path("store"))));
        let udp = json!(self.udp.local_addr().unwrap().port());
        attempts.extend([("connect", json!(self.tcp_port())), ("send_datagram", udp)]);
        attempts
    }

    fn tcp_port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }
}

/// The outcomes of all attempts with the default isolation.
static REFUSED: LazyLock<HashMap<&str, Value>> = LazyLock::new(|| {
    let place = Place::new();
    let with_secret =
        ["read_file", "write_file", "truncate_file", "remove_file", "link_file", "move_file", "change_owner"];
    let without = [
        "read_environment",
        "read_memory",
        "read_maps",
        "read_process",
        "list_runtimes",
        "other_runtime",
        "write_package",
        "unix_socket",
        "datagram_pair",
        "signal_node",
        "limit_node",
        "leave_session",
        "leave_group",
        "trace_node",
        "namespace",
        "mount",
        "device",
        "queue_of_calls",
    ];
    let outcomes = place.attempt(&place.attempts(&with_secret, &without), &[]);
    assert_eq!(fs::read_to_string(place.path("secret")).unwrap(), "a secret");
    outcomes
});

fn assert_refused(attempts: &[&str]) {
    for attempt in attempts {
        let error = &REFUSED[attempt];
        // A link across granted and other folders has an error of its own.
        let refused = [json!("EACCES"), json!("EPERM"), json!("EXDEV")];
        assert!(refused.contains(error), "{attempt}: {error}");
    }
}

#[test]
fn file_of_the_user_is_not_read() {
    assert_refused(&["read_file", "link_file", "move_file"]);
}

#[test]
fn error_of_refused_access_names_the_options() {
    let place = Place::new();
    let call = ["call", "works@1.0", &json!([place.path("secret")]).to_string()];
    for (isolation, is_named) in [("process", true), ("none", false)] {
        let output = place.run(&[&call[..], &["--isolation", isolation]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.contains("--read, --write and --network grant"), is_named, "{errors}");
    }
}

#[test]
fn store_is_not_listed() {
    assert_refused(&["list_folder"]);
}

#[test]
fn environment_and_memory_of_the_node_are_not_read() {
    assert_refused(&["read_environment", "read_memory", "read_maps", "read_process", "trace_node"]);
}

#[test]
fn folder_of_another_runtime_is_not_read() {
    assert_refused(&["list_runtimes", "other_runtime"]);
}

#[test]
fn file_outside_of_the_work_folder_is_not_changed() {
    assert_refused(&["write_file", "truncate_file", "remove_file", "change_owner", "write_package"]);
}

#[test]
fn network_and_sockets_of_services_are_not_reached() {
    assert_refused(&["connect", "send_datagram", "unix_socket", "datagram_pair"]);
}

#[test]
fn node_is_not_signalled_or_limited() {
    assert_refused(&["signal_node", "limit_node"]);
}

#[test]
fn group_that_is_killed_with_the_node_is_not_left() {
    assert_refused(&["leave_session", "leave_group"]);
}

#[test]
fn dangerous_parts_of_the_kernel_are_not_used() {
    assert_refused(&["namespace", "mount", "device", "queue_of_calls"]);
}

#[test]
fn attempts_succeed_without_isolation() {
    let place = Place::new();
    let with_secret = ["read_file", "write_file", "truncate_file", "link_file", "change_owner"];
    let without = [
        "read_environment",
        "read_maps",
        "list_runtimes",
        "unix_socket",
        "datagram_pair",
        "signal_node",
        "limit_node",
        "leave_session",
        "leave_group",
    ];
    let outcomes = place.attempt(&place.attempts(&with_secret, &without), &["--isolation", "none"]);
    assert!(outcomes.values().all(Value::is_null), "{outcomes:?}");
}

#[test]
fn granted_ports_and_paths_are_used_and_no_others() {
    let place = Place::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::create_dir(place.path("results")).unwrap();
    let (granted, file) = (place.tcp_port(), json!(place.path("results").join("new")));
    let options = ["--network", &granted.to_string(), "--read", "secret", "--write", "results"];
    let attempt = |attempts: &[_]| place.attempt(attempts, &options);
    let allowed =
        [("connect", json!(granted)), ("read_file", json!(place.path("secret"))), ("write_file", file)];
    let allowed = attempt(&allowed);
    assert!(allowed.values().all(Value::is_null), "{allowed:?}");
    let refused = [
        ("connect", json!(other)),
        ("connect_by_message", json!(granted)),
        ("send_datagram", json!(granted)),
        ("unix_socket", Value::Null),
        ("write_file", json!(place.path("secret"))),
    ];
    let refused = attempt(&refused);
    assert!(refused.values().all(|error| *error == "EACCES" || *error == "EPERM"), "{refused:?}");
    assert!(place.path("results").join("new").exists());
}

#[test]
fn store_within_a_granted_folder_is_refused() {
    let place = Place::new();
    for option in ["--read", "--write"] {
        let output = place.run(&["call", "works@1.0", option, "."]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && errors.contains("/store"), "{errors}");
    }
    let output = place.run(&["call", "works@1.0", "--read", "missing"]);
    assert!(
        output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("--read missing")
    );
}

#[test]
fn isolated_routine_uses_resources_files_threads_processes_and_checkpoints() {
    let place = Place::new();
    fs::write(place.path("table.csv"), "a,1").unwrap();
    place.succeed(&["put", "table", "table.csv"]);
    assert_eq!(place.succeed(&["call", "works@1.0", r#"[{"$resource": "table"}]"#]), "\"a,1\"\n");
    assert_eq!(
        place.succeed(&["call", "steps@1.0", "[1000]", "--state", "state", "--work", "new/work"]),
        "1000\n"
    );
    place.succeed(&["check", "steps"]);
}

#[test]
fn isolated_searches_in_each_language_count_solutions() {
    let place = Place::new();
    let example = |name: &str| format!("{OF_ROUTINES}/examples/{name}");
    for name in ["queens", "queens_javascript", "queens_java"] {
        place.succeed(&["deploy", &example(name)]);
    }
    let of = |routine: &str| {
        let found: Value = serde_json::from_str(&place.succeed(&["search", routine, "[8]"])).unwrap();
        found["counts"]["solutions"].clone()
    };
    for name in ["queens", "queens-javascript", "queens-java"] {
        assert_eq!(of(name), 92, "{name}");
    }
    fs::create_dir(place.path("c")).unwrap();
    fs::copy(example("queens_c/routine.toml"), place.path("c").join("routine.toml")).unwrap();
    compile(&example("queens_c/queens.c"), &place.path("c").join("queens"));
    place.succeed(&["deploy", "c"]);
    assert_eq!(of("queens-c"), 92);
}

fn compile(source: &str, to: &Path) {
    let include = format!("{OF_ROUTINES}/shims/c");
    let status = Command::new("cc").args(["-O2", "-I", &include, "-o"]).arg(to).arg(source).status();
    assert!(status.unwrap().success());
}

#[test]
fn conform_passes_for_isolated_programs() {
    let place = Place::new();
    let python =
        Command::new("python3").args(["-c", "import sys; print(sys.executable, sys.base_prefix)"]).output();
    let python = String::from_utf8(python.unwrap().stdout).unwrap();
    let (python, prefix) = python.trim().split_once(' ').unwrap();
    let shim = format!("{OF_ROUTINES}/shims/python/shim.py");
    let program = place.text("conform");
    compile(&format!("{OF_ROUTINES}/conform/conform.c"), Path::new(&program));
    let read = format!("{python},{prefix},{shim},{program}");
    let options = ["conform", "--json", "--isolation", "process", "--read", &read, "--"];
    for words in [&[python, "-I", &shim][..], &[&program]] {
        let all: Value = serde_json::from_str(&place.succeed(&[&options, words].concat())).unwrap();
        assert_eq!(all["failed"], 0, "{all:#}");
    }
    let options = ["conform", "--json", "--isolation", "process", "--only", "hello", "--", &program];
    let refused = place.run(&options);
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stdout).contains("cannot be started")
    );
}

#[test]
fn kernel_without_landlock_is_refused_by_nodes_and_noted_by_commands() {
    let place = Place::new();
    let run = |arguments: &[&str]| {
        let mut python = place.prepared("python3");
        python.args(["-c", WITHOUT_LANDLOCK, env!("CARGO_BIN_EXE_routines")]);
        let output = python.args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let node = ["node", "--zk", "127.0.0.1:1", "--insecure"];
    for arguments in [&node[..], &["call", "steps@1.0", "1", "--isolation", "process"]] {
        let (code, errors) = run(arguments);
        assert!(
            code == Some(2) && errors.contains("5.13") && errors.contains("--isolation none"),
            "{errors}"
        );
    }
    let (code, errors) = run(&["call", "steps@1.0", "1"]);
    assert!(code == Some(0) && errors.contains("note: ") && errors.contains("5.13"), "{errors}");
    let (code, errors) = run(&["call", "steps@1.0", "1", "--isolation", "none"]);
    assert!(code == Some(0) && !errors.contains("5.13"), "{errors}");
}

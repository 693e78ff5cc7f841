//! Routines on this machine: commands and a gateway without ZooKeeper.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{CommandOutput, Running, SOON, program};
use tempfile::TempDir;

use crate::routine_site::{client, write_routine};

/// The calls of a job, and those after which its process is killed: it has written its tasks several times.
const CALLS: u64 = 800;
const CALLS_BEFORE: usize = 500;

/// Notes each call.
const MODULE: &str = r#"
import os, time

def run(n):
    if n < 0:
        raise ValueError(f"{n} is negative")
    with open(os.path.join(FOLDER, "notes"), "a") as notes:
        notes.write(f"{n}\n")
    time.sleep(0.01)
    return n * n

def flaky(n):
    if n % 5 == 0 and not os.path.exists(os.path.join(FOLDER, "repaired")):
        while os.path.exists(os.path.join(FOLDER, "slow")):
            time.sleep(0.01)
        raise ValueError(f"{n} fails")
    return n

def held(name):
    while not os.path.exists(os.path.join(FOLDER, name)):
        time.sleep(0.01)

def area(x=1, y=1, scale=1.0):
    return x * y * scale
"#;

/// A folder with a store, in which the routines are deployed.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let notes = place.path().join("noted");
        fs::create_dir(&notes).unwrap();
        for (name, entry) in [("square", "run"), ("area", "area"), ("held", "held"), ("flaky", "flaky")] {
            let description = format!("name = '{name}'\nversion = '1.0'\nentry = 'module:{entry}'");
            write_routine(&place.path().join(name), &description, &notes, MODULE);
            assert_eq!(place.run(&["deploy", name]).code, 0);
        }
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn prepared(&self, mut command: Command) -> Command {
        let path = program("routines").unwrap();
        let path = format!("{}:{}", path.parent().unwrap().display(), std::env::var("PATH").unwrap());
        command.current_dir(self.path()).env_remove("TASKWORK_ZK").env("PATH", path);
        command.env("ROUTINES_STORE", self.path().join("store")).env("TMPDIR", self.path());
        command.env("ROUTINES_WRITE", self.path().join("noted"));
        command
    }

    fn begin(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(program("routines").unwrap());
        command.args(arguments);
        Running::begin(self.prepared(command), self.path()).unwrap()
    }

    /// Begins a job, and waits until it has made this many calls.
    fn begin_calls(&self, arguments: &[&str], calls: usize) -> Running {
        let mut running = self.begin(arguments);
        let deadline = Instant::now() + SOON;
        while self.notes().len() < calls {
            assert!(!running.has_ended().unwrap() && Instant::now() < deadline, "{}", running.errors());
            thread::sleep(Duration::from_millis(10));
        }
        running
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.begin(arguments).end().unwrap()
    }

    /// Runs a program with the Python client.
    pub(crate) fn python(&self, script: &str) {
        let ended = Running::begin(self.prepared(client(&[script])), self.path()).unwrap().end().unwrap();
        assert_eq!(ended.code, 0, "{}", ended.err);
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.err);
        serde_json::from_str(&ended.out).unwrap()
    }

    /// Returns the number of calls that were made more than once.
    fn repeated(&self) -> usize {
        self.notes().values().filter(|times| **times > 1).count()
    }

    /// Returns how often each call was made.
    fn notes(&self) -> BTreeMap<u64, u64> {
        let mut notes = BTreeMap::new();
        let text = fs::read_to_string(self.path().join("noted/notes")).unwrap_or_default();
        for number in text.lines().filter_map(|line| line.parse().ok()) {
            *notes.entry(number).or_default() += 1;
        }
        notes
    }
}

fn signal(running: &Running, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &running.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn commands_without_zookeeper_print_results_and_tracebacks() {
    let place = Place::new();
    let called = place.run(&["call", "square@1.0", "[12]"]);
    assert_eq!((called.code, &*called.out), (0, "144\n"), "{}", called.err);
    assert!(called.err.contains("without --zk"), "{}", called.err);
    let failed = place.run(&["call", "square@1.0", "-5"]);
    assert!(
        failed.code == 1 && failed.err.contains("in run") && failed.err.contains("-5 is negative"),
        "{failed:?}"
    );
    let mapped = place.json(&["map", "square", "--range", "2..40", "--workers", "3"]);
    assert_eq!((&mapped["routine"], &mapped["job"]), (&json!("square@1.0"), &json!("j-0000000000")));
    assert_eq!(mapped["results"].as_array().unwrap().len(), 38);
    assert_eq!(mapped["results"][37], json!({ "index": 37, "value": 39 * 39 }));
    assert_eq!(place.run(&["map", "cube@1.0", "--range", "2..4"]).code, 2);
    let both = place.run(&["call", "square@1.0", "1", "--state", "state", "--zk", "127.0.0.1:1"]);
    assert!(both.code == 2 && both.err.contains("--zk"), "{both:?}");
    // Temporary files are removed.
    let left: Vec<PathBuf> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("routines-")), "{left:?}");
}

#[test]
fn killed_map_continues_from_its_directory() {
    let place = Place::new();
    let calls = CALLS.to_string();
    let arguments =
        ["map", "square@1.0", "--range", &format!("0..{calls}"), "--state", "state", "--workers", "2"];
    let killed = place.begin_calls(&arguments, CALLS_BEFORE);
    let refused = place.run(&arguments);
    assert!(refused.code == 2 && refused.err.contains("in use by another process"), "{refused:?}");
    signal(&killed, "KILL");
    killed.end().unwrap();
    let made = place.notes().len();
    let ended = place.run(&arguments);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let expected: Vec<String> =
        (0..CALLS).map(|n| format!("{{\"index\":{n},\"value\":{}}}", n * n)).collect();
    assert_eq!(ended.out.lines().collect::<Vec<_>>(), expected);
    let repeated = place.repeated();
    assert!(repeated < made, "{repeated} of {made} calls were repeated");
    // A job that is over has its results, and another one starts.
    let notes = place.notes();
    assert_eq!(place.run(&arguments).out, ended.out);
    assert_eq!(place.notes(), notes);
    let other = place.run(&["map", "square@1.0", "--range", "0..3", "--state", "state"]);
    assert_eq!((other.code, other.out.lines().count()), (0, 3), "{}", other.err);
}

#[test]
fn interrupted_map_continues_from_its_directory() {
    let place = Place::new();
    let arguments = ["map", "square@1.0", "--range", "0..200", "--state", "state", "--workers", "1"];
    let interrupted = place.begin_calls(&arguments, 20);
    signal(&interrupted, "INT");
    let ended = interrupted.end().unwrap();
    assert!(ended.code == 130 && ended.err.contains("The same command continues"), "{ended:?}");
    let made = place.notes().len();
    assert!(made < 200);
    let ended = place.run(&arguments);
    assert_eq!((ended.code, ended.out.lines().count()), (0, 200), "{}", ended.err);
    let repeated = place.repeated();
    assert!(repeated < made, "{repeated} of {made} calls were repeated");
}

#[test]
fn job_of_another_build_is_refused_until_it_is_over() {
    let place = Place::new();
    // The same program, in a file that differs by a byte.
    let (built, other) = (program("routines").unwrap(), place.path().join("other-build"));
    fs::write(&other, [fs::read(&built).unwrap(), vec![0]].concat()).unwrap();
    fs::set_permissions(&other, fs::metadata(&built).unwrap().permissions()).unwrap();
    let arguments = ["map", "square@1.0", "--range", "0..200", "--state", "state", "--workers", "1"];
    let run_other = || {
        let mut command = Command::new(&other);
        command.args(arguments);
        Running::begin(place.prepared(command), place.path()).unwrap().end().unwrap()
    };
    let killed = place.begin_calls(&arguments, 1);
    signal(&killed, "KILL");
    killed.end().unwrap();
    let refused = run_other();
    assert_eq!(refused.code, 2, "{refused:?}");
    for part in ["job j-0000000000", "another build of routines", "another directory"] {
        assert!(refused.err.contains(part), "{refused:?}");
    }
    let ended = place.run(&arguments);
    assert_eq!((ended.code, ended.out.lines().count()), (0, 200), "{}", ended.err);
    assert_eq!(run_other().out, ended.out);
}

#[test]
fn map_of_a_replaced_file_is_another_job() {
    let place = Place::new();
    fs::write(place.path().join("space.json"), r#"{"file": "cases"}"#).unwrap();
    let map = |lines: &str| {
        fs::write(place.path().join("cases"), lines).unwrap();
        assert_eq!(place.run(&["put", "cases", "cases"]).code, 0);
        place.json(&["map", "square@1.0", "--arguments", "space.json", "--state", "state"])
    };
    let first = map("2\n3\n");
    assert_eq!(first["results"], json!([{ "index": 0, "value": 4 }, { "index": 1, "value": 9 }]));
    let second = map("5\n");
    assert_eq!(second["results"], json!([{ "index": 0, "value": 25 }]));
    assert_eq!(map("2\n3\n")["job"], first["job"]);
    assert_eq!(map("\n")["results"], json!([]));
}

#[test]
fn gateway_of_the_python_client_ends_with_its_process_only() {
    let place = Place::new();
    let script = r#"
import os, signal, subprocess, sys
from unittest import mock
import routines

started = []

class Interrupted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        started.append(self)
        self.stdout.close()
        self.stdout = mock.MagicMock()
        self.stdout.__enter__.return_value.readline.side_effect = KeyboardInterrupt

with mock.patch("subprocess.Popen", Interrupted):
    try:
        routines.here()
    except KeyboardInterrupt:
        assert started[0].returncode == -signal.SIGKILL
    else:
        raise AssertionError("it is interrupted")

r = routines.here("--workers", "1")
assert os.getpgid(r._gateway.pid) != os.getpgid(0)
child = os.fork()
if child == 0:
    # By way of the handlers at exit.
    sys.exit(0)
os.waitpid(child, 0)
assert r.call("square@1.0", 3) == 9
print(r._url, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"#;
    let ended = Running::begin(place.prepared(client(&[script])), place.path()).unwrap().end().unwrap();
    let address = ended.out.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{}", ended.err));
    let deadline = Instant::now() + SOON;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "the gateway runs without its client");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn python_client_works_without_a_server() {
    let place = Place::new();
    let script = r#"
import math, sys
import routines

with routines.here("--workers", "2") as r:
    assert r.call("square@1.0", 12) == 144
    assert r.map("square@1.0", range(20)).values() == [n * n for n in range(20)]
    try:
        r.call("square@1.0", -1)
    except routines.CallError as error:
        assert error.kind == "user" and "in run" in error.trace
    else:
        raise AssertionError("it has failed")
    with r.executor() as executor:
        assert list(executor.map("square@1.0", range(30))) == [n * n for n in range(30)]
    r.put("cases", b"[2, 3]\n\n[4, 5]\n")
    cases = routines.lines(routines.Resource("cases"))
    first = r.starmap("area@1.0", cases, key="again")
    assert first.values() == [6, 20]
    r.put("cases", b"[7, 1]\n")
    assert r.starmap("area@1.0", cases).values() == [7]
    r.delete("cases")
    assert r.starmap("area@1.0", cases, key="again").id == first.id
    r.put("image", b"\xff")
    space = routines.product(x=range(1, 4), y=[2, 5], scale=[0.1])
    expected = [x * y * 0.1 for x in range(1, 4) for y in [2, 5]]
    assert r.starmap("area@1.0", space).values() == expected
    assert r.map("square@1.0", range(1, 8, 3)).values() == [1, 16, 49]
    large = range(2**60, 2**60 + 2)
    assert r.map("square@1.0", large).values() == [n * n for n in large]
    pairs = routines.zipped(range(3), [5, 6, 7])
    assert r.starmap("area@1.0", pairs).values() == [0, 6, 14]
    scales = [10.0 ** (n % 40 - 20) * (-1) ** n for n in range(2000)]
    values = [3 * scale for scale in scales]
    wanted = ["sum", "mean", "min", "max", "argmin", "argmax", "count"]
    reduced = r.starmap("area@1.0", routines.product(x=[3], scale=scales), reduce=wanted).reduced()
    assert reduced == {
        "sum": math.fsum(values), "mean": math.fsum(values) / 2000, "min": min(values), "max": max(values),
        "argmin": values.index(min(values)), "argmax": values.index(max(values)), "count": 2000,
    }, reduced
    assert list(reduced) == sorted(wanted)
    assert r.map("area@1.0", [], reduce=["sum", "min"]).reduced() == {"sum": 0.0, "min": None}
    failed = r.map("square@1.0", [1, -1], reduce=["sum"])
    try:
        failed.reduced()
    except routines.JobError as error:
        assert "1 calls" in str(error)
    else:
        raise AssertionError("it has failed")
    assert failed.status()["reduced"] == {"sum": 1.0}
    for arguments, part in [(routines.zipped([1], [1, 2]), "`arguments.zip[0]` has 1 points"),
                            (routines.product(range(10**9), range(10**9)), "at most 1000000000 calls"),
                            (routines.lines(routines.Resource("image")), "no text in UTF-8"),
                            (routines.lines(routines.Resource("none")), "no resource none")]:
        try:
            r.starmap("area@1.0", arguments)
        except routines.RequestError as error:
            assert part in str(error), error
        else:
            raise AssertionError("it is refused")
"#;
    place.python(script);
}

#[test]
fn events_of_a_job_are_states_until_its_end() {
    let place = Place::new();
    let script = r#"
import json
import routines

with routines.here("--workers", "1") as r:
    job = r.map("held@1.0", ["open"])
    with r._open("GET", f"/v1/jobs/{job.id}/events", None, {"last-event-id": "7"}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = (line.decode().partition(":") for line in answer if line.strip())
        assert next(lines)[2].strip() == "state"
        assert json.loads(next(lines)[2])["state"] in ("accepted", "running")
        progress = job.progress()
        assert next(progress)["ended"] == 0
        open("noted/open", "w").close()
        *states, end = [json.loads(data) for name, _, data in lines if name == "data"]
    assert all(state["state"] in ("accepted", "running") for state in states), states
    assert end["state"] == "successful" and end["ended"] == 1, end
    assert list(progress)[-1] == list(job.progress(0.01))[0] == end
    with r._open("GET", f"/v1/jobs/{job.id}/events") as answer:
        assert answer.read().startswith(b"event: end\n")
"#;
    place.python(script);
}

#[test]
fn rerun_repeats_failed_calls_once_with_their_indices() {
    let place = Place::new();
    let script = r#"
import os
import routines

def refused(job, part):
    try:
        job.rerun()
    except routines.RequestError as error:
        assert error.status == 409 and part in str(error), error
    else:
        raise AssertionError("it is refused")

with routines.here("--workers", "2") as r:
    job = r.starmap("flaky@1.0", routines.product(n=range(12)))
    sum = r.map("flaky@1.0", range(12), reduce=["sum"], by=0)
    assert [result.index for result in job.results() if result.error] == [0, 5, 10]
    again = job.rerun()
    assert again.id != job.id and job.rerun().id == again.id
    assert [(result.index, result.error.kind) for result in again.results()] == [(0, "user"), (5, "user"), (10, "user")]
    assert again.status()["calls"] == 3
    sum.wait()
    open("noted/slow", "w").close()
    cancelled = again.rerun()
    cancelled.cancel()
    assert cancelled.wait()["state"] == "cancelled"
    os.remove("noted/slow")
    open("noted/repaired", "w").close()
    last = again.rerun()
    assert last.id != cancelled.id
    assert [(result.index, result.value) for result in last.results()] == [(0, 0), (5, 5), (10, 10)]
    assert sum.rerun().groups() == [{"by": {"0": n}, "sum": n} for n in (0, 5, 10)]
    refused(last, "has no failed calls")
    held = r.map("held@1.0", ["open"])
    refused(held, "results once it is successful")
    held.cancel()
"#;
    place.python(script);
    let repaired = place.path().join("noted/repaired");
    fs::remove_file(&repaired).unwrap();
    let failed = place.run(&["map", "flaky@1.0", "--range", "-3..7", "--state", "state"]);
    assert!(failed.code == 1 && failed.err.contains("routines rerun j-0000000000"), "{}", failed.err);
    fs::write(repaired, "").unwrap();
    for _ in 0..2 {
        let again = place.run(&["rerun", "j-0000000000", "--state", "state"]);
        let expected = "{\"index\":3,\"value\":0}\n{\"index\":8,\"value\":5}\n";
        assert_eq!((again.code, &*again.out), (0, expected), "{}", again.err);
    }
    // A new directory starts over, although the store has the results of the first job.
    fs::remove_dir_all(place.path().join("state")).unwrap();
    let again = place.run(&["map", "flaky@1.0", "--range", "-3..7", "--state", "state"]);
    assert_eq!((again.code, again.out.lines().count()), (0, 10), "{}", again.err);
    let none = place.run(&["rerun", "j-0000000009", "--state", "state"]);
    assert!(none.code != 0 && none.err.contains("no job j-0000000009"), "{none:?}");
}

//! A cluster with routines in Python, and its gateway.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{Cluster, Running, SOON};

/// A routine that takes a moment, and notes each call with the process of its node.
const MODULE: &str = r#"
import os, time

# Read before the node can be killed.
NODE = os.getppid()

def run(n):
    if n < 0:
        raise ValueError(f"{n} is negative")
    with open(os.path.join(FOLDER, "notes"), "a") as notes:
        notes.write(f"{n} {NODE}\n")
    time.sleep(0.01)
    return {"square": n * n}
"#;

/// A cluster with a store, in which the routine is deployed.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) store: PathBuf,
    pub(crate) source: PathBuf,
}

pub(crate) struct Gateway {
    pub(crate) running: Running,
    pub(crate) address: String,
}

impl Site {
    /// Waits until the display of a job shows these numbers, or larger ones; zeros exactly.
    pub(crate) fn wait_for_display(&self, job: &str, least: &[(&str, u64)]) {
        let deadline = Instant::now() + SOON;
        loop {
            let display = &self.cluster.json("taskwork", &["job", job]).unwrap()["display"];
            let shown = |name: &str| {
                let values = display["values"].as_array()?;
                values.iter().find(|value| value["name"] == name)?["value"].as_u64()
            };
            let is_reached =
                |shown: Option<u64>, number| shown == Some(number) || number > 0 && shown > Some(number);
            if least.iter().all(|&(name, number)| is_reached(shown(name), number)) {
                return;
            }
            assert!(Instant::now() < deadline, "{display}\n{}", self.cluster.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn new() -> Self {
        Self::on(Cluster::shared().unwrap())
    }

    pub(crate) fn on(cluster: Cluster) -> Self {
        let (store, source) = (cluster.folder().join("store"), cluster.folder().join("source"));
        write_routine(&source, "name = 'square'\nversion = '1.0'\nentry = 'module:run'", &source, MODULE);
        let mut site = Self { cluster, store, source };
        let store = site.store.to_str().unwrap().to_owned();
        site.cluster.environment.push(("ROUTINES_STORE".to_owned(), store));
        // For the notes of calls.
        let source = site.source.to_str().unwrap().to_owned();
        site.cluster.environment.push(("ROUTINES_WRITE".to_owned(), source));
        let deployed = site.cluster.json("routines", &["deploy", site.source.to_str().unwrap()]).unwrap();
        assert_eq!(deployed["routine"], "square@1.0");
        site
    }

    pub(crate) fn start_nodes(&mut self, count: usize) {
        let work = self.cluster.folder().join("work");
        let options = ["--workers", "1", "--zk-session-timeout", "2", "--work", work.to_str().unwrap()];
        self.cluster.start_nodes("routines", count, &options).unwrap();
    }

    /// Runs a program of the Python client, with arguments.
    pub(crate) fn run_client(&self, program_and_arguments: &[&str]) {
        let ended =
            Running::begin(client(program_and_arguments), self.cluster.folder()).unwrap().end().unwrap();
        assert_eq!(ended.code, 0, "{}\n{}", ended.err, self.cluster.logs());
    }

    /// Returns the noted calls, each with the processes of the nodes that have made it.
    pub(crate) fn notes(&self) -> BTreeMap<u64, Vec<u32>> {
        let mut notes = BTreeMap::<u64, Vec<u32>>::new();
        for line in fs::read_to_string(self.source.join("notes")).unwrap_or_default().lines() {
            // The last line may be incomplete.
            let Some((index, node)) = line.split_once(' ') else { continue };
            notes.entry(index.parse().unwrap()).or_default().push(node.parse().unwrap());
        }
        notes
    }

    pub(crate) fn segments(&self) -> BTreeSet<PathBuf> {
        let jobs = fs::read_dir(self.store.join("jobs")).unwrap();
        let files = jobs.flat_map(|job| fs::read_dir(job.unwrap().path()).unwrap());
        files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|it| it == "seg"))
            .collect()
    }

    /// Waits until both nodes have made calls, and this many calls were made.
    pub(crate) fn wait_for_calls(&self, calls: usize) {
        let deadline = Instant::now() + SOON;
        loop {
            let notes = self.notes();
            let nodes: BTreeSet<u32> = notes.values().flatten().copied().collect();
            if notes.len() >= calls && nodes.len() >= 2 {
                return;
            }
            assert!(Instant::now() < deadline, "{} calls on {nodes:?}\n{}", notes.len(), self.cluster.logs());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Gateway {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    pub(crate) fn start_with(cluster: &Cluster, options: &[&str]) -> Self {
        let arguments = [&["gateway", "--listen", "127.0.0.1:0"], options].concat();
        let mut running = cluster.begin("routines", &arguments).unwrap();
        let deadline = Instant::now() + SOON;
        let address = loop {
            if let Some((_, rest)) = running.output().split_once("http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
            assert!(!running.has_ended().unwrap() && Instant::now() < deadline, "{}", running.errors());
            thread::sleep(Duration::from_millis(20));
        };
        Self { running, address }
    }

    /// Sends a request, and returns the status and the body.
    pub(crate) fn ask(&self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let mut answer = String::new();
        self.send(request, headers, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Sends a request, and returns the connection with its answer.
    pub(crate) fn send(&self, request: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let (length, address) = (body.len(), &self.address);
        // HTTP/1.0, so that a stream is not sent in chunks.
        let head =
            format!("{request} HTTP/1.0\r\nhost: {address}\r\ncontent-length: {length}\r\n{headers}\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.ask(&format!("GET {path}"), "", "");
        (status, serde_json::from_str(&body).unwrap())
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let headers = format!("content-type: application/json\r\n{headers}");
        let (status, body) = self.ask(&format!("POST {path}"), &headers, &body.to_string());
        (status, serde_json::from_str(&body).unwrap())
    }

    pub(crate) fn submit(&self, arguments: &Value) -> String {
        let request = json!({ "routine": "square@1.0", "arguments": arguments });
        let (status, job) = self.post("/v1/jobs", "", &request);
        assert_eq!(status, 201, "{job}");
        job["job"].as_str().unwrap().to_owned()
    }

    /// Waits until a job is over, and returns its state.
    pub(crate) fn wait(&self, job: &str, cluster: &Cluster) -> Value {
        let deadline = Instant::now() + SOON;
        loop {
            let (status, state) = self.get(&format!("/v1/jobs/{job}?wait=5"));
            assert_eq!(status, 200, "{state}");
            if !["accepted", "running"].contains(&state["state"].as_str().unwrap()) {
                return state;
            }
            assert!(Instant::now() < deadline, "{state}\n{}", cluster.logs());
        }
    }

    /// Reads all results page by page.
    pub(crate) fn pages(&self, job: &str) -> Vec<Value> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let (status, page) = self.get(&format!("/v1/jobs/{job}/results?from={from}&limit=300"));
            assert_eq!(status, 200, "{page}");
            all.extend(page["results"].as_array().unwrap().iter().cloned());
            match page["next"].as_u64() {
                Some(next) => from = next,
                None => return all,
            }
        }
    }

    /// Reads all results as one stream.
    pub(crate) fn stream(&self, job: &str) -> Vec<Value> {
        let request = format!("GET /v1/jobs/{job}/results");
        let (status, body) = self.ask(&request, "accept: application/x-ndjson\r\n", "");
        assert_eq!(status, 200, "{body}");
        body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The folder of the Python client.
pub(crate) const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../routines/clients/python");

/// Returns the command that runs a program of the Python client, with arguments.
pub(crate) fn client(program_and_arguments: &[&str]) -> Command {
    let mut python = Command::new("python3");
    python.arg("-c").args(program_and_arguments);
    python.env("PYTHONPATH", CLIENT);
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

/// Writes the folder of a routine. Its module knows the folder for its notes.
pub(crate) fn write_routine(folder: &Path, description: &str, notes: &Path, module: &str) {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("routine.toml"), format!("runtime = 'python3'\n{description}\n")).unwrap();
    let place = format!("FOLDER = {:?}\n", notes.to_str().unwrap());
    fs::write(folder.join("module.py"), place + module).unwrap();
}

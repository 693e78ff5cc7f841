//! Tests over real connections on this machine, with a recorded or a changing cluster.

mod access;
mod actions;
mod documents;
mod monitoring;
mod routes;
mod streams;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use serde_json::{Value, json};
use taskwork::view::{Content, Event, Recorder, View, replay};
use tokio::runtime::Runtime;

use super::{Board, Offer, Site};

/// The maximum time of a test.
const SOON: Duration = Duration::from_secs(60);
const JOB: &str = "j-0000000001";
/// A name that contains markup.
const NAME: &str = "<script>alert(1)</script>";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    offer: Offer,
}

fn offer(arguments: &[&str]) -> Offer {
    Line::try_parse_from(["test"].iter().chain(arguments)).unwrap().offer
}

/// A server that runs until it is dropped.
struct Server {
    at: SocketAddr,
    board: Arc<Board>,
    _runtime: Runtime,
}

impl Server {
    fn start(board: Board, arguments: &[&str]) -> Self {
        Self::start_with(board, arguments, |site| site)
    }

    fn start_with(board: Board, arguments: &[&str], prepared: impl FnOnce(Site) -> Site) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let site = {
            let _here = runtime.enter();
            prepared(offer(&[&["--listen", "127.0.0.1:0"], arguments].concat()).open().unwrap())
        };
        let url = site.url();
        let (_, at) = url.trim_end_matches('/').split_once("://").unwrap();
        let (at, board) = (at.parse().unwrap(), Arc::new(board));
        runtime.spawn(site.serve(Arc::clone(&board)));
        Self { at, board, _runtime: runtime }
    }

    fn replayed(arguments: &[&str]) -> Self {
        Self::start(Board::replayed("record.jsonl".to_owned(), cluster()), arguments)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    fn answer(&self, request: &[u8]) -> Answer {
        answer(self.connect(), request)
    }

    fn get(&self, path: &str) -> Answer {
        self.get_with(path, "")
    }

    /// Requests a page with further headers, each with a line break.
    fn get_with(&self, path: &str, headers: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        self.answer(head.as_bytes())
    }
}

/// An answer to a request.
struct Answer(String);

impl Answer {
    /// Returns the status; 0 if the connection was closed without one.
    fn status(&self) -> u16 {
        self.0.split(' ').nth(1).map_or(0, |status| status.parse().unwrap())
    }

    fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.0.split_once("\r\n\r\n")?;
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap()
    }
}

fn answer(stream: impl Read + Write, request: &[u8]) -> Answer {
    Answer(String::from_utf8_lossy(&bytes(stream, request)).into_owned())
}

/// Sends a request and returns the raw answer.
fn bytes(mut stream: impl Read + Write, request: &[u8]) -> Vec<u8> {
    // A server may close the connection before it has read the whole request.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn data(record: &Value) -> Content {
    Content::Data(record.to_string().into_bytes())
}

fn member(node: &str) -> Content {
    data(&json!({
        "format": 2, "node": node, "address": "127.0.0.1:7", "fingerprint": "", "workers": 2, "program": "tree",
        "program_version": "1", "started_ms": 1,
    }))
}

fn job(name: &str) -> Content {
    data(&json!({
        "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": name, "submitter": "a",
        "state": "running", "attempt": 1, "attempts_max": 3, "root": "", "shared_chunks": 0, "submitted_ms": 1,
        "finished_ms": null, "reason": null, "lost": [],
    }))
}

fn report(worked: u64, best: f64, improved_ms: u64) -> Content {
    data(&json!({
        "format": 2, "attempt": 1, "last": false, "at_ms": 9,
        "figures": {
            "worked": worked, "tasks": 2, "outlook": { "AtLeast": 3.5 }, "open_tasks": 4,
            "times": { "searching_ns": 3_000_000_000_u64, "looking_ns": 1_000_000_000 },
        },
        "requests": { "reads": 1, "writes": 2, "multis": 3, "failed_multis": 4 },
        "pool": { "workers": 2, "busy": 1, "queued": 3, "waiting": 0, "hungry": 0 },
        "best": { "value": best, "sense": "min", "name": "incumbent" },
        "givers": { "most": [{ "node": "n2", "tasks": 3 }], "rest": 1 },
        "timeline": [{ "at_ms": improved_ms, "kind": "improved", "detail": "" }],
    }))
}

/// The observed events of a cluster.
fn events() -> Vec<Event> {
    let of = |at_ms, path: &str, content| Event::of(at_ms, path, content);
    vec![
        // The cluster was empty when it was first read.
        of(1, "", Content::Found),
        Event::tick(1),
        of(1, "members/n1", member("n1")),
        of(1, "members/n2", member("n2")),
        of(1, &format!("jobs/{JOB}"), job(NAME)),
        of(1, &format!("jobs/{JOB}/figures/n1"), report(5, 9.0, 1)),
        of(1, &format!("jobs/{JOB}/attempts/1/parked"), Content::Children(0)),
        Event::tick(1_000),
        of(60_000, &format!("jobs/{JOB}/figures/n1"), report(70, 7.0, 59_900)),
        Event::tick(60_000),
    ]
}

/// The view of a recorded cluster.
fn cluster() -> View {
    let mut recorder = Recorder::new(Vec::new(), u64::MAX);
    for event in events() {
        recorder.note(&event).unwrap();
    }
    replay(&recorder.finish().unwrap()[..]).unwrap()
}

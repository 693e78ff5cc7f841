//! Streams of changes.

use std::{
    io::{BufRead, BufReader},
    sync::mpsc,
    thread,
    time::Instant,
};

use flate2::bufread::GzDecoder;

use super::*;
use crate::web::events::STREAMS_MAX;

/// An event of a stream.
#[derive(Debug, Default)]
struct Told {
    kind: String,
    id: u64,
    content: Value,
}

/// A client of a stream.
struct Follower(Box<dyn BufRead + Send>);

impl Follower {
    /// Opens a stream with further headers, each with a line break.
    fn begin(server: &Server, path: &str, headers: &str) -> Self {
        let mut stream = server.connect();
        // HTTP/1.0 has no chunked encoding.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.contains(" 200 OK\r\n") && head.contains("text/event-stream"), "{head}");
        let is_compressed = head.contains("content-encoding: gzip\r\n");
        assert_eq!(is_compressed, headers.contains("gzip"), "{head}");
        Self(if is_compressed { Box::new(BufReader::new(GzDecoder::new(reader))) } else { Box::new(reader) })
    }

    /// Returns the next line; `None` at the end of the stream.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.0.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    }

    /// Returns the next event.
    fn next(&mut self) -> Option<Told> {
        let mut told = Told::default();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut told.kind),
                Some(("id", id)) => told.id = id.parse().unwrap(),
                Some(("data", content)) => told.content = serde_json::from_str(content).unwrap(),
                _ if line.is_empty() && !told.kind.is_empty() => return Some(told),
                _ => {}
            }
        }
    }

    fn expect(&mut self, kind: &str) -> Told {
        let told = self.next().unwrap();
        assert_eq!(told.kind, kind, "{}", told.content);
        told
    }
}

fn live() -> Server {
    let server = Server::start(Board::live("/taskwork/test".to_owned()), &[]);
    for event in events() {
        server.board.apply(&event);
    }
    server
}

fn change(server: &Server, at_ms: u64, name: &str) {
    server.board.apply(&Event::of(at_ms, format!("jobs/{JOB}"), job(name)));
    server.board.apply(&Event::tick(at_ms));
}

#[test]
fn each_change_is_sent_once_without_gaps() {
    let server = live();
    let mut follower = Follower::begin(&server, "/events", "");
    let whole = follower.expect("view");
    assert_eq!(whole.content["snapshot"]["jobs"][JOB]["about"]["record"]["name"], NAME);
    assert_eq!((&whole.content["seq"], &whole.content["source"]), (&json!(whole.id), &json!("live")));
    change(&server, 61_000, "second");
    let second = follower.expect("view");
    assert_eq!((&second.content["since"], second.id), (&json!(whole.id), whole.id + 1));
    assert_eq!(second.content["jobs"][JOB]["record"]["name"], "second");
    drop(follower);
    change(&server, 62_000, "third");
    server.board.apply(&Event::tick(63_000));
    for (path, headers) in [
        ("/events".to_owned(), format!("last-event-id: {}\r\n", second.id)),
        (format!("/events?since={}", second.id), String::new()),
    ] {
        let mut again = Follower::begin(&server, &path, &headers);
        let missed = again.expect("view");
        assert_eq!((&missed.content["since"], missed.id), (&json!(second.id), second.id + 2));
        assert_eq!(missed.content["jobs"][JOB]["record"]["name"], "third");
    }
    // The event id of another server is ignored.
    for id in ["0", "7", "nonsense", "99999999999999999999", &(second.id + 1_000).to_string()] {
        let mut other = Follower::begin(&server, "/events", &format!("last-event-id: {id}\r\n"));
        assert!(other.expect("view").content["snapshot"].is_object(), "{id}");
    }
}

#[test]
fn view_and_changes_are_consistent() {
    let server = live();
    let seq = server.get("/api/view").json()["seq"].as_u64().unwrap();
    let mut follower = Follower::begin(&server, "/events", &format!("last-event-id: {seq}\r\n"));
    // Nothing is sent until there is a change.
    change(&server, 61_000, "second");
    let told = follower.expect("view");
    assert_eq!((told.content["since"].as_u64(), told.id), (Some(seq), seq + 1));
    assert_eq!(server.get("/api/view").json()["seq"].as_u64(), Some(told.id));
}

#[test]
fn compressed_stream_is_flushed_after_each_message() {
    let server = live();
    let mut follower = Follower::begin(&server, "/events", "accept-encoding: gzip, br\r\n");
    assert!(follower.expect("view").content["snapshot"].is_object());
    for name in ["second", "third"] {
        change(&server, 61_000, name);
        assert_eq!(follower.expect("view").content["jobs"][JOB]["record"]["name"], name);
    }
}

#[test]
fn job_details_are_sent_when_they_change() {
    let server = live();
    let mut follower = Follower::begin(&server, &format!("/events?topics=job:{JOB},job:none"), "");
    assert_eq!(follower.expect("job").content["job"]["about"]["record"]["name"], NAME);
    change(&server, 61_000, "second");
    let told = follower.expect("job");
    assert_eq!(
        (&told.content["id"], &told.content["job"]["about"]["record"]["name"]),
        (&json!(JOB), &json!("second"))
    );
    let refused = server.get("/events?topics=everything");
    assert!(refused.status() == 400 && refused.body().contains("job:ID"), "{}", refused.body());
}

#[test]
fn silence_of_zookeeper_is_sent() {
    let server = live();
    let mut follower = Follower::begin(&server, "/events", "");
    follower.expect("view");
    server.board.apply(&Event::of(65_000, "", Content::Lost));
    assert_eq!(follower.expect("stale").content["stale_since_ms"], 65_000);
    assert_eq!(server.get("/api/view").json()["stale_since_ms"], 65_000);
    let mut late = Follower::begin(&server, "/events", "");
    late.expect("view");
    late.expect("stale");
    server.board.apply(&Event::of(66_000, "", Content::Found));
    follower.expect("fresh");
    late.expect("fresh");
    assert_eq!(server.get("/api/view").json()["stale_since_ms"], Value::Null);
}

#[test]
fn idle_stream_sends_heartbeat() {
    let server = Server::replayed(&[]);
    let mut follower = Follower::begin(&server, "/events", "");
    follower.expect("view");
    assert_eq!(follower.line().as_deref(), Some(":"));
}

#[test]
fn streams_over_limit_are_refused_while_pages_are_served() {
    let server = live();
    let mut followers: Vec<_> = (0..STREAMS_MAX).map(|_| Follower::begin(&server, "/events", "")).collect();
    let refused = server.get("/events");
    assert_eq!(refused.status(), 503);
    assert!(refused.body().contains("64 browsers follow"), "{}", refused.body());
    assert_eq!(server.get("/api/view").status(), 200);
    // A closed stream makes room, once the server notices.
    followers.pop();
    until("there is room", || {
        server.board.apply(&Event::tick(70_000));
        server.answer(b"HEAD /events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").status()
            == 200
    });
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::yield_now();
    }
}

/// The size of the change at each tick, in characters.
const LARGE: usize = 40_000;

#[test]
fn slow_follower_is_dropped_without_affecting_others() {
    const READERS: usize = 49;
    let server = live();
    let mut silent = server.connect();
    write!(silent, "GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let (tell, told) = mpsc::channel();
    for _ in 0..READERS {
        let mut follower = Follower::begin(&server, "/events", "");
        let tell = tell.clone();
        thread::spawn(move || {
            while let Some(event) = follower.next() {
                let _ = tell.send(event.id);
            }
        });
    }
    let all_have_read = || (0..READERS).map(|_| told.recv_timeout(SOON).unwrap()).max().unwrap();
    all_have_read();
    until("all follow", || server.board.followers() == READERS + 1);
    let mut ticks = 0;
    while server.board.followers() > READERS {
        ticks += 1;
        assert!(ticks < 500, "it is not dropped");
        change(&server, 61_000 + ticks, &format!("{ticks} {}", "x".repeat(LARGE)));
        all_have_read();
    }
    change(&server, 99_000, "last");
    assert_eq!(Some(all_have_read()), server.get("/api/view").json()["seq"].as_u64());
    // The operating system has buffered some of it; then the connection is closed.
    let mut rest = Vec::new();
    let ended = silent.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
    assert_eq!(server.board.followers(), READERS);
}

//! Nodes that receive a preemption notice, or leave by themselves: they hand on their tasks, and the count is
//! exact.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, Running},
    gate::Gate,
    tree::Tree,
};

/// The depth of the tree that the jobs count.
const DEPTH: &str = "19";
const DEPTH_NUMBER: u32 = 19;

/// The maximum duration of a job from which nodes have left.
const PATIENCE: Duration = Duration::from_secs(240);

/// Starts a job that does not end before the gate is open.
fn begin(cluster: &Cluster, gate: &Gate) -> Running {
    cluster.begin("tree", &["submit", DEPTH, "--gate", gate.path(), "--wait", "--json"]).unwrap()
}

/// Waits until a node has exited after leaving in time.
fn check_leave(cluster: &mut Cluster, node: usize, why: &str) {
    let ended = cluster.nodes[node].wait().unwrap();
    let log = cluster.log(node);
    assert!(ended.success() && log.contains(why) && log.contains("the node has left"), "{ended:?}\n{log}");
}

/// Waits for the end of the job: the count is exact, and no node was lost.
fn finish_exactly(cluster: &Cluster, job: Running) {
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{said:?}\n{}", cluster.logs());
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["states"], Tree::sequential(DEPTH_NUMBER).0, "{said}\n{}", cluster.logs());
    let job = cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{}", cluster.logs());
}

/// A metadata service of AWS, which returns garbage for some time and hangs once.
struct Metadata {
    host: String,
    goes: Arc<AtomicBool>,
}

impl Metadata {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let goes = Arc::<AtomicBool>::default();
        let will = Arc::clone(&goes);
        // The thread ends with the process.
        thread::spawn(move || {
            let mut hanging = Vec::new();
            for (number, stream) in listener.incoming().enumerate() {
                let stream = stream.unwrap();
                match number {
                    0 => hanging.push(stream),
                    1 => answer(stream, "500 Internal Server Error", "", "<html>"),
                    _ => serve(stream, will.load(Relaxed)),
                }
            }
        });
        Self { host, goes }
    }
}

fn serve(mut stream: TcpStream, goes: bool) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        request.push(byte[0]);
    }
    // The clock of the service is years behind: only the remaining time counts.
    let date = "date: Mon, 18 Sep 2017 08:20:30 GMT\r\n";
    if request.starts_with(b"PUT /latest/api/token ") {
        answer(stream, "200 OK", date, "token");
    } else if goes {
        answer(stream, "200 OK", date, r#"{"action": "terminate", "time": "2017-09-18T08:22:30Z"}"#);
    } else {
        answer(stream, "404 Not Found", date, "");
    }
}

fn answer(mut stream: TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    // The client may have disconnected.
    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
}

#[test]
fn preempted_nodes_leave_in_time() {
    let mut cluster = Cluster::shared().unwrap();
    let (file, metadata) = (cluster.folder().join("leave"), Metadata::start());
    let notice = format!("file:{}", file.display());
    cluster
        .environment
        .push(("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), format!("http://{}/", metadata.host)));
    let one = ["--workers", "1"];
    cluster.start_nodes("tree", 1, &[&one[..], &["--notice", &notice]].concat()).unwrap();
    cluster.start_nodes("tree", 1, &[&one[..], &["--notice", "aws"]].concat()).unwrap();
    cluster
        .start_nodes("tree", 1, &[&one[..], &["--advertise", "localhost", "--insecure"]].concat())
        .unwrap();
    cluster.wait_for_log(1, "the metadata service answers again").unwrap();
    let gate = cluster.gate().unwrap();
    let job = begin(&cluster, &gate);
    for node in 0..3 {
        cluster.wait_for_log(node, "the node takes part").unwrap();
    }
    // Written elsewhere and renamed, so that it never exists without its content.
    let new = file.with_extension("new");
    fs::write(&new, "15").unwrap();
    fs::rename(new, &file).unwrap();
    metadata.goes.store(true, Relaxed);
    for (node, deadline) in [(0, "deadline_s=1"), (1, "deadline_s=30.0")] {
        check_leave(&mut cluster, node, "the node is to leave");
        assert!(cluster.log(node).contains(deadline), "{}", cluster.log(node));
    }
    gate.open().unwrap();
    finish_exactly(&cluster, job);
}

#[test]
fn nodes_leave_by_lifetime_and_idle_limits() {
    let mut cluster = Cluster::shared().unwrap();
    let one = ["--workers", "1"];
    cluster.start_nodes("tree", 1, &one).unwrap();
    let gate = cluster.gate().unwrap();
    let job = begin(&cluster, &gate);
    cluster.wait_for_log(0, "the node takes part").unwrap();
    // Its drain takes at most five seconds, so it starts to leave after 12 of 20 seconds. The job is running,
    // so this time is enough to take part.
    let short = ["--max-lifetime", "20s", "--drain-deadline", "5"];
    cluster.start_nodes("tree", 1, &[&one[..], &short].concat()).unwrap();
    let idle = ["--idle-exit", "5s", "--label", "gpu=yes"];
    cluster.start_nodes("tree", 1, &[&one[..], &idle].concat()).unwrap();
    for node in [1, 2] {
        cluster.wait_for_log(node, "the node takes part").unwrap();
    }
    check_leave(&mut cluster, 1, "it has lived for its 20s");
    gate.open().unwrap();
    finish_exactly(&cluster, job);
    check_leave(&mut cluster, 2, "there has been no job for the node");
    assert!(!cluster.nodes[0].has_ended().unwrap(), "nobody has told it to leave");
}

#[test]
fn invalid_notice_options_are_refused_at_once() {
    let cluster = Cluster::shared().unwrap();
    for (arguments, part) in [
        (&["--notice", "slurm"][..], "SLURM_JOB_END_TIME"),
        (&["--notice", "ftp"], "file:PATH"),
        (&["--idle-exit", "soon"], "10m"),
        (&["--advertise", "no-such-host.invalid", "--insecure"], "no-such-host.invalid"),
    ] {
        let said = cluster.run("tree", &[&["node"], arguments].concat()).unwrap();
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(part), "no {part:?} in {said:?}");
    }
}

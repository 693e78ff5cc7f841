//! Workflows on node processes: the result is that of the sequential run, regardless of lost nodes.
//!
//! A gate holds the calls during each fault, so the job is never over before.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, SOON},
    data,
    gate::Gate,
};

/// Logged by the node on which the program runs.
pub(crate) const COORDINATES: &str = "the program runs on this node";
/// Logged by the other nodes.
pub(crate) const FOLLOWS: &str = "this node runs calls of the program on another one";
/// Logged by another node when the first calls have completed.
const RECORDS_ENDS: &str = "this node remembers which calls of the program have ended";
/// Logged by the node of the program when it has learned of an earlier run.
pub(crate) const RESTARTS: &str = "the program restarts; completed calls are not repeated";
/// Logged when a node has left or is lost.
pub(crate) const GONE: &str = "a node is gone that ran calls";

/// Logged when a node should leave, possibly this one.
const LEAVES: &str = "leaves, and is given no more calls";
/// Logged when another node was cordoned.
const CORDONED: &str = "a node is cordoned, and is given no more calls";
/// Logged when the journal is read.
const RECALLS: &str = "the journal says what must not happen a second time";

/// The number of links of each chain of the program, and of chains.
const LINKS: u64 = 12;
const CHAINS: usize = 8;

/// A cluster of three nodes with a job whose calls wait at a gate.
struct Scene {
    cluster: Cluster,
    /// The node on which the program runs.
    coordinator: usize,
    others: Vec<usize>,
    gate: Gate,
    /// The number of completed links of each chain.
    links: u64,
    /// Whether no link may run a second time.
    is_kept: bool,
    /// Whether a node is cordoned until the end.
    is_cordoned: bool,
}

impl Scene {
    /// Asks nodes to leave, and waits until the program gives them no more calls: a call that started now
    /// would wait at the gate forever.
    fn leave(&mut self, nodes: &[usize]) {
        self.cluster.signal_nodes(nodes, "TERM").unwrap();
        let deadline = Instant::now() + SOON;
        while self.cluster.log(self.coordinator).matches(LEAVES).count() < nodes.len() {
            assert!(Instant::now() < deadline, "not all leave\n{}", self.cluster.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets each chain run the next link, which the running calls wait for, and no further.
    fn step(&mut self) {
        self.links += 1;
        self.gate.open_up_to(self.links).unwrap();
    }
}

pub(crate) fn cluster(name: &str) -> Cluster {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes(name, 3, &["--workers", "1"]).unwrap();
    cluster
}

/// Waits until this many nodes have logged a text, and returns them.
pub(crate) fn wait_for(cluster: &Cluster, nodes: &[usize], count: usize, text: &str) -> Vec<usize> {
    let deadline = Instant::now() + SOON;
    loop {
        let said: Vec<_> = nodes.iter().copied().filter(|node| cluster.log(*node).contains(text)).collect();
        if said.len() >= count {
            return said;
        }
        assert!(Instant::now() < deadline, "{count} nodes do not log {text:?}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the program, applies a fault in the middle, and compares the result; with `TASKWORK_LONG=1` fifty
/// times, each time at another point.
fn run(happens: impl Fn(&mut Scene)) {
    for round in 0..if data::is_long() { 50 } else { 1 } {
        // The program reads a value after every fourth link; in the first round before the middle.
        once((round + 6) % (LINKS - 1), &happens);
    }
}

fn once(links: u64, happens: impl Fn(&mut Scene)) {
    let cluster = cluster("mesh");
    let length = LINKS.to_string();
    let sequential = ["solve", "--sequential", "--quiet", "--length", &length];
    let expected = cluster.json("mesh", &sequential).unwrap();
    let gate = cluster.gate().unwrap();
    gate.open_up_to(links).unwrap();
    let [book, report, trace] = ["book", "report", "trace.json"].map(|name| cluster.folder().join(name));
    let [book_name, report_name, trace_name] = [&book, &report, &trace].map(|path| path.to_str().unwrap());
    let files = ["--gate", gate.path(), "--book", book_name, "--report", report_name, "--trace", trace_name];
    let submit = [&["submit", "--wait", "--json", "--length", &length][..], &files].concat();
    let running = cluster.begin("mesh", &submit).unwrap();
    let coordinator = wait_for(&cluster, &[0, 1, 2], 1, COORDINATES)[0];
    let others = wait_for(&cluster, &[0, 1, 2], 2, FOLLOWS);
    wait_for(&cluster, &others, 2, RECORDS_ENDS);
    // By then the program has executed everything before this point.
    wait_for_line(&cluster, &book, &format!("begin {links}"));
    let is_published = fs::remove_file(&report).is_ok();
    assert_eq!(is_published, links > 1);
    let mut scene = Scene { cluster, coordinator, others, gate, links, is_kept: false, is_cordoned: false };
    happens(&mut scene);
    scene.gate.open().unwrap();
    let said = running.end().unwrap();
    assert_eq!(said.code, 0, "{}\n{}", said.err, scene.cluster.logs());
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["output"], expected["output"], "{}", scene.cluster.logs());
    if scene.is_kept {
        assert_eq!(
            runs_of_links(&book),
            vec![CHAINS; usize::try_from(LINKS).unwrap()],
            "{}",
            scene.cluster.logs()
        );
    }
    if scene.is_cordoned {
        assert_no_call_after_cordon(&trace);
    }
    let notes: Vec<_> = lines(&book).into_iter().filter(|line| line.starts_with("note")).collect();
    let places = (0..LINKS).filter(|place| place % 4 == 1);
    assert_eq!(notes, places.map(|place| format!("note {place}")).collect::<Vec<_>>(), "each once, in order");
    assert_eq!(report.exists(), !is_published, "it is published once");
}

/// Checks in a trace that a node has started no call after it was cordoned, and that others have.
fn assert_no_call_after_cordon(trace: &Path) {
    let events: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let is_cordon = |event: &&Value| event["name"].as_str().is_some_and(|name| name.ends_with(": cordoned"));
    let cordon = events.iter().find(is_cordon).unwrap_or_else(|| panic!("there is no cordon: {events:?}"));
    let is_later = |event: &&Value| event["ph"] == "X" && event["ts"].as_u64() > cordon["ts"].as_u64();
    let (its, others): (Vec<_>, Vec<_>) =
        events.iter().filter(is_later).partition(|call| call["pid"] == cordon["pid"]);
    assert!(its.is_empty() && !others.is_empty(), "{its:?} {cordon}");
}

/// Returns how many times the links of each position have run.
fn runs_of_links(book: &Path) -> Vec<usize> {
    let lines = lines(book);
    let of = |place| lines.iter().filter(|line| **line == format!("link {place}")).count();
    (0..LINKS).map(of).collect()
}

fn lines(book: &Path) -> Vec<String> {
    fs::read_to_string(book).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn wait_for_line(cluster: &Cluster, book: &Path, line: &str) {
    let deadline = Instant::now() + SOON;
    while !lines(book).iter().any(|other| other == line) {
        assert!(Instant::now() < deadline, "the book has no line {line:?}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn three_nodes_share_the_calls() {
    let cluster = cluster("matmul");
    let input = ["--blocks", "8", "--size", "20"];
    let solve = [&["solve", "--sequential", "--quiet"], &input[..]].concat();
    let submit = [&["submit", "--wait"], &input[..]].concat();
    let expected = cluster.json("matmul", &solve).unwrap();
    assert_eq!(cluster.json("matmul", &submit).unwrap()["blocks"], expected["blocks"], "{}", cluster.logs());
}

#[test]
fn nodes_with_small_stores_share_the_calls() {
    let mut cluster = Cluster::shared().unwrap();
    // For three matrices of 200 KB, and three blocks for a call.
    cluster.start_nodes("matmul", 3, &["--workers", "1", "--store", "32 KiB"]).unwrap();
    let input = ["--blocks", "8", "--size", "20"];
    let solve = [&["solve", "--sequential", "--quiet"], &input[..]].concat();
    let submit = [&["submit", "--wait"], &input[..]].concat();
    let expected = cluster.json("matmul", &solve).unwrap();
    assert_eq!(cluster.json("matmul", &submit).unwrap()["blocks"], expected["blocks"], "{}", cluster.logs());
}

#[test]
fn large_data_reaches_other_nodes_in_memory_and_through_files() {
    let cluster = cluster("mesh");
    // Chains of 450 KB, which nodes fetch into memory, and of 18 MB, which they fetch into files.
    for numbers in ["50000", "2000000"] {
        let input = ["--width", "3", "--length", "3", "--numbers", numbers];
        let sequential = [&["solve", "--sequential", "--quiet"], &input[..]].concat();
        let expected = cluster.json("mesh", &sequential).unwrap();
        let book = cluster.folder().join(format!("book-{numbers}"));
        let submit = [&["submit", "--wait", "--book", book.to_str().unwrap()], &input[..]].concat();
        let result = cluster.json("mesh", &submit).unwrap();
        assert_eq!(result["output"], expected["output"], "{}", cluster.logs());
        // Data that does not arrive is recomputed.
        let links = lines(&book).into_iter().filter(|line| line.starts_with("link")).count();
        assert_eq!(links, 3 * 3, "no link is repeated\n{}", cluster.logs());
    }
}

#[test]
fn second_job_takes_outputs_of_the_first_from_the_cache_of_two_nodes() {
    let mut cluster = Cluster::shared().unwrap();
    let cache = cluster.folder().join("cache");
    cluster.start_nodes("mesh", 2, &["--workers", "1", "--cache", cache.to_str().unwrap()]).unwrap();
    let book = cluster.folder().join("book");
    let input = ["--width", "3", "--length", "3", "--book", book.to_str().unwrap()];
    let submit = [&["submit", "--wait", "--summary"], &input[..]].concat();
    let results = [0, 1].map(|_| cluster.json("mesh", &submit).unwrap());
    assert_eq!(results[0]["output"], results[1]["output"], "{}", cluster.logs());
    let links = lines(&book).into_iter().filter(|line| line.starts_with("link")).count();
    assert_eq!(links, 3 * 3, "the first job executes each link, and the second one none\n{}", cluster.logs());
    let tasks = results[1]["tasks"].as_array().unwrap();
    let link = tasks.iter().find(|task| task["task"] == "link").unwrap();
    assert_eq!((&link["cached"], &link["runs"]), (&9.into(), &0.into()), "{link}");
}

#[test]
fn calls_too_large_for_each_store_wait_for_a_node_with_a_larger_one() {
    let mut cluster = Cluster::shared().unwrap();
    // Each call reads three blocks of 3.2 KB.
    cluster.start_nodes("matmul", 2, &["--workers", "1", "--store", "7 KiB"]).unwrap();
    let input = ["--blocks", "4", "--size", "20"];
    let submitted = cluster.begin("matmul", &[&["submit", "--wait", "--json"], &input[..]].concat()).unwrap();
    wait_for(&cluster, &[0, 1], 1, "it needs a store for 9.3 KiB of inputs");
    cluster.start_node("matmul", &["--workers", "1", "--store", "64 KiB"]).unwrap();
    let output = submitted.end().unwrap();
    assert_eq!(output.code, 0, "{}\n{}", output.err, cluster.logs());
    let result: Value = serde_json::from_str(&output.out).unwrap();
    let expected =
        cluster.json("matmul", &[&["solve", "--sequential", "--quiet"], &input[..]].concat()).unwrap();
    assert_eq!(result["blocks"], expected["blocks"]);
}

#[test]
fn data_of_killed_node_is_recomputed() {
    run(|scene| {
        scene.cluster.kill_nodes(&scene.others[..1]).unwrap();
        scene.cluster.wait_for_log(scene.coordinator, GONE).unwrap();
    });
}

#[test]
fn program_on_killed_node_continues_elsewhere() {
    run(|scene| {
        scene.cluster.kill_nodes(&[scene.coordinator]).unwrap();
        let new = wait_for(&scene.cluster, &scene.others, 1, COORDINATES)[0];
        scene.cluster.wait_for_log(new, RESTARTS).unwrap();
    });
}

#[test]
fn program_continues_after_all_nodes_were_killed() {
    run(|scene| {
        scene.cluster.kill_nodes(&[0, 1, 2]).unwrap();
        scene.cluster.start_nodes("mesh", 2, &["--workers", "1"]).unwrap();
        let new = wait_for(&scene.cluster, &[3, 4], 1, COORDINATES)[0];
        wait_for(&scene.cluster, &[3, 4], 1, FOLLOWS);
        scene.cluster.wait_for_log(new, RECALLS).unwrap();
    });
}

#[test]
fn program_continues_after_all_nodes_have_left() {
    run(|scene| {
        scene.leave(&[0, 1, 2]);
        // They complete their running calls.
        scene.step();
        for node in 0..3 {
            scene.cluster.nodes[node].wait().unwrap();
        }
        scene.cluster.start_nodes("mesh", 2, &["--workers", "1"]).unwrap();
        let new = wait_for(&scene.cluster, &[3, 4], 1, COORDINATES)[0];
        scene.cluster.wait_for_log(new, RECALLS).unwrap();
        scene.cluster.wait_for_log(new, RESTARTS).unwrap();
        scene.is_kept = true;
    });
}

#[test]
fn program_on_leaving_node_continues_elsewhere() {
    run(|scene| {
        scene.leave(&[scene.coordinator]);
        // It completes its running calls.
        scene.step();
        let new = wait_for(&scene.cluster, &scene.others, 1, COORDINATES)[0];
        scene.cluster.wait_for_log(new, RESTARTS).unwrap();
        scene.is_kept = true;
    });
}

#[test]
fn leaving_node_causes_no_recomputation() {
    run(|scene| {
        scene.leave(&[scene.others[0]]);
        scene.step();
        scene.cluster.wait_for_log(scene.coordinator, GONE).unwrap();
        let log = scene.cluster.log(scene.coordinator);
        let gone = log.lines().find(|line| line.contains(GONE));
        assert!(gone.is_some_and(|line| line.ends_with("repeated=0")), "{log}");
        scene.is_kept = true;
    });
}

#[test]
fn cordoned_node_gets_no_more_calls() {
    run(|scene| {
        let name = scene.cluster.name_of(scene.others[0]).unwrap();
        assert_eq!(scene.cluster.run("taskwork", &["cordon", &name]).unwrap().code, 0);
        scene.cluster.wait_for_log(scene.coordinator, CORDONED).unwrap();
        (scene.is_kept, scene.is_cordoned) = (true, true);
    });
}

#[test]
fn joining_node_gets_calls_at_once() {
    run(|scene| {
        let new = scene.cluster.start_node("mesh", &["--workers", "1"]).unwrap();
        scene.cluster.wait_for_log(new, FOLLOWS).unwrap();
        let log = scene.cluster.log(new);
        let line = log.lines().find(|line| line.contains(FOLLOWS)).unwrap();
        assert!(line.contains("job{job=j-0000000000 node=n"), "{line}");
    });
}

/// Runs a program of tasks that call tasks, applies a fault to a cluster whose tasks wait for such calls, and
/// compares the result.
fn grove(happens: impl Fn(&mut Scene)) {
    let cluster = cluster("grove");
    let expected = cluster.json("grove", &["solve", "--sequential", "--quiet"]).unwrap();
    let gate = cluster.gate().unwrap();
    gate.open_up_to(3).unwrap();
    let submit = ["submit", "--wait", "--json", "--gate", gate.path()];
    let running = cluster.begin("grove", &submit).unwrap();
    let coordinator = wait_for(&cluster, &[0, 1, 2], 1, COORDINATES)[0];
    let others = wait_for(&cluster, &[0, 1, 2], 2, FOLLOWS);
    wait_for(&cluster, &others, 2, RECORDS_ENDS);
    let mut scene =
        Scene { cluster, coordinator, others, gate, links: 3, is_kept: false, is_cordoned: false };
    happens(&mut scene);
    scene.gate.open().unwrap();
    let said = running.end().unwrap();
    assert_eq!(said.code, 0, "{}\n{}", said.err, scene.cluster.logs());
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["output"], expected["output"], "{}", scene.cluster.logs());
}

#[test]
fn tasks_waiting_for_calls_on_killed_node_continue() {
    grove(|scene| {
        scene.cluster.kill_nodes(&scene.others[..1]).unwrap();
        scene.cluster.wait_for_log(scene.coordinator, GONE).unwrap();
    });
}

#[test]
fn nested_calls_run_again_when_node_of_program_is_killed() {
    grove(|scene| {
        scene.cluster.kill_nodes(&[scene.coordinator]).unwrap();
        let new = wait_for(&scene.cluster, &scene.others, 1, COORDINATES)[0];
        scene.cluster.wait_for_log(new, RESTARTS).unwrap();
    });
}

#[test]
fn draining_node_leaves_when_its_waiting_tasks_complete() {
    grove(|scene| {
        scene.leave(&[scene.others[0]]);
        scene.gate.open_up_to(1 << 4).unwrap();
        scene.cluster.wait_for_log(scene.coordinator, GONE).unwrap();
    });
}

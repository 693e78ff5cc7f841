//! Operator views of a workflow on a cluster: its calls by task and state, the reason why one waits, their
//! graph and trace.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::{Cluster, SOON};

/// The number of chains.
const WIDTH: u64 = 8;

/// The number of links of each.
const LENGTH: u64 = 4;

/// A call of the first links, which wait at the gate, and one of the second links, which read their outputs.
const FIRST: u64 = WIDTH;
const SECOND: u64 = 2 * WIDTH;

/// Returns the number of calls of a task in a state, by the operator's command; 0 if it prints none yet.
fn calls(cluster: &Cluster, id: &str, task: &str, state: &str) -> u64 {
    let job = cluster.json("taskwork", &["job", id]).unwrap();
    let rows = job["display"]["tables"][0]["rows"].as_array().cloned().unwrap_or_default();
    let of_task = rows.iter().find(|of| of["task"] == task);
    of_task.and_then(|of| of[state].as_u64()).unwrap_or(0)
}

fn wait_for_calls(cluster: &Cluster, id: &str, (task, state): (&str, &str), number: u64) {
    let deadline = Instant::now() + SOON;
    while calls(cluster, id, task, state) != number {
        assert!(
            Instant::now() < deadline,
            "{number} calls of {task} are not {state}\n{}\n{}",
            cluster.json("taskwork", &["job", id]).unwrap()["display"],
            cluster.logs()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until this many workers are busy, on both nodes: a node is not idle because the program runs on the
/// other one.
fn wait_for_busy_workers(cluster: &Cluster, id: &str, number: u64) {
    let deadline = Instant::now() + SOON;
    loop {
        let job = cluster.json("taskwork", &["job", id]).unwrap();
        if job["busy_workers"] == number && job["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2) {
            return;
        }
        assert!(Instant::now() < deadline, "{number} workers of two nodes are not busy: {job}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the number of calls that a node has run.
fn calls_of_node(node: &Value) -> Option<u64> {
    node["figures"]["worked"].as_u64()
}

#[test]
fn workflow_calls_are_visible_during_and_after_the_run() {
    let mut cluster = Cluster::shared().unwrap();
    // One worker per chain: a link that waits at the gate occupies its worker, and may start before the last
    // chain does.
    cluster.start_nodes("mesh", 2, &["--workers", &(WIDTH / 2).to_string()]).unwrap();
    let (gate, file) = (cluster.gate().unwrap(), |name: &str| cluster.folder().join(name));
    let (trace, graph) = (file("trace.json"), file("graph.svg"));
    let (width, length) = (WIDTH.to_string(), LENGTH.to_string());
    let mut submit = vec!["submit", "--wait", "--json", "--width", &width, "--length", &length, "--gate"];
    submit.extend([gate.path(), "--trace", trace.to_str().unwrap()]);
    // Connects the nodes, so that none gets calls of the next job before the other one takes part in it.
    let first = cluster.run("mesh", &["submit", "--wait", "--width", &width, "--length", "2"]).unwrap();
    assert_eq!(first.code, 0, "{first:?}");
    let running = cluster.begin("mesh", &submit).unwrap();
    let deadline = Instant::now() + SOON;
    let id = loop {
        let jobs = cluster.json("taskwork", &["jobs"]).unwrap();
        let open = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["state"] != "done"));
        if let Some(id) = open.and_then(|job| job["job"].as_str()) {
            break id.to_owned();
        }
        assert!(Instant::now() < deadline, "there is no job");
    };

    // The first links wait at the gate, and the second ones for them; the program has made no further calls.
    wait_for_calls(&cluster, &id, ("begin", "ended"), WIDTH);
    wait_for_calls(&cluster, &id, ("link", "waiting"), WIDTH);
    wait_for_busy_workers(&cluster, &id, WIDTH);
    let first =
        cluster.json("taskwork", &["job", &id, "--show", "call", "--about", &FIRST.to_string()]).unwrap();
    assert!(first["state"] == "runs" || first["state"] == "ready", "{first}");
    let second =
        cluster.json("taskwork", &["job", &id, "--show", "call", "--about", &SECOND.to_string()]).unwrap();
    assert_eq!((&second["state"], &second["task"]), (&"waits".into(), &"link".into()), "{second}");
    assert_eq!(second["missing"][0]["call"], FIRST, "{second}");
    let said = cluster
        .run("taskwork", &["job", &id, "--show", "call", "--about", &(10 * WIDTH).to_string()])
        .unwrap();
    assert!(said.out.contains("was not made yet"), "{said:?}");
    let said = cluster
        .run("taskwork", &["job", &id, "--show", "graph.svg", "--output", graph.to_str().unwrap()])
        .unwrap();
    assert_eq!(said.code, 0, "{said:?}\n{}", cluster.logs());
    let drawn = fs::read_to_string(&graph).unwrap();
    assert_eq!(drawn.matches("<g>").count() as u64, 3 * WIDTH, "each call has a box");
    let live = file("live.json");
    let said = cluster
        .run("taskwork", &["job", &id, "--show", "trace.json", "--output", live.to_str().unwrap()])
        .unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(fs::read_to_string(&live).unwrap().contains("\"begin\""), "what has ended is in the trace");

    gate.open().unwrap();
    let ended = running.end().unwrap();
    assert_eq!(ended.code, 0, "{}\n{}", ended.err, cluster.logs());
    let trace: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    let runs = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(runs as u64, WIDTH * (1 + LENGTH));
    wait_for_calls(&cluster, &id, ("link", "ended"), WIDTH * LENGTH);
    let job = cluster.json("taskwork", &["job", &id]).unwrap();
    let worked: u64 = job["nodes"].as_array().unwrap().iter().filter_map(calls_of_node).sum();
    assert_eq!(worked, WIDTH * (1 + LENGTH), "each call counts once: {job}");
    assert!(job["efficiency"].as_f64().unwrap() > 0.0, "{job}");
    let after = file("after.dot");
    let said = cluster
        .run("taskwork", &["job", &id, "--show", "graph.dot", "--output", after.to_str().unwrap()])
        .unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(fs::read_to_string(&after).unwrap().starts_with("digraph"));
    let said = cluster.run("taskwork", &["job", &id, "--show", "call", "--about", "3"]).unwrap();
    assert!(said.code == 1 && said.err.contains("only a running job can be asked"), "{said:?}");
}

#[test]
fn workflow_with_failed_program_is_failed_job_for_commands_and_later_jobs() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("mesh", 2, &["--workers", "1"]).unwrap();
    let file = |name: &str| cluster.folder().join(name);
    let (gate, trace) = (file("no number"), file("trace.json"));
    fs::write(&gate, "x").unwrap();
    let size = ["submit", "--width", "2", "--length", "2"];
    let failing = [&size[..], &["--gate", gate.to_str().unwrap()]].concat();
    let submit =
        |arguments: &[&str]| cluster.json("mesh", arguments).unwrap()["job"].as_str().unwrap().to_owned();
    // Either chain may fail first.
    let says = "has failed: invalid digit found in string";

    let failed = submit(&failing);
    let next = submit(&[&size[..], &["--after", &failed]].concat());
    for command in ["wait", "result"] {
        let said = cluster.run("taskwork", &[command, &failed]).unwrap();
        assert!(said.code == 1 && said.err.contains(says) && said.out.is_empty(), "{command}: {said:?}");
    }
    let said = cluster.run("taskwork", &["wait", &next]).unwrap();
    assert!(said.code == 1 && said.err.contains(&format!("job {failed}, on which it depends")), "{said:?}");
    for job in cluster.json("taskwork", &["jobs"]).unwrap().as_array().unwrap() {
        assert_eq!(job["state"], "failed", "{job}");
    }

    let waited = [&failing[..], &["--wait", "--trace", trace.to_str().unwrap()]].concat();
    let said = cluster.run("mesh", &waited).unwrap();
    assert!(said.code == 1 && said.err.matches(says).count() == 1, "{said:?}");
    assert!(!said.err.contains("Err("), "{said:?}");
    assert!(fs::read_to_string(&trace).unwrap().contains("\"link\""), "the trace shows the call that failed");

    let id = submit(&size);
    let shown = cluster.json("taskwork", &["wait", &id]).unwrap();
    let waited = cluster.json("mesh", &[&size[..], &["--wait"]].concat()).unwrap();
    assert_eq!(shown["output"], waited["output"], "the answer is readable without the program");
}

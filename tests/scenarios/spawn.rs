//! Tasks that spawn others and wait for them, on node processes that join and leave: each waits until
//! everything is complete, wherever the tasks run, and wherever it waits itself.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, SOON},
    gate::Gate,
    tree::Tree,
};

const DEPTH: u32 = 13;

fn submit(cluster: &Cluster, gate: &Gate) -> String {
    let arguments = ["submit", &DEPTH.to_string(), "--gate", gate.path(), "--forks"];
    cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
}

fn job(cluster: &Cluster, id: &str) -> Value {
    cluster.json("taskwork", &["job", id]).unwrap()
}

/// Waits until this many nodes have worked on a job.
fn wait_for_nodes(cluster: &Cluster, id: &str, nodes: usize) {
    let deadline = Instant::now() + SOON;
    let has_worked = |node: &Value| node["figures"]["worked"].as_u64().unwrap_or(0) > 0;
    while job(cluster, id)["nodes"].as_array().unwrap().iter().filter(|node| has_worked(node)).count() < nodes
    {
        assert!(Instant::now() < deadline, "not in time: {nodes} nodes at work\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

fn assert_done(cluster: &Cluster, id: &str) {
    let done = cluster.json("taskwork", &["wait", id]).unwrap();
    assert_eq!(done["output"], Tree::sequential(DEPTH).0, "{done}\n{}", cluster.logs());
    assert_eq!(job(cluster, id)["attempt"], 1, "{}", cluster.logs());
}

#[test]
fn waiting_task_continues_although_nodes_die_and_leave() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 3, &["--workers", "2"]).unwrap();
    let gate = cluster.gate().unwrap();
    let id = submit(&cluster, &gate);
    wait_for_nodes(&cluster, &id, 3);
    cluster.kill_nodes(&[0]).unwrap();
    let leaves = cluster.name_of(1).unwrap();
    assert_eq!(cluster.run("taskwork", &["drain", &leaves]).unwrap().code, 0);
    gate.open().unwrap();
    assert_done(&cluster, &id);
}

#[test]
fn waiting_task_continues_after_suspend_and_resume() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let gate = cluster.gate().unwrap();
    let id = submit(&cluster, &gate);
    wait_for_nodes(&cluster, &id, 2);
    assert_eq!(cluster.run("taskwork", &["suspend", &id]).unwrap().code, 0);
    let deadline = Instant::now() + SOON;
    // All of its tasks are parked then.
    while job(&cluster, &id)["nodes"].as_array().unwrap().iter().any(|node| node["state"] == "member") {
        if job(&cluster, &id)["parked_tasks"].as_u64().unwrap_or(0) > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "not in time: suspended\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cluster.run("taskwork", &["resume", &id]).unwrap().code, 0);
    gate.open().unwrap();
    assert_done(&cluster, &id);
}

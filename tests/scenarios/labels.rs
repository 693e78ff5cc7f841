//! Nodes with labels, jobs that require them, and members without workers.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, SOON},
    tree::Tree,
};

const DEPTH: &str = "14";

fn states() -> u64 {
    Tree::sequential(14).0
}

fn job(cluster: &Cluster, id: &str) -> Value {
    cluster.json("taskwork", &["job", id]).unwrap()
}

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the nodes that have worked on a job.
fn workers_of(job: &Value) -> Vec<&str> {
    job["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap()).collect()
}

#[test]
fn jobs_with_different_labels_run_concurrently_with_own_leaders() {
    let mut cluster = Cluster::shared().unwrap();
    for zone in ["zone=a", "zone=b"] {
        cluster.start_nodes("tree", 1, &["--workers", "1", "--label", zone]).unwrap();
    }
    let gate = cluster.gate().unwrap();
    let submit = ["submit", DEPTH, "--gate", gate.path(), "--wait", "--json"];
    let running: Vec<_> = ["zone=a", "zone=b"]
        .map(|zone| cluster.begin("tree", &[&submit[..], &["--require", zone]].concat()).unwrap())
        .into();
    let leaders = || ["0", "1"].map(|id| cluster.run("taskwork", &["job", id, "--json"]).unwrap());
    let lead = |said: &str| serde_json::from_str::<Value>(said).is_ok_and(|job| job["leader"].is_string());
    wait_until(&cluster, "both are led", || leaders().iter().all(|said| lead(&said.out)));
    gate.open().unwrap();
    for running in running {
        let said = running.end().unwrap();
        assert_eq!(said.code, 0, "{said:?}\n{}", cluster.logs());
        let said: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(said["states"], states(), "{said}");
        let job = job(&cluster, said["job"].as_str().unwrap());
        let node = usize::from(job["require"]["zone"] == "b");
        assert_eq!(workers_of(&job), [cluster.name_of(node).unwrap()], "{job}");
    }
}

#[test]
fn job_without_matching_node_reports_missing_labels_and_starts_later() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &["--label", "zone=a", "--label", "ssd=no"]).unwrap();
    let submitted = cluster.run("tree", &["submit", DEPTH, "--require", "zone=a,gpu=yes"]).unwrap();
    assert!(submitted.err.contains("has gpu=yes"), "{submitted:?}");
    cluster.wait_for_log(0, "missing=gpu=yes").unwrap();
    let id = submitted.out.trim();
    let waits = job(&cluster, id);
    assert_eq!(waits["state"], "no_nodes", "{waits}");
    assert!(waits["missing"].as_str().unwrap().ends_with("has gpu=yes"), "{waits}");
    assert!(cluster.run("taskwork", &["job", id]).unwrap().out.contains("has gpu=yes"));
    assert!(cluster.run("taskwork", &["status"]).unwrap().out.contains("has gpu=yes"));
    // It does not block other jobs, and a member without workers does not help.
    cluster.start_nodes("tree", 1, &["--workers", "0", "--label", "zone=a,gpu=yes"]).unwrap();
    let other = cluster.json("tree", &["submit", DEPTH, "--wait"]).unwrap();
    assert_eq!(other["states"], states(), "{other}");
    assert!(job(&cluster, id)["missing"].is_string());
    cluster.start_nodes("tree", 1, &["--label", "zone=a,gpu=yes,more=1"]).unwrap();
    let ended = cluster.json("taskwork", &["wait", id]).unwrap();
    assert_eq!(ended["output"], states(), "{ended}");
    let done = job(&cluster, id);
    assert_eq!(workers_of(&done), [cluster.name_of(2).unwrap()], "{done}");
    assert_eq!(done["missing"], Value::Null, "{done}");
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let idle = cluster.name_of(1).unwrap();
    let idle = nodes.as_array().unwrap().iter().find(|node| node["node"] == idle.as_str()).unwrap();
    assert_eq!((&idle["workers"], &idle["labels"]["gpu"]), (&0.into(), &"yes".into()), "{nodes}");
    assert!(idle["memory_bytes"].as_u64() > Some(1 << 20), "{nodes}");
    // It leaves like any other node.
    cluster.nodes[1].signal("TERM").unwrap();
    assert!(cluster.nodes[1].wait().unwrap().success(), "{}", cluster.log(1));
}

#[test]
fn invalid_labels_are_refused() {
    let cluster = Cluster::shared().unwrap();
    for (arguments, says) in [
        (&["node", "--label", "zone"][..], "name=value"),
        (&["node", "--label", "a=1", "--label", "a=2"], "already"),
        (&["submit", "3", "--require", "a=1,a=2"], "already"),
        (&["submit", "3", "--require", "a=1", "--require", "a=2"], "already"),
        (&["submit", "3", "--require", ""], "name=value"),
    ] {
        let said = cluster.run("tree", arguments).unwrap();
        assert!(said.code == 2 && said.err.contains(says), "{arguments:?}: {said:?}");
    }
    assert!(cluster.run("taskwork", &["jobs"]).unwrap().err.contains("no cluster"), "nothing was made");
}

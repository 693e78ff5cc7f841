//! Cordoned nodes, and the selection of nodes by label and host.

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

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

fn job(cluster: &Cluster, id: &str) -> Value {
    cluster.json("taskwork", &["job", id]).unwrap()
}

fn submit(cluster: &Cluster, options: &[&str]) -> String {
    let arguments = [&["submit", DEPTH], options].concat();
    cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
}

fn assert_done(cluster: &Cluster, id: &str) {
    let done = cluster.json("taskwork", &["wait", id]).unwrap();
    assert_eq!(done["output"], Tree::sequential(14).0, "{done}\n{}", cluster.logs());
}

/// Returns the nodes that have worked on a job.
fn workers_of(job: &Value) -> Vec<&str> {
    job["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap()).collect()
}

fn cordoned(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let cordoned = nodes.as_array().unwrap().iter().filter(|node| node["cordoned"] == true);
    cordoned.map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn cordoned_node_starts_no_job_until_uncordoned() {
    let mut cluster = Cluster::shared().unwrap();
    for zone in ["zone=a", "zone=b"] {
        cluster.start_nodes("tree", 1, &["--workers", "1", "--label", zone]).unwrap();
    }
    let names = [0, 1].map(|node| cluster.name_of(node).unwrap());
    let said = cluster.run("taskwork", &["cordon", "--label", "zone=a"]).unwrap();
    assert!(said.code == 0 && said.out.contains(&format!("taskwork uncordon {}", names[0])), "{said:?}");
    cluster.wait_for_log(0, "is_cordoned=true").unwrap();
    assert_eq!(cordoned(&cluster), [names[0].clone()]);
    assert!(cluster.run("taskwork", &["nodes"]).unwrap().out.contains("cordoned"));
    let free = submit(&cluster, &[]);
    assert_done(&cluster, &free);
    assert_eq!(workers_of(&job(&cluster, &free)), [names[1].as_str()]);
    let waits = submit(&cluster, &["--require", "zone=a"]);
    let missing = job(&cluster, &waits);
    assert_eq!(missing["state"], "no_nodes", "{missing}");
    assert!(missing["missing"].as_str().unwrap().contains("cordoned"), "{missing}");
    assert_eq!(cluster.run("taskwork", &["uncordon", &names[0]]).unwrap().code, 0);
    assert_done(&cluster, &waits);
    assert!(cordoned(&cluster).is_empty());
}

#[test]
fn cordoned_node_leads_its_job_after_loss_of_the_leader() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let gate = cluster.gate().unwrap();
    let id = submit(&cluster, &["--gate", gate.path()]);
    let leader = || job(&cluster, &id)["leader"].as_str().map(str::to_owned);
    wait_until(&cluster, "both nodes work on it", || workers_of(&job(&cluster, &id)).len() == 2);
    wait_until(&cluster, "it is led", || leader().is_some());
    let leads = leader().unwrap();
    let [leads, stays] = if cluster.name_of(0) == Some(leads) { [0, 1] } else { [1, 0] };
    let name = cluster.name_of(stays).unwrap();
    assert_eq!(cluster.run("taskwork", &["cordon", &name]).unwrap().code, 0);
    cluster.wait_for_log(stays, "is_cordoned=true").unwrap();
    cluster.kill_nodes(&[leads]).unwrap();
    gate.open().unwrap();
    wait_until(&cluster, "the cordoned node leads", || job(&cluster, &id)["leader"].as_str() == Some(&*name));
    assert_eq!(cordoned(&cluster), std::slice::from_ref(&name), "no other node has a part in it");
    assert_eq!(cluster.run("taskwork", &["uncordon", &name]).unwrap().code, 0);
    assert_done(&cluster, &id);
}

#[test]
fn nodes_drain_by_label_and_wrong_selections_are_refused() {
    let mut cluster = Cluster::shared().unwrap();
    for zone in ["zone=a", "zone=b"] {
        cluster.start_nodes("tree", 1, &["--label", zone]).unwrap();
    }
    for (arguments, code, says) in [
        (&["drain", "--label", "zone=c"][..], 5, "has zone=c"),
        (&["cordon", "--label", "zone"], 2, "name=value"),
        (&["cordon"], 2, "NODE"),
        (&["uncordon", "n", "--label", "zone=a"], 2, "--label"),
        (&["cordon", "nobody"], 5, "nobody"),
    ] {
        let said = cluster.run("taskwork", arguments).unwrap();
        assert!(said.code == code && said.err.contains(says), "{arguments:?}: {said:?}");
    }
    let drained = cluster.run("taskwork", &["drain", "--label", "zone=a", "--wait"]).unwrap();
    assert_eq!(drained.code, 0, "{drained:?}");
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    assert_eq!(nodes[0]["labels"]["zone"], "b", "{nodes}");
    let host = nodes[0]["host"].as_str().unwrap().to_owned();
    assert_eq!(cluster.run("taskwork", &["drain", &host, "--wait"]).unwrap().code, 0);
    assert!(cluster.nodes[1].wait().unwrap().success(), "{}", cluster.log(1));
}

//! The lists of the operator's command: events, filters, watching, one node.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::{Cluster, Running, SOON};

/// The time within which an observed event is printed.
const SHOWN: Duration = Duration::from_secs(3);

/// Returns the objects in the lines of an output.
fn objects(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until a watching command has printed an object, and returns it.
fn wait_for(cluster: &Cluster, watching: &Running, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = objects(&watching.output()).into_iter().find(&holds) {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {}\n{}", watching.output(), cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn events_are_listed_and_watched() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &[]).unwrap();
    let done = cluster.json("tree", &["submit", "3", "--name", "first", "--wait"]).unwrap();
    let first = done["job"].as_str().unwrap().to_owned();
    let watching = cluster.begin("taskwork", &["events", "--watch", "--json"]).unwrap();
    for event in ["job_submitted", "job_over"] {
        let found = wait_for(&cluster, &watching, |one| one["event"] == event);
        assert_eq!((&found["job"], &found["schema"]), (&Value::from(first.as_str()), &2.into()), "{found}");
    }
    let name = cluster.name_of(0).unwrap();
    let joined = wait_for(&cluster, &watching, |one| one["event"] == "joined");
    assert_eq!(joined["node"], name.as_str());
    assert_ne!(joined["host"], "", "{joined}");
    // An event before the start of the observation is not printed, so it is repeated.
    let deadline = Instant::now() + SOON;
    let is_cordon = |one: &Value| matches!(one["event"].as_str(), Some("cordoned" | "uncordoned"));
    let mut acts = ["cordon", "uncordon"].into_iter().cycle();
    while !objects(&watching.output()).iter().any(is_cordon) {
        assert!(Instant::now() < deadline, "not in time: {}", watching.output());
        assert_eq!(cluster.run("taskwork", &[acts.next().unwrap(), &name]).unwrap().code, 0);
        let shown = Instant::now() + SHOWN;
        while Instant::now() < shown && !objects(&watching.output()).iter().any(is_cordon) {
            thread::sleep(Duration::from_millis(50));
        }
    }
    let gone = cluster.run("taskwork", &["drain", &name, "--wait"]).unwrap();
    assert_eq!(gone.code, 0, "{gone:?}");
    assert_eq!(wait_for(&cluster, &watching, |one| one["event"] == "left")["node"], name.as_str());
    let text = cluster.run("taskwork", &["events", "--job", &first]).unwrap().out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[1].ends_with("(first) is over: done"), "{text}");
}

#[test]
fn lists_are_filtered_sorted_and_watched() {
    let mut cluster = Cluster::shared().unwrap();
    for zone in ["zone=a", "zone=b"] {
        cluster.start_nodes("tree", 1, &["--label", zone]).unwrap();
    }
    for (name, priority) in [("first", "0"), ("second", "5")] {
        let arguments = ["submit", "3", "--name", name, "--priority", priority, "--wait"];
        cluster.json("tree", &arguments).unwrap();
    }
    let waits = ["submit", "3", "--name", "third", "--require", "zone=c"];
    assert_eq!(cluster.run("tree", &waits).unwrap().code, 0);
    let jobs = |options: &[&str]| cluster.json("taskwork", &[&["jobs"], options].concat()).unwrap();
    assert_eq!(names(&jobs(&["--state", "done", "--sort", "priority"])), ["second", "first"]);
    assert_eq!(names(&jobs(&["--state", "no_nodes"])), ["third"]);
    assert_eq!(names(&jobs(&["--name", "ir", "--reverse"])), ["third", "first"]);
    let unknown = cluster.run("taskwork", &["jobs", "--state", "over"]).unwrap();
    assert!(unknown.code == 2 && unknown.err.contains("no_nodes"), "{unknown:?}");
    let nodes = cluster.json("taskwork", &["nodes", "--label", "zone=b"]).unwrap();
    let name = cluster.name_of(1).unwrap();
    assert_eq!(nodes.as_array().unwrap().iter().map(|node| &node["node"]).collect::<Vec<_>>(), [&*name]);
    let watching = cluster.begin("taskwork", &["jobs", "--watch", "--json"]).unwrap();
    wait_for(&cluster, &watching, |list| names(list).len() == 3);
    assert_eq!(cluster.run("tree", &["submit", "3", "--name", "fourth"]).unwrap().code, 0);
    wait_for(&cluster, &watching, |list| names(list).contains(&"fourth"));
}

#[test]
fn node_is_shown_by_name_and_by_host_with_its_jobs() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let gate = cluster.gate().unwrap();
    let submitted = cluster.json("tree", &["submit", "14", "--gate", gate.path(), "--name", "big"]).unwrap();
    let id = submitted["job"].as_str().unwrap();
    let name = cluster.name_of(0).unwrap();
    let node = || cluster.json("taskwork", &["node", &name]).unwrap()[0].clone();
    let deadline = Instant::now() + SOON;
    while node()["jobs"][0]["job"] != id {
        assert!(Instant::now() < deadline, "not in time: {}\n{}", node(), cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
    let shown = node();
    assert_eq!(
        (&shown["node"], &shown["jobs"][0]["name"]),
        (&name.as_str().into(), &"big".into()),
        "{shown}"
    );
    assert!(shown["resident_bytes"].as_u64() > Some(1 << 20), "{shown}");
    let host = shown["host"].as_str().unwrap();
    let on_host = cluster.json("taskwork", &["node", host]).unwrap();
    assert_eq!(on_host.as_array().unwrap().len(), 2, "{on_host}");
    let text = cluster.run("taskwork", &["node", &name]).unwrap().out;
    assert!(text.contains(&name) && text.contains("big") && text.contains("QUEUED"), "{text}");
    assert_eq!(cluster.run("taskwork", &["node", "nobody"]).unwrap().code, 5);
    gate.open().unwrap();
}

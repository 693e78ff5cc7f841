//! A controller starts machines of two providers for the calls of a workflow, and ends them without a loss of data.
//!
//! The commands of the job wait at a gate, so that its end does not depend on the duration of anything.

use std::{fs, path::Path, thread, time::Duration, time::Instant};

use serde_json::{Value, json};
use taskwork_tests::{
    cluster::{Cluster, Running, program},
    gate::Gate,
};

use crate::scale::Machines;

/// The number of commands. Those from [`HELD`] on wait until the gate is open.
const COMMANDS: u64 = 600;
const HELD: u64 = COMMANDS - 6;
/// The number of workers on all machines, of which each has 2.
const WORKERS: u64 = 16;
/// The time limit of each step.
const PATIENCE: Duration = Duration::from_secs(300);

/// Each command writes its number once the gate has passed it. The last one needs a label that few machines have.
const JOB: &str = r#"
[each]
number = [NUMBERS]
[task.wait]
out = ["waited/{number}"]
run = """
while [ "$(cat 'GATE')" -le {number} ]; do sleep 0.05; done
echo {number} > {out}
"""
with = { timeout = "10 min" }
[task.merge]
in = ["waited/{number}"]
out = ["all.txt"]
run = "cat {in} | sort -n > {out}"
with = { needs = "fat" }
"#;

fn job(folder: &Path, gate: &Gate) -> String {
    let numbers: Vec<String> = (0..COMMANDS).map(|number| format!("\"{number}\"")).collect();
    let text = JOB.replace("NUMBERS", &numbers.join(", ")).replace("GATE", gate.path());
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("job.toml"), text).unwrap();
    folder.join("job.toml").to_str().unwrap().to_owned()
}

/// Writes the files of two providers, and of a connector to both. Returns its path and the folders of the machines.
fn connectors(cluster: &Cluster) -> (String, [Machines; 2]) {
    let node = program("flow").unwrap();
    let offer = |name: &str, price: f64, max: u32, labels: Value| json!({"name": name, "workers": 2, "price_per_hour": price, "max": max, "start_s": 1, "labels": labels});
    let file = |name: &str, offers: Vec<Value>| {
        let content = json!({
            "kind": "local",
            "currency": "EUR",
            "program": [node, "node", "--workers", "2", "--drain-deadline", "600", "--zk-session-timeout", "4"],
            "folder": name,
            "grace_s": 60,
            "offers": offers,
        });
        fs::write(cluster.folder().join(format!("{name}.json")), content.to_string()).unwrap();
    };
    let fat = offer("fat", 1.0, 1, json!({"fat": "yes"}));
    file("private", vec![offer("private", 0.0, 4, json!({}))]);
    file("public", vec![offer("public", 0.1, 4, json!({})), fat]);
    let both = cluster.folder().join("both.json");
    fs::write(&both, r#"{"kind": "several", "of": ["private.json", "public.json"]}"#).unwrap();
    let machines = ["private", "public"].map(|name| Machines::new(cluster.folder().join(name)));
    (both.to_str().unwrap().to_owned(), machines)
}

/// Returns the number of unfinished calls of the job, and the number of repeated ones.
fn calls(cluster: &Cluster) -> Option<(u64, u64)> {
    let jobs = cluster.json("taskwork", &["jobs"]).ok()?;
    let job = cluster.json("taskwork", &["job", jobs[0]["job"].as_str()?]).ok()?;
    let rows = job["display"]["tables"][0]["rows"].as_array()?;
    let sum = |columns: &[&str]| {
        rows.iter().flat_map(|row| columns.iter().filter_map(|column| row[*column].as_u64())).sum()
    };
    Some((sum(&["waiting", "ready", "running"]), sum(&["repeated"])))
}

fn offers(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster
        .json("taskwork", &["nodes"])
        .map_or_else(|_| Vec::new(), |nodes| nodes.as_array().cloned().unwrap_or_default());
    let offer = |node: &Value| node["labels"]["offer"].as_str().unwrap_or_default().to_owned();
    let mut offers: Vec<String> = nodes.iter().map(offer).collect();
    offers.sort();
    offers
}

fn wait_until(what: &str, by: &Running, machines: &[Machines], mut holds: impl FnMut() -> bool) {
    let before = Instant::now();
    while !holds() {
        let logs: String = machines.iter().map(Machines::logs).collect();
        assert!(before.elapsed() < PATIENCE, "not in time: {what}\n{}\n{logs}", by.errors());
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn machines_of_two_providers_follow_ready_calls_without_repeated_calls() {
    let cluster = Cluster::shared().unwrap();
    let gate = cluster.gate().unwrap();
    let (connector, machines) = connectors(&cluster);
    let file = job(&cluster.folder().join("job"), &gate);
    let submitted = cluster.begin("flow", &["submit", &file, "--wait", "--json"]).unwrap();
    let controller = cluster
        .begin(
            "taskwork",
            &["scale", "--connector", &connector, "--max", "8", "--every", "1", "--zk-session-timeout", "2"],
        )
        .unwrap();

    // All commands are ready, and none has completed.
    let all = [["private"; 4], ["public"; 4]].concat();
    wait_until("8 machines", &controller, &machines, || offers(&cluster) == all);
    let said = cluster.json("taskwork", &["scale", "--explain"]).unwrap();
    let decisions = said["decisions"].as_array().unwrap();
    let wanted: Vec<u64> = decisions.iter().rev().filter_map(|past| past["wanted"].as_u64()).collect();
    assert!(wanted.len() <= 3 && wanted.last() == Some(&8), "not within two rounds of the first: {said}");

    // All but a few commands complete. As long as each worker has a call, no machine leaves.
    gate.open_up_to(HELD).unwrap();
    wait_until("machines without calls leave", &controller, &machines, || {
        let unfinished = calls(&cluster).map(|(unfinished, _)| unfinished);
        let said = cluster.json("taskwork", &["scale", "--explain"]).unwrap();
        let wanted = said["wanted"].as_u64().unwrap();
        let has_work = unfinished.is_some_and(|unfinished| unfinished > WORKERS);
        assert!(wanted == 8 || !has_work, "{unfinished:?} calls: {said}");
        // The workers of the commands that are left.
        assert!(wanted >= (COMMANDS - HELD) / 2, "{said}");
        wanted <= (COMMANDS - HELD) / 2 + 1
    });

    // The last command waits for a machine with its label.
    gate.open().unwrap();
    wait_until("a machine with the label", &controller, &machines, || {
        offers(&cluster).iter().any(|offer| offer == "fat")
    });
    let said = submitted.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{said:?}\n{}", controller.errors());
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["ran"], COMMANDS + 1, "{result}");
    // The display of a job that is over has all its calls.
    assert_eq!(calls(&cluster), Some((0, 0)), "machines left with the only copy of a file");
    let merged = fs::read_to_string(cluster.folder().join("job/all.txt")).unwrap();
    assert_eq!(merged.lines().count() as u64, COMMANDS);
}

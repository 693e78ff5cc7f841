//! Jobs whose shared data is too large for ZooKeeper, so that nodes fetch it from the submitting process, and
//! from each other.

use std::{thread, time::Instant};

use taskwork_tests::{
    cluster::{Cluster, SOON},
    tree::Tree,
};

/// More than the maximum that is stored in ZooKeeper, in MiB.
const BALLAST: &str = "70";

const DEPTH: u32 = 14;

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn assert_done(cluster: &Cluster, id: &str, depth: u32) {
    let done = cluster.json("taskwork", &["wait", id]).unwrap();
    assert_eq!(done["output"], Tree::sequential(depth).0, "{done}\n{}", cluster.logs());
    let job = cluster.json("taskwork", &["job", id]).unwrap();
    assert_eq!(job["attempt"], 1, "{}", cluster.logs());
}

#[test]
fn submitter_exits_after_two_nodes_have_the_data() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let depth = DEPTH.to_string();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", &depth, "--gate", gate.path(), "--ballast", BALLAST];
    let submitted = cluster.json("tree", &submit).unwrap();
    let id = submitted["job"].as_str().unwrap();
    // Its process has exited: only the nodes have the data, so the job must not be suspended.
    let suspended = cluster.run("taskwork", &["suspend", id]).unwrap();
    assert!(suspended.code == 1 && suspended.err.contains("no node would keep it"), "{suspended:?}");
    // One of them is killed.
    cluster.kill_nodes(&[0]).unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    cluster.wait_for_log(2, "the node works on a job").unwrap();
    gate.open().unwrap();
    assert_done(&cluster, id, DEPTH);
}

#[test]
fn job_with_lost_data_waits_and_blocks_no_other() {
    let mut cluster = Cluster::shared().unwrap();
    let submit = ["submit", "3", "--ballast", BALLAST, "--name", "lost"];
    let submitting = cluster.begin("tree", &submit).unwrap();
    let lost = || {
        // The cluster does not exist before its first job.
        let jobs = cluster.json("taskwork", &["jobs"]).ok()?;
        let jobs = jobs.as_array().unwrap().iter();
        let mut ids = jobs.filter(|job| job["name"] == "lost" && job["state"] == "no_nodes");
        ids.next().map(|job| job["job"].as_str().unwrap().to_owned())
    };
    wait_until(&cluster, "it is submitted", || lost().is_some());
    let id = lost().unwrap();
    drop(submitting);
    let says = |text: &str| {
        let said = cluster.run("taskwork", &["job", &id]).unwrap();
        said.out.contains(text)
    };
    wait_until(&cluster, "the submitter is gone", || says("no member has its data"));
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    cluster.wait_for_log(0, "the job waits for its data").unwrap();
    let other = cluster.json("tree", &["submit", "9", "--wait"]).unwrap();
    assert_eq!(other["states"], Tree::sequential(9).0, "{}", cluster.logs());
    assert_eq!(cluster.run("taskwork", &["cancel", &id]).unwrap().code, 0);
}

/// With `TASKWORK_LONG=1`, four GiB on one node, which with the submitter takes 18 GiB of memory.
#[test]
fn shared_data_of_gigabytes_is_distributed() {
    let ballast = if std::env::var_os("TASKWORK_LONG").is_some() { "4096" } else { "65" };
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let submit = ["submit", "9", "--ballast", ballast, "--wait", "--json"];
    let running = cluster.begin("tree", &submit).unwrap();
    let said = running.end_within(10 * SOON).unwrap();
    let done: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(done["states"], Tree::sequential(9).0, "{}", cluster.logs());
}

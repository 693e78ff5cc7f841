//! Jobs that wait until other jobs are done.

use std::{
    thread,
    time::{Duration, Instant},
};

use taskwork_tests::{
    cluster::{Cluster, SOON},
    tree::Tree,
};

/// Submits a job that waits for others, and returns its id.
fn submit(cluster: &Cluster, depth: &str, after: &[&str]) -> String {
    let after = after.iter().flat_map(|id| ["--after", id]);
    let arguments: Vec<&str> = ["submit", depth, "--spin", "100"].into_iter().chain(after).collect();
    cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
}

fn state(cluster: &Cluster, id: &str) -> String {
    cluster.json("taskwork", &["job", id]).unwrap()["state"].as_str().unwrap().to_owned()
}

fn wait_for(cluster: &Cluster, id: &str, wanted: &str) {
    let deadline = Instant::now() + SOON;
    while state(cluster, id) != wanted {
        assert!(Instant::now() < deadline, "{id} is not {wanted}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn job_starts_when_earlier_jobs_are_done() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let gate = cluster.gate().unwrap();
    let first = cluster.json("tree", &["submit", "12", "--gate", gate.path()]).unwrap();
    let first = first["job"].as_str().unwrap().to_owned();
    assert_eq!(cluster.run("taskwork", &["suspend", &first]).unwrap().code, 0);
    let second = submit(&cluster, "11", &["0"]);
    let third = submit(&cluster, "10", &[&second, &first]);
    // It is suspended, so they wait for it, and a job that waits for nothing does not.
    let other = cluster.json("tree", &["submit", "9", "--wait"]).unwrap();
    assert_eq!(other["states"], Tree::sequential(9).0, "{other}");
    assert_eq!([state(&cluster, &second), state(&cluster, &third)], ["waiting", "waiting"]);
    assert!(cluster.run("taskwork", &["job", &third]).unwrap().out.contains(&format!("{second}, {first}")));
    assert_eq!(cluster.run("taskwork", &["resume", &first]).unwrap().code, 0);
    gate.open().unwrap();
    for (id, depth) in [(&third, 10), (&second, 11), (&first, 12)] {
        let done = cluster.json("taskwork", &["wait", id]).unwrap();
        assert_eq!(done["output"], Tree::sequential(depth).0, "{done}");
    }
}

#[test]
fn job_after_failed_job_fails_with_reason() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let endless = submit(&cluster, "60", &[]);
    let second = submit(&cluster, "3", &[&endless]);
    let third = submit(&cluster, "3", &[&second]);
    wait_for(&cluster, &endless, "running");
    assert_eq!(cluster.run("taskwork", &["cancel", &endless]).unwrap().code, 0);
    for (id, before, says) in [(&second, &endless, "was cancelled"), (&third, &second, "has failed")] {
        wait_for(&cluster, id, "failed");
        let job = cluster.json("taskwork", &["job", id]).unwrap();
        let reason = job["reason"].as_str().unwrap();
        assert!(reason.contains(before.as_str()) && reason.contains(says), "{job}");
    }
    // A job cannot wait for a later job, and so not for itself.
    for (nobody, code) in [("99", 5), ("j-0000000003", 5), ("soon", 2)] {
        let refused = cluster.run("tree", &["submit", "3", "--after", nobody]).unwrap();
        assert_eq!(refused.code, code, "{refused:?}");
    }
    let many: Vec<&str> = [["--after", "0"]; 101].concat();
    let refused = cluster.run("tree", &[&["submit", "3"], &many[..]].concat()).unwrap();
    assert!(refused.code == 2 && refused.err.contains("at most 100 others, not for 101"), "{refused:?}");
    assert_eq!(cluster.json("taskwork", &["jobs"]).unwrap().as_array().unwrap().len(), 3);
}

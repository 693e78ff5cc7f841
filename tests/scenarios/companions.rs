//! Companions on node processes.

use std::{
    thread,
    time::{Duration, Instant},
};

use taskwork_tests::{
    cluster::{Cluster, SOON},
    tree::Tree,
};

/// Submits a job whose nodes have companions.
fn submit(cluster: &Cluster, depth: u32) -> String {
    let arguments = ["submit", &depth.to_string(), "--spin", "4000", "--companion"];
    cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
}

/// The depth of a tree that is not searched completely.
const ENDLESS: u32 = 60;
/// The depth of a small tree.
const DEPTH: u32 = 13;

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn companions_exchange_messages_and_are_asked_before_their_node_leaves() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 3, &["--workers", "1"]).unwrap();
    let names = [0, 1, 2].map(|node| cluster.name_of(node).unwrap());
    let job = submit(&cluster, ENDLESS);
    wait_until(&cluster, "all exchange greetings", || {
        let heard =
            |by: usize, from: &str| cluster.log(by).contains(&format!("a companion is heard from={from}"));
        (0..3).all(|by| names.iter().enumerate().all(|(from, name)| from == by || heard(by, name)))
    });
    cluster.kill_nodes(&[0]).unwrap();
    wait_until(&cluster, "the others are notified of the loss", || {
        [1, 2]
            .iter()
            .all(|&node| cluster.log(node).contains(&format!("a companion is gone node={}", names[0])))
    });
    assert_eq!(cluster.run("taskwork", &["drain", &names[1]]).unwrap().code, 0);
    wait_until(&cluster, "the companion of the node that leaves has ended", || {
        cluster.log(1).contains("a companion ends")
    });
    let (log, asked) = (cluster.log(1), "a companion is asked to rescue what it has");
    let (before, _) = log.split_once("a companion ends").unwrap();
    assert!(before.contains(asked), "{log}");
    assert!(!cluster.log(2).contains(asked), "{}", cluster.logs());
    assert_eq!(cluster.run("taskwork", &["cancel", &job]).unwrap().code, 0);
    wait_until(&cluster, "the last companion ends with the job", || {
        cluster.log(2).contains("a companion ends")
    });
    let done = cluster.json("taskwork", &["wait", &submit(&cluster, DEPTH)]).unwrap();
    assert_eq!(done["output"], Tree::sequential(DEPTH).0, "{done}\n{}", cluster.logs());
}

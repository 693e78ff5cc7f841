//! Workflows on node processes: the result is that of the sequential run, whatever happens to nodes.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::{Cluster, SOON};
use zk_server::Setup;

/// A product of 512 multiplications that wait for 20 ms each.
const PRODUCT: [&str; 6] = ["--blocks", "8", "--size", "20", "--wait-ms", "20"];

/// What the node says on which the program runs.
const HEAD: &str = "the program runs on this node";
/// What another one says when the first calls have ended.
const REMEMBERS: &str = "this node remembers which calls of the program have ended";
/// What the first one says when it has been told of an earlier run.
const ANEW: &str = "the program begins anew; what has ended is not run again";
/// What another one says.
const OTHER: &str = "this node runs calls of the program on another one";

/// A cluster of three nodes.
fn cluster() -> Cluster {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("matmul", 3, &["--workers", "1"]).unwrap();
    cluster
}

fn sequential(cluster: &Cluster) -> Value {
    let solve = ["solve", "--sequential", "--quiet", "--blocks", "8", "--size", "20"];
    cluster.json("matmul", &solve).unwrap()["blocks"].clone()
}

/// Waits until so many nodes have said something, and returns which.
fn wait_for(cluster: &Cluster, nodes: &[usize], count: usize, text: &str) -> Vec<usize> {
    let deadline = Instant::now() + SOON;
    loop {
        let said: Vec<_> = nodes.iter().copied().filter(|node| cluster.log(*node).contains(text)).collect();
        if said.len() >= count {
            return said;
        }
        assert!(Instant::now() < deadline, "{count} nodes do not say {text:?}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the program, does something to the cluster in the middle, and compares the result.
fn run(cluster: &mut Cluster, happens: impl FnOnce(&mut Cluster, usize, &[usize])) {
    let expected = sequential(cluster);
    let submit = [&["submit", "--wait", "--json"], &PRODUCT[..]].concat();
    let mut running = cluster.begin("matmul", &submit).unwrap();
    let head = wait_for(cluster, &[0, 1, 2], 1, HEAD)[0];
    let others = wait_for(cluster, &[0, 1, 2], 2, OTHER);
    wait_for(cluster, &others, 2, REMEMBERS);
    assert!(!running.has_ended().unwrap(), "the job was too short\n{}", running.output());
    happens(cluster, head, &others);
    let said = running.end().unwrap();
    assert_eq!(said.code, 0, "{}\n{}", said.err, cluster.logs());
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["blocks"], expected, "{}", cluster.logs());
}

#[test]
fn three_nodes_share_the_calls() {
    let mut cluster = cluster();
    run(&mut cluster, |_, _, _| {});
}

#[test]
fn what_a_killed_node_had_is_made_again() {
    let mut cluster = cluster();
    run(&mut cluster, |cluster, head, others| {
        cluster.kill_nodes(&others[..1]).unwrap();
        cluster.wait_for_log(head, "a node is gone that ran calls").unwrap();
    });
}

#[test]
fn a_program_whose_node_is_killed_goes_on_elsewhere() {
    let mut cluster = cluster();
    run(&mut cluster, |cluster, head, others| {
        cluster.kill_nodes(&[head]).unwrap();
        let new = wait_for(cluster, others, 1, HEAD)[0];
        cluster.wait_for_log(new, ANEW).unwrap();
    });
}

#[test]
fn a_program_whose_node_leaves_goes_on_elsewhere() {
    let mut cluster = cluster();
    run(&mut cluster, |cluster, head, others| {
        cluster.signal_nodes(&[head], "TERM").unwrap();
        let new = wait_for(cluster, others, 1, HEAD)[0];
        cluster.wait_for_log(new, ANEW).unwrap();
    });
}

#[test]
fn nothing_is_made_again_when_a_node_leaves() {
    let mut cluster = cluster();
    run(&mut cluster, |cluster, head, others| {
        cluster.signal_nodes(&others[..1], "TERM").unwrap();
        cluster.wait_for_log(head, "a node is gone that ran calls").unwrap();
        let log = cluster.log(head);
        let gone = log.lines().find(|line| line.contains("a node is gone that ran calls"));
        assert!(gone.is_some_and(|line| line.ends_with("repeated=0")), "{log}");
    });
}

#[test]
fn a_node_that_joins_gets_calls_at_once() {
    let mut cluster = cluster();
    run(&mut cluster, |cluster, _, _| {
        let new = cluster.start_node("matmul", &["--workers", "1"]).unwrap();
        cluster.wait_for_log(new, OTHER).unwrap();
    });
}

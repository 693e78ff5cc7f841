//! Network partitions: between two nodes, around one node, in one direction, and slow links. The count is
//! exact every time.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, Running, SOON},
    gate::Gate,
    hosts::{self, Hosts},
    tree::Tree,
};
use zk_server::Setup;

const DEPTH: &str = "16";

/// Node processes on hosts 1 to 3, ZooKeeper on host 0, and a running job, which waits at a gate.
struct Stage {
    // Fields are dropped in this order: the processes on the hosts exit before the hosts are removed.
    job: Running,
    cluster: Cluster,
    hosts: Hosts,
    gate: Gate,
}

impl Stage {
    fn new() -> Self {
        let hosts = Hosts::new(4).unwrap();
        let setup = Setup { address: hosts.address(0), ..Setup::standalone() };
        let mut cluster = Cluster::start(&setup).unwrap();
        for host in 1..4 {
            let listen = format!("{}:0", hosts.address(host));
            let options = ["--workers", "1", "--zk-session-timeout", "3", "--listen", &listen, "--insecure"];
            let node = cluster.start_node_on(&hosts.host(host), "tree", &options).unwrap();
            cluster.wait_for_log(node, "the node is ready").unwrap();
        }
        let gate = cluster.gate().unwrap();
        let submit = ["submit", DEPTH, "--gate", gate.path(), "--wait", "--json"];
        let job = cluster.begin("tree", &submit).unwrap();
        for node in 0..3 {
            cluster.wait_for_log(node, "the node has its first task").unwrap();
        }
        Self { job, cluster, hosts, gate }
    }

    /// Opens the gate, and waits for the end of the job: the exact count. Returns the output of `taskwork
    /// job`.
    fn finish_exactly(mut self) -> Value {
        assert!(!self.job.has_ended().unwrap(), "the job has not waited at its gate");
        self.gate.open().unwrap();
        let said = self.job.end().unwrap();
        assert_eq!(said.code, 0, "{said:?}\n{}", self.cluster.logs());
        let said: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(said["states"], Tree::sequential(16).0, "{said}\n{}", self.cluster.logs());
        let job = self.cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
        drop((self.cluster, self.hosts));
        job
    }
}

/// The duration of a cut: longer than the repetition interval of grants, shorter than a session.
const A_WHILE: Duration = Duration::from_millis(1500);

#[test]
fn cut_between_two_nodes_costs_nothing() {
    if !hosts::can_be_made() {
        return;
    }
    let stage = Stage::new();
    stage.hosts.cut(1, 2).unwrap();
    stage.hosts.cut(2, 1).unwrap();
    thread::sleep(A_WHILE);
    stage.hosts.heal().unwrap();
    assert_eq!(stage.finish_exactly()["attempt"], 1);
}

#[test]
fn one_way_cut_costs_nothing() {
    if !hosts::can_be_made() {
        return;
    }
    let stage = Stage::new();
    stage.hosts.cut(1, 2).unwrap();
    stage.hosts.cut(3, 1).unwrap();
    thread::sleep(A_WHILE);
    stage.hosts.heal().unwrap();
    assert_eq!(stage.finish_exactly()["attempt"], 1);
}

/// The grants of one node never reach another: granted tasks are settled through ZooKeeper.
#[test]
fn permanent_cut_costs_nothing() {
    if !hosts::can_be_made() {
        return;
    }
    let stage = Stage::new();
    stage.hosts.cut(1, 2).unwrap();
    assert_eq!(stage.finish_exactly()["attempt"], 1);
}

#[test]
fn isolated_node_is_replaced_and_returns() {
    if !hosts::can_be_made() {
        return;
    }
    let mut stage = Stage::new();
    stage.hosts.isolate(1).unwrap();
    // One of the others reports it, whichever leads; until then each of them can continue its work.
    let line = "others continue from its last write";
    let deadline = Instant::now() + SOON;
    while ![1, 2].iter().any(|&node| stage.cluster.log(node).contains(line)) {
        assert!(Instant::now() < deadline, "no node replaces it\n{}", stage.cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
    stage.hosts.heal().unwrap();
    stage.cluster.wait_for_log(0, "joins again").unwrap();
    let job = stage.finish_exactly();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
}

#[test]
fn slow_links_cause_no_loss() {
    if !hosts::can_be_made() {
        return;
    }
    let stage = Stage::new();
    for host in 1..4 {
        stage.hosts.slow_down(host, 256).unwrap();
    }
    assert_eq!(stage.finish_exactly()["attempt"], 1);
}

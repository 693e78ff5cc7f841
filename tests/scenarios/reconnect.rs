//! Servers that are restarted while a job runs, with nodes that join and leave after each restart: every node
//! learns of each join and leave, nothing is lost, and the count is exact.

use std::time::Duration;

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, Running},
    data::is_long,
    gate::Gate,
    tree::Tree,
};
use zk_server::Setup;

/// The depth of the tree that a job counts: millions of states.
const DEPTH: u32 = 19;
/// The maximum duration of a job, with a margin for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A cluster with a running job, which waits at a gate.
struct Stage {
    cluster: Cluster,
    job: Running,
    gate: Gate,
    /// The indices of the running nodes, in the order of their start.
    here: Vec<usize>,
}

impl Stage {
    /// Starts nodes of one worker each, and a job; returns when all are at work.
    fn new(setup: &Setup, nodes: usize) -> Self {
        let mut cluster = Cluster::start(setup).unwrap();
        cluster.start_nodes("tree", nodes, &["--workers", "1"]).unwrap();
        let depth = DEPTH.to_string();
        let gate = cluster.gate().unwrap();
        let submit = ["submit", &depth, "--gate", gate.path(), "--wait", "--json"];
        let job = cluster.begin("tree", &submit).unwrap();
        for node in 0..nodes {
            cluster.wait_for_log(node, "the node takes part").unwrap();
        }
        Self { cluster, job, gate, here: (0..nodes).collect() }
    }

    /// Restarts a server, and returns when it serves.
    fn restart(&mut self, server: usize) {
        let servers = self.cluster.servers_mut();
        servers.kill(server).unwrap();
        servers.revive(server).unwrap();
        servers.wait_until_serving(server).unwrap();
    }

    /// Starts a node, and waits until it takes part and every other node has seen it.
    fn join(&mut self) {
        let node = self.cluster.start_node("tree", &["--workers", "1"]).unwrap();
        self.cluster.wait_for_log(node, "the node takes part").unwrap();
        let joined = format!("a node has joined node={{}} member={}", self.name(node));
        for &other in &self.here {
            let heard = joined.replace("{}", &self.name(other));
            self.cluster.wait_for_log(other, &heard).unwrap_or_else(|error| panic!("{error:#}"));
        }
        self.here.push(node);
    }

    /// Asks the longest-running node to leave, first of all the leader, and waits until every other node has
    /// seen it.
    fn drain(&mut self) {
        let node = self.here.remove(0);
        let name = self.name(node);
        let drained = self.cluster.run("taskwork", &["drain", &name, "--wait"]).unwrap();
        assert_eq!(drained.code, 0, "{drained:?}\n{}", self.cluster.logs());
        let status = self.cluster.nodes[node].wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.cluster.log(node));
        for &other in &self.here {
            let heard = format!("a node has left node={} member={name}", self.name(other));
            self.cluster.wait_for_log(other, &heard).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    /// Opens the gate, and waits for the end of the job: the exact count, in the first attempt, with no node lost.
    fn finish_exactly(mut self) {
        assert!(!self.job.has_ended().unwrap(), "the job has not waited at its gate");
        self.gate.open().unwrap();
        let said = self.job.end_within(PATIENCE).unwrap();
        assert_eq!(said.code, 0, "{said:?}\n{}", self.cluster.logs());
        let said: Value = serde_json::from_str(&said.out).unwrap();
        let (states, largest) = Tree::sequential(DEPTH);
        assert_eq!((&said["states"], &said["largest"]), (&states.into(), &largest.into()), "{said}");
        let job = self.cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
        let nobody = Value::Array(vec![]);
        assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &nobody), "{job}\n{}", self.cluster.logs());
    }

    /// Returns the name of a node, by its log.
    fn name(&self, node: usize) -> String {
        let log = self.cluster.log(node);
        let from = log.find("is ready node=").unwrap() + "is ready node=".len();
        log[from..].chars().take_while(|c| !c.is_whitespace()).collect()
    }
}

/// With `TASKWORK_LONG=1` ten times.
#[test]
fn rolling_restart_with_joins_and_drains_loses_nothing() {
    for _ in 0..if is_long() { 10 } else { 1 } {
        let mut stage = Stage::new(&Setup::ensemble(), 3);
        for server in 0..stage.cluster.servers().count() {
            stage.restart(server);
            stage.join();
            stage.drain();
        }
        stage.finish_exactly();
    }
}

#[test]
fn nodes_leaving_in_turn_after_restart_lose_nothing() {
    let mut stage = Stage::new(&Setup::standalone(), 4);
    stage.restart(0);
    stage.join();
    for _ in 0..3 {
        stage.drain();
    }
    stage.finish_exactly();
}

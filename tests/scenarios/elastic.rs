//! Nodes that join, leave and are lost while a job runs, killed leaders and killed servers: the count is
//! exact every time.

use std::{
    thread,
    time::{Duration, Instant},
};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, Running, SOON},
    data::is_long,
    gate::Gate,
    tree::Tree,
};
use zk_server::Setup;

/// The depth of the tree that most jobs count: millions of states.
const DEPTH: &str = "19";
const DEPTH_NUMBER: u32 = 19;

/// A cluster with a running job, which waits at a gate.
struct Stage {
    cluster: Cluster,
    job: Running,
    gate: Gate,
}

impl Stage {
    /// Starts nodes of one worker each, and a job; returns when all take part.
    fn new(mut cluster: Cluster, nodes: usize, options: &[&str]) -> Self {
        let options = [&["--workers", "1"], options].concat();
        cluster.start_nodes("tree", nodes, &options).unwrap();
        let gate = cluster.gate().unwrap();
        let submit = ["submit", DEPTH, "--gate", gate.path(), "--wait", "--json"];
        let job = cluster.begin("tree", &submit).unwrap();
        for node in 0..nodes {
            cluster.wait_for_log(node, "the node takes part").unwrap();
        }
        Self { cluster, job, gate }
    }

    /// Opens the gate, and waits for the end of the job: the exact count. Returns the output of `taskwork
    /// job`.
    fn finish_exactly(mut self) -> (Value, Cluster) {
        assert!(!self.job.has_ended().unwrap(), "the job has not waited at its gate");
        self.gate.open().unwrap();
        let said = self.job.end().unwrap();
        assert_eq!(said.code, 0, "{said:?}\n{}", self.cluster.logs());
        let said: Value = serde_json::from_str(&said.out).unwrap();
        let (states, largest) = Tree::sequential(DEPTH_NUMBER);
        assert_eq!(said["states"], states, "{said}\n{}", self.cluster.logs());
        assert_eq!(said["largest"], largest, "{said}");
        let job = self.cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
        (job, self.cluster)
    }

    /// Returns the nodes as the cluster lists them.
    fn nodes(&self) -> Vec<Value> {
        self.cluster.json("taskwork", &["nodes"]).unwrap().as_array().unwrap().clone()
    }

    fn wait_until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not in time: {what}\n{}", self.cluster.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the index of the node that leads, by its log.
    fn leader(&self) -> usize {
        let leads = self.nodes().into_iter().find(|node| node["leads"] == true).unwrap();
        let name = leads["node"].as_str().unwrap().to_owned();
        (0..self.cluster.nodes.len())
            .find(|&node| self.cluster.log(node).contains(&format!("is ready node={name}")))
            .unwrap()
    }
}

/// Returns the node that has logged, as the leader, that others continue the work of a lost one.
fn continues(cluster: &Cluster, lost: &str) -> Option<usize> {
    let line = format!("others continue from its last write node={lost}");
    (0..cluster.nodes.len()).find(|&node| cluster.log(node).contains(&line))
}

#[test]
fn nodes_join_and_leave_by_signal_and_by_command() {
    let mut stage = Stage::new(Cluster::shared().unwrap(), 3, &[]);
    stage.cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    stage.cluster.wait_for_log(3, "the node takes part").unwrap();
    // The second signal means at once; tasks that no node has accepted by then are parked, not lost.
    stage.cluster.nodes[0].signal("TERM").unwrap();
    thread::sleep(Duration::from_millis(5));
    let _ = stage.cluster.nodes[0].signal("TERM");
    assert!(stage.cluster.nodes[0].wait().unwrap().success(), "{}", stage.cluster.log(0));
    assert!(stage.cluster.log(0).contains("the node has left"), "{}", stage.cluster.log(0));
    let gone = stage.nodes()[0]["node"].as_str().unwrap().to_owned();
    let drained = stage.cluster.run("taskwork", &["drain", &gone, "--wait"]).unwrap();
    assert_eq!(drained.code, 0, "{drained:?}");
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "no node was lost");
}

#[test]
fn job_without_nodes_waits_and_next_node_resumes_it() {
    let mut stage = Stage::new(Cluster::shared().unwrap(), 1, &[]);
    stage.cluster.nodes[0].signal("TERM").unwrap();
    assert!(stage.cluster.nodes[0].wait().unwrap().success(), "{}", stage.cluster.log(0));
    assert!(stage.nodes().is_empty());
    let resting = stage.cluster.json("taskwork", &["job", "0"]).unwrap();
    assert_eq!(resting["state"], "no_nodes");
    assert!(resting["parked_tasks"].as_u64().unwrap() > 0, "{resting}");
    stage.cluster.start_nodes("tree", 1, &["--workers", "3"]).unwrap();
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!(job["attempt"], 1);
}

#[test]
fn suspended_job_makes_room_and_resumes() {
    let mut stage = Stage::new(Cluster::shared().unwrap(), 2, &[]);
    let suspended = stage.cluster.json("taskwork", &["suspend", "0"]).unwrap();
    assert_eq!(suspended["suspended"], true);
    // The nodes take the next job while it is suspended.
    assert_eq!(
        stage.cluster.json("tree", &["submit", "10", "--wait"]).unwrap()["states"],
        Tree::sequential(10).0
    );
    assert!(!stage.job.has_ended().unwrap());
    stage.wait_until("its tasks are parked", |stage| {
        stage.cluster.json("taskwork", &["job", "0"]).unwrap()["parked_tasks"].as_u64() > Some(0)
    });
    let job = stage.cluster.json("taskwork", &["job", "0"]).unwrap();
    assert_eq!(job["state"], "suspended", "{job}");
    assert_eq!(stage.cluster.run("taskwork", &["suspend", "1"]).unwrap().code, 1, "it is over");
    assert_eq!(stage.cluster.json("taskwork", &["resume", "0"]).unwrap()["resumed"], true);
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "no node was lost");
}

#[test]
fn killed_nodes_cost_only_unwritten_work() {
    let mut stage = Stage::new(Cluster::shared().unwrap(), 4, &["--zk-session-timeout", "2"]);
    let mut leader = stage.leader();
    let mut killed = Vec::new();
    // The second node is the next leader, so its successor may detect both losses at once.
    for _ in 0..2 {
        let name = stage.cluster.name_of(leader).unwrap();
        stage.cluster.nodes[leader].signal("KILL").unwrap();
        let others = || continues(&stage.cluster, &name);
        stage.wait_until("the others continue its work", |_| others().is_some());
        leader = others().unwrap();
        killed.push(name);
    }
    stage.cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let (job, _cluster) = stage.finish_exactly();
    // Both losses were detected, and no work was lost permanently.
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
    for name in &killed {
        let lost = |event: &Value| {
            event["kind"] == "lost" && event["detail"].as_str().is_some_and(|detail| detail.contains(name))
        };
        assert!(job["timeline"].as_array().unwrap().iter().any(lost), "{name}: {job}");
    }
}

#[test]
fn job_fails_with_reason_after_too_many_permanent_losses() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1", "--zk-session-timeout", "2"]).unwrap();
    let unprotected = cluster.start_unprotected_node().unwrap();
    cluster.wait_for_log(unprotected, "the node is ready").unwrap();
    let job =
        cluster.begin("tree", &["submit", "24", "--spin", "1000", "--wait", "--attempts", "1"]).unwrap();
    cluster.wait_until_unprotected().unwrap();
    cluster.nodes[unprotected].signal("KILL").unwrap();
    let said = job.end().unwrap();
    assert!(said.code == 1 && said.err.contains("lost nodes"), "{said:?}");
    // The nodes continue with the next job.
    assert_eq!(cluster.json("tree", &["submit", "10", "--wait"]).unwrap()["states"], Tree::sequential(10).0);
}

#[test]
fn killed_and_restarted_server_costs_nothing() {
    let mut stage = Stage::new(Cluster::start(&Setup::standalone()).unwrap(), 3, &[]);
    for _ in 0..2 {
        stage.cluster.servers_mut().kill(0).unwrap();
        stage.cluster.servers_mut().revive(0).unwrap();
        stage.cluster.servers_mut().wait_until_serving(0).unwrap();
    }
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!(job["attempt"], 1, "{job}");
}

#[test]
fn loss_of_ensemble_leader_costs_nothing() {
    let mut stage = Stage::new(Cluster::start(&Setup::ensemble()).unwrap(), 3, &[]);
    let leader = stage.cluster.servers().leader().unwrap();
    stage.cluster.servers_mut().kill(leader).unwrap();
    stage.wait_until("another server leads", |stage| stage.cluster.servers().leader().is_some());
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!(job["attempt"], 1, "{job}");
}

#[test]
fn lost_majority_longer_than_session_costs_nothing() {
    let mut stage =
        Stage::new(Cluster::start(&Setup::ensemble()).unwrap(), 3, &["--zk-session-timeout", "2"]);
    stage.cluster.servers_mut().kill(0).unwrap();
    stage.cluster.servers_mut().kill(1).unwrap();
    // The state of the sessions is unknown: the nodes keep them, and continue.
    for node in 0..3 {
        stage.cluster.wait_for_log(node, "no ZooKeeper has answered for longer").unwrap();
    }
    stage.cluster.servers_mut().revive(0).unwrap();
    stage.cluster.servers_mut().revive(1).unwrap();
    for node in 0..3 {
        stage.cluster.wait_for_log(node, "a server has resumed the session").unwrap();
    }
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
}

#[test]
fn node_frozen_beyond_session_joins_again() {
    let mut stage = Stage::new(Cluster::shared().unwrap(), 2, &["--zk-session-timeout", "2"]);
    // The node uses a fixed port, which it must get again.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let options = ["--workers", "1", "--zk-session-timeout", "2", "--listen", &port];
    stage.cluster.start_nodes("tree", 1, &options).unwrap();
    stage.cluster.wait_for_log(2, "the node has its first task").unwrap();
    let before: Vec<String> =
        stage.nodes().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect();
    let frozen = stage.cluster.name_of(2).unwrap();
    stage.cluster.nodes[2].signal("STOP").unwrap();
    stage.wait_until("its session has expired", |stage| stage.nodes().len() == 2);
    stage.cluster.nodes[2].signal("CONT").unwrap();
    stage.wait_until("it has joined again", |stage| stage.nodes().len() == 3);
    let new =
        stage.nodes().into_iter().find(|node| !before.iter().any(|known| node["node"] == known.as_str()));
    assert!(new.is_some(), "under another id");
    let (job, cluster) = stage.finish_exactly();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
    assert!(continues(&cluster, &frozen).is_some(), "its work was taken over\n{}", cluster.logs());
}

/// Unbalanced trees with their published sizes.
const TREES: [(&str, u64); 2] = [("T1", 4_130_071), ("T3", 4_112_897)];

/// Nodes join and leave at random every few hundred milliseconds while the nodes of a published tree are
/// counted.
#[test]
fn random_joins_and_leaves_keep_count_exact() {
    let long = is_long();
    let (mut joined, mut left) = (0, 0);
    for seed in 0..if long { 50 } else { 6 } {
        let mut random = SmallRng::seed_from_u64(seed);
        let (tree, size) = TREES[usize::from(seed % 2 == 1)];
        let mut cluster = Cluster::shared().unwrap();
        cluster.start_nodes("uts", 2, &["--workers", "1"]).unwrap();
        let mut here: Vec<usize> = vec![0, 1];
        let mut job = cluster.begin("uts", &["submit", tree, "--spin", "8", "--wait", "--json"]).unwrap();
        while !job.has_ended().unwrap() {
            if here.is_empty() || (here.len() < 5 && random.random()) {
                here.push(cluster.start_node("uts", &["--workers", "1"]).unwrap());
                joined += 1;
            } else {
                let gone = here.swap_remove(random.random_range(0..here.len()));
                // A node that is still starting has no signal handler yet.
                cluster.wait_for_log(gone, "the node is ready").unwrap();
                cluster.nodes[gone].signal("TERM").unwrap();
                left += 1;
            }
            thread::sleep(Duration::from_millis(random.random_range(20..200)));
        }
        let said = job.end().unwrap();
        assert_eq!(said.code, 0, "seed {seed}: {said:?}\n{}", cluster.logs());
        let said: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(said["nodes"], size, "seed {seed}, {tree}\n{}", cluster.logs());
        let job = cluster.json("taskwork", &["job", "0"]).unwrap();
        assert_eq!(
            (&job["attempt"], &job["lost"]),
            (&1.into(), &Value::Array(vec![])),
            "seed {seed}: no node was lost"
        );
        for node in 0..cluster.nodes.len() {
            if !here.contains(&node) {
                let status = cluster.nodes[node].wait().unwrap();
                assert!(status.success(), "seed {seed}, node {node}: {status}\n{}", cluster.log(node));
            }
        }
    }
    println!("{joined} nodes joined and {left} left while jobs ran");
}

/// Nodes are killed at random, including the leader, while others join.
#[test]
fn random_kills_keep_count_exact() {
    let long = is_long();
    for seed in 0..if long { 25 } else { 2 } {
        let mut random = SmallRng::seed_from_u64(seed);
        let (tree, size) = TREES[usize::from(seed % 2 == 1)];
        let mut cluster = Cluster::shared().unwrap();
        let options = ["--workers", "1", "--zk-session-timeout", "1"];
        cluster.start_nodes("uts", 3, &options).unwrap();
        let mut here: Vec<usize> = vec![0, 1, 2];
        let mut job = cluster.begin("uts", &["submit", tree, "--spin", "8", "--wait", "--json"]).unwrap();
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(random.random_range(50..400)));
            if job.has_ended().unwrap() {
                break;
            }
            let killed = here.swap_remove(random.random_range(0..here.len()));
            cluster.nodes[killed].signal("KILL").unwrap();
            here.push(cluster.start_node("uts", &options).unwrap());
        }
        let said = job.end().unwrap();
        assert_eq!(said.code, 0, "seed {seed}: {said:?}\n{}", cluster.logs());
        let said: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(said["nodes"], size, "seed {seed}, {tree}\n{}", cluster.logs());
        let job = cluster.json("taskwork", &["job", "0"]).unwrap();
        let nothing = Value::Array(vec![]);
        assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &nothing), "seed {seed}: {job}");
    }
}

/// Returns the time of an event in the timeline of a job; the first that matches.
fn at_ms(job: &Value, what: &str, who: &str) -> Option<u64> {
    let timeline = job["timeline"].as_array().unwrap();
    let fits = |event: &&Value| event["kind"] == what && (who.is_empty() || event["who"] == who);
    timeline.iter().find(fits).map(|event| event["at_ms"].as_u64().unwrap())
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// The timeline shows when nodes joined, had their first task, were asked to leave, left and were lost. Its
/// figures are printed: medians of twenty rounds with `TASKWORK_LONG=1`.
#[test]
fn timeline_measures_join_leave_and_replacement() {
    let rounds = if is_long() { 20 } else { 2 };
    let (mut joins, mut leaves, mut recoveries) = (Vec::new(), Vec::new(), Vec::new());
    let mut handed_on = 0;
    for _ in 0..rounds {
        let mut stage = Stage::new(Cluster::shared().unwrap(), 2, &["--zk-session-timeout", "2"]);
        let started = now_ms();
        let newcomer = stage.cluster.start_node("tree", &["--workers", "1"]).unwrap();
        stage.cluster.wait_for_log(newcomer, "the node has its first task").unwrap();
        let told = now_ms();
        stage.cluster.nodes[newcomer].signal("TERM").unwrap();
        assert!(stage.cluster.nodes[newcomer].wait().unwrap().success(), "{}", stage.cluster.log(newcomer));
        leaves.push(now_ms() - told);
        let killed = now_ms();
        let lost = stage.cluster.name_of(0).unwrap();
        stage.cluster.nodes[0].signal("KILL").unwrap();
        stage.cluster.wait_for_log(1, &format!("others continue from its last write node={lost}")).unwrap();
        recoveries.push(now_ms() - killed);
        let newcomer = stage.cluster.name_of(newcomer).unwrap();
        let (job, _cluster) = stage.finish_exactly();
        joins.push(at_ms(&job, "first_task", &newcomer).unwrap() - started);
        for what in ["joined", "takes_part", "told_to_leave", "left"] {
            assert!(at_ms(&job, what, &newcomer).is_some(), "{what}: {}", job["timeline"]);
        }
        for what in ["submitted", "leads", "improved", "lost", "closed", "done"] {
            assert!(at_ms(&job, what, "").is_some(), "{what}: {}", job["timeline"]);
        }
        handed_on += job["figures"]["handed_on"].as_u64().unwrap();
    }
    println!(
        "medians of {rounds}: process start to first task {} ms; SIGTERM to exit {} ms ({handed_on} tasks handed on in all); \
         kill to the moment from which others continue {} ms, with sessions of 2 s",
        median(joins),
        median(leaves),
        median(recoveries)
    );
}

/// The maximum growth of a node's memory over hundreds of jobs, joins and leaves, in KiB.
const GROWTH_KIB_MAX: u64 = 16 << 10;

/// Returns the resources of a cluster: znodes, and the memory and threads of each present node.
fn taken(cluster: &Cluster, nodes: usize) -> (String, Vec<(u64, u64)>) {
    let znodes = cluster.servers().figures(0).unwrap()["znode_count"].clone();
    let of = |node: usize| {
        let node = &cluster.nodes[node];
        (node.memory_kib().unwrap(), node.threads().unwrap())
    };
    (znodes, (0..nodes).map(of).collect())
}

/// Fifty jobs in a row and ten nodes that join and leave, or three hundred and a thousand with
/// `TASKWORK_LONG=1`: nothing grows.
#[test]
fn many_jobs_joins_and_leaves_leave_no_resources() {
    let long = is_long();
    let (jobs, joins) = if long { (300, 1_000) } else { (50, 10) };
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let (states, _) = Tree::sequential(8);
    let one_job = |cluster: &Cluster| {
        let said = cluster.json("tree", &["submit", "8", "--wait"]).unwrap();
        assert_eq!(said["states"], states, "{}", cluster.logs());
        cluster.json("taskwork", &["forget", "--all"]).unwrap();
    };
    (0..jobs / 5).for_each(|_| one_job(&cluster));
    let before = taken(&cluster, 2);
    (0..jobs).for_each(|_| one_job(&cluster));
    for _ in 0..joins {
        let node = cluster.start_node("tree", &["--workers", "1"]).unwrap();
        cluster.wait_for_log(node, "the node is ready").unwrap();
        cluster.nodes[node].signal("TERM").unwrap();
        assert!(cluster.nodes[node].wait().unwrap().success(), "{}", cluster.log(node));
    }
    one_job(&cluster);
    let after = taken(&cluster, 2);
    println!(
        "{jobs} jobs, {joins} joins and leaves; znodes, and KiB and threads of each node: {before:?}, then {after:?}"
    );
    assert_eq!(before.0, after.0, "znodes");
    for ((memory, threads), (memory_then, threads_then)) in before.1.into_iter().zip(after.1) {
        assert!(memory_then < memory + GROWTH_KIB_MAX, "a node has grown from {memory} to {memory_then} KiB");
        // The number of threads for blocking work varies.
        assert!(threads_then <= threads + 2, "a node had {threads} threads, and has {threads_then}");
    }
}

#[test]
fn briefly_lost_majority_costs_nothing() {
    let mut stage =
        Stage::new(Cluster::start(&Setup::ensemble()).unwrap(), 3, &["--zk-session-timeout", "20"]);
    stage.cluster.servers_mut().kill(0).unwrap();
    stage.cluster.servers_mut().kill(1).unwrap();
    // A steal needs no ZooKeeper: the nodes continue, and commit when it is available again.
    thread::sleep(Duration::from_millis(1500));
    stage.cluster.servers_mut().revive(0).unwrap();
    stage.cluster.servers_mut().revive(1).unwrap();
    let (job, _cluster) = stage.finish_exactly();
    assert_eq!(job["attempt"], 1, "{job}");
}

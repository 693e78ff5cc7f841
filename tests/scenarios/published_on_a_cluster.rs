//! Every example as three node processes on a real ZooKeeper: each instance with its published answer, and
//! one of them with a node that is drained in the middle.

use std::{fs, time::Duration};

use serde_json::Value;
use taskwork_tests::{
    cluster::Cluster,
    data,
    published::{Case, counted, indexed, lasting},
};
use zk_server::Setup;

/// The programs of which a node is drained in any case: one that counts, one that optimises. For the others,
/// whose instances take half a minute, it is done with `TASKWORK_LONG=1`.
const DRAINED: [&str; 2] = ["uts", "knapsack"];

/// How long an instance may take.
const PATIENCE: Duration = Duration::from_secs(180);

fn submit(cluster: &Cluster, case: &Case) {
    let job = cluster.begin(case.program, &case.command("submit", &["--wait"])).unwrap();
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{case:?}: {said:?}\n{}", cluster.logs());
    case.check(&serde_json::from_str(&said.out).unwrap(), "on a cluster").unwrap();
}

/// Three nodes begin; as soon as all of them take part, one is drained. The answer is the published one, and
/// nobody was lost.
fn drained_in_the_middle(cluster: &mut Cluster, case: &Case) {
    let mut job = cluster.begin(case.program, &case.command("submit", &["--wait"])).unwrap();
    for node in 0..3 {
        cluster.wait_for_log(node, "the node has its first task").unwrap();
    }
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let node = nodes[0]["node"].as_str().unwrap().to_owned();
    assert_eq!(cluster.run("taskwork", &["drain", &node, "--wait"]).unwrap().code, 0, "{}", cluster.logs());
    assert!(!job.has_ended().unwrap(), "{case:?} has ended before the node had left");
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{case:?}: {said:?}\n{}", cluster.logs());
    let said: Value = serde_json::from_str(&said.out).unwrap();
    case.check(&said, "with a drain in the middle").unwrap();
    let job = cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
}

fn on_a_cluster(program: &str) {
    let Some(folder) = data::folder() else { return };
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes(program, 3, &["--workers", "1"]).unwrap();
    let mut cases = counted(&folder).unwrap();
    cases.retain(|case| case.program == program);
    if cases.is_empty() {
        cases = indexed(&folder, program).unwrap();
    }
    if data::is_long() || DRAINED.contains(&program) {
        let lasting = lasting(&folder).unwrap().into_iter().find(|case| case.program == program);
        let lasting = lasting.unwrap_or_else(|| hard_knapsack(&cluster));
        drained_in_the_middle(&mut cluster, &lasting);
        // Another in the place of the one that has left.
        cluster.start_nodes(program, 1, &["--workers", "1"]).unwrap();
        cases.retain(|case| case.arguments != lasting.arguments);
    }
    for case in &cases {
        submit(&cluster, case);
    }
}

/// Items of even weights, each worth as much as it weighs, for a room that is odd: no bound is ever low
/// enough. The best there is, is found at once, but it takes long to know.
fn hard_knapsack(cluster: &Cluster) -> Case {
    let weights: Vec<u64> = (1..=29).map(|item| 2 * (1_000 + item * item * 7 % 911 + 3 * item)).collect();
    let room = (weights.iter().sum::<u64>() / 2) | 1;
    let file = cluster.folder().join("hard");
    let items: Vec<String> = weights.iter().map(|weight| format!("{weight} {weight}")).collect();
    fs::write(&file, format!("{} {room}\n{}\n", weights.len(), items.join("\n"))).unwrap();
    let arguments = vec![file.to_str().unwrap().to_owned()];
    // Some of the items weigh as much as the largest even number that fits.
    Case { program: "knapsack", arguments, field: "value", answer: room - 1 }
}

#[test]
fn unbalanced_trees() {
    on_a_cluster("uts");
}

#[test]
fn queens() {
    on_a_cluster("nqueens");
}

#[test]
fn semigroups() {
    on_a_cluster("numerical-semigroups");
}

#[test]
fn rulers() {
    on_a_cluster("golomb");
}

#[test]
fn cliques() {
    on_a_cluster("maxclique");
}

#[test]
fn knapsacks() {
    on_a_cluster("knapsack");
}

#[test]
fn quadratic_assignments() {
    on_a_cluster("qap");
}

#[test]
fn flow_shops() {
    on_a_cluster("flowshop");
}

#[test]
fn tours() {
    on_a_cluster("tsp");
}

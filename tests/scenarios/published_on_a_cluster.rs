//! Every example as three node processes on a real ZooKeeper: each instance with its published result, and
//! one of them with a node that is drained during the job.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, SOON},
    data,
    published::{Case, counted, indexed, lasting},
};

/// The programs that always drain a node: one that counts, one that optimises. The instances of the others
/// take 30 s, so this is done with `TASKWORK_LONG=1`.
const DRAINED: [&str; 2] = ["uts", "knapsack"];

/// The weight of a job that takes nearly all of the nodes' time from a job of weight 1.
const RIVAL_WEIGHT: &str = "50";

/// The maximum duration of an instance.
const PATIENCE: Duration = Duration::from_secs(180);

fn submit(cluster: &Cluster, case: &Case) {
    let job = cluster.begin(case.program, &case.command("submit", &["--wait"])).unwrap();
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{case:?}: {said:?}\n{}", cluster.logs());
    case.check(&serde_json::from_str(&said.out).unwrap(), "on a cluster").unwrap();
}

/// Returns the arguments of a job of a program that does not end.
fn endless(cluster: &Cluster, program: &str) -> Vec<String> {
    match program {
        "uts" => ["T3", "--spin", "10000"].map(str::to_owned).to_vec(),
        "knapsack" => hard_knapsack(cluster, 60).arguments,
        _ => panic!("{program} has no job that does not end"),
    }
}

/// Submits a job that does not end and takes nearly all of the nodes' time, so that another job cannot end
/// before it is cancelled. Returns its id.
fn occupy(cluster: &Cluster, program: &str) -> String {
    let arguments = endless(cluster, program);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let submitted =
        cluster.json(program, &[&["submit", "--weight", RIVAL_WEIGHT], &arguments[..]].concat()).unwrap();
    wait_for_first_tasks(cluster, 1);
    submitted["job"].as_str().unwrap().to_owned()
}

/// Waits until the nodes have received the first tasks of this many jobs.
fn wait_for_first_tasks(cluster: &Cluster, jobs: usize) {
    let deadline = Instant::now() + SOON;
    let has = |node| cluster.log(node).matches("the node has its first task").count() >= jobs;
    while !(0..3).all(has) {
        assert!(Instant::now() < deadline, "not every node works on {jobs} jobs\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Three nodes start; as soon as all of them take part, one is drained. The result is the published one, and
/// no node was lost.
fn drained_in_the_middle(cluster: &mut Cluster, case: &Case) {
    let rival = DRAINED.contains(&case.program).then(|| occupy(cluster, case.program));
    let mut job = cluster.begin(case.program, &case.command("submit", &["--wait"])).unwrap();
    wait_for_first_tasks(cluster, 1 + usize::from(rival.is_some()));
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let node = nodes[0]["node"].as_str().unwrap().to_owned();
    assert_eq!(cluster.run("taskwork", &["drain", &node, "--wait"]).unwrap().code, 0, "{}", cluster.logs());
    assert!(!job.has_ended().unwrap(), "{case:?} has ended before the node had left");
    if let Some(rival) = rival {
        assert_eq!(cluster.run("taskwork", &["cancel", &rival]).unwrap().code, 0);
    }
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{case:?}: {said:?}\n{}", cluster.logs());
    let said: Value = serde_json::from_str(&said.out).unwrap();
    case.check(&said, "with a drain in the middle").unwrap();
    let job = cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
}

fn on_a_cluster(program: &str) {
    let Some(folder) = data::folder() else { return };
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes(program, 3, &["--workers", "1"]).unwrap();
    let mut cases = counted(&folder).unwrap();
    cases.retain(|case| case.program == program);
    if cases.is_empty() {
        cases = indexed(&folder, program).unwrap();
    }
    if data::is_long() || DRAINED.contains(&program) {
        let lasting = lasting(&folder).unwrap().into_iter().find(|case| case.program == program);
        let lasting = lasting.unwrap_or_else(|| hard_knapsack(&cluster, 29));
        drained_in_the_middle(&mut cluster, &lasting);
        // Replace the node that has left.
        cluster.start_nodes(program, 1, &["--workers", "1"]).unwrap();
        cases.retain(|case| case.arguments != lasting.arguments);
    }
    for case in &cases {
        submit(&cluster, case);
    }
}

/// Items of even weights, each with its weight as its value, and an odd capacity: no bound is ever low
/// enough. The optimum is found at once, but the proof takes long.
fn hard_knapsack(cluster: &Cluster, items: u64) -> Case {
    let weights: Vec<u64> = (1..=items).map(|item| 2 * (1_000 + item * item * 7 % 911 + 3 * item)).collect();
    let room = (weights.iter().sum::<u64>() / 2) | 1;
    let file = cluster.folder().join(format!("hard-{items}"));
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

//! Tree searches in Python on node processes that are killed and leave.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::SOON;

use crate::routine_site::{Gateway, Site};

/// The examples as searches that are slow until a gate is open. They note the processes of their nodes.
const MODULE: &str = r#"
import os, time
import queens, knapsack

# Read before the node can be killed.
NODE = os.getppid()

class Asked:
    def __init__(self, asked):
        self.asked, self.reads = asked, 0

    def __getitem__(self, place):
        self.reads += 1
        if self.reads % 50 == 0 and not os.path.exists(FOLDER + "/gate"):
            time.sleep(0.01)
        return self.asked[place]

class View:
    def __init__(self, cx):
        self.asked, self.bound, self.count, self.offer = Asked(cx.asked), cx.bound, cx.count, cx.offer

class Slow:
    def search(self, cx):
        with open(FOLDER + "/notes", "a") as notes:
            notes.write(f"0 {NODE}\n")
        super().search(View(cx))

class Queens(Slow, queens.Queens):
    pass

class Knapsack(Slow, knapsack.Knapsack):
    pass
"#;

fn deploy(site: &Site, name: &str, class: &str) {
    let folder = site.cluster.folder().join(name);
    fs::create_dir(&folder).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../routines/examples");
    for example in ["queens", "knapsack"] {
        let file = format!("{example}.py");
        fs::copy(examples.join(example).join(&file), folder.join(&file)).unwrap();
    }
    let text = format!(
        "name = '{name}'\nversion = '1'\nruntime = 'python3'\nkind = 'search'\nentry = 'slow:{class}'\n"
    );
    fs::write(folder.join("routine.toml"), text).unwrap();
    fs::write(folder.join("slow.py"), format!("FOLDER = {:?}\n{MODULE}", site.source.display().to_string()))
        .unwrap();
    site.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
}

/// Waits until a node searches.
fn wait_for(site: &Site, node: usize) {
    let (process, deadline) = (site.cluster.nodes[node].id(), Instant::now() + SOON);
    while !site.notes().values().flatten().any(|&noted| noted == process) {
        assert!(Instant::now() < deadline, "node {node} does not search\n{}", site.cluster.logs());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Kills a node of a search and drains another one, and replaces both.
fn disturb(site: &mut Site, nodes: usize) {
    (0..nodes).for_each(|node| wait_for(site, node));
    site.cluster.kill_nodes(&[0]).unwrap();
    site.start_nodes(1);
    wait_for(site, nodes);
    site.start_nodes(1);
    let leaves = site.cluster.name_of(nodes).unwrap();
    let drained = site.cluster.run("taskwork", &["drain", &leaves, "--wait"]).unwrap();
    assert_eq!(drained.code, 0, "{}\n{}", drained.err, site.cluster.logs());
    wait_for(site, nodes + 1);
    fs::write(site.source.join("gate"), "").unwrap();
}

fn count_queens(nodes: usize) {
    let mut site = Site::new();
    deploy(&site, "slow-queens", "Queens");
    site.start_nodes(nodes);
    let gateway = Gateway::start(&site.cluster);
    let (status, job) =
        gateway.post("/v1/jobs", "", &json!({ "routine": "slow-queens@1", "argument": [12] }));
    assert_eq!((status, &job["calls"]), (201, &Value::Null), "{job}");
    let job = job["job"].as_str().unwrap();
    site.wait_for_display(job, &[("running", 1), ("done", 0), ("failed", 0)]);
    disturb(&mut site, nodes);
    assert_eq!(gateway.wait(job, &site.cluster)["state"], "successful");
    let expected = json!({ "counts": { "states": 856_189, "solutions": 14_200 }, "best": null });
    assert_eq!(gateway.get(&format!("/v1/jobs/{job}/results")), (200, expected));
}

#[test]
fn search_on_one_node_counts_each_state_once() {
    count_queens(1);
}

#[test]
fn python_client_searches() {
    let mut site = Site::new();
    deploy(&site, "queens", "Queens");
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let script = r#"
import sys, routines
with routines.connect(sys.argv[1]) as r:
    assert r.search("queens@1", 6).found() == {"counts": {"states": 153, "solutions": 4}, "best": None}
    try:
        r.search("queens@1", n="six").found()
    except routines.JobError as error:
        assert "in search" in str(error) and "TypeError" in str(error), error
    else:
        raise AssertionError("the argument is wrong")
assert routines.Search().but(part=1).part == 1
"#;
    site.run_client(&[script, &format!("http://{}", gateway.address)]);
}

#[test]
fn search_on_two_nodes_counts_each_state_once() {
    count_queens(2);
}

#[test]
fn search_on_four_nodes_counts_each_state_once() {
    count_queens(4);
}

#[test]
fn branch_and_bound_finds_optimum_although_nodes_are_lost() {
    let mut site = Site::new();
    deploy(&site, "slow-knapsack", "Knapsack");
    site.start_nodes(2);
    // Profits that grow with weights make the bound weak.
    let weights: Vec<usize> = (1..=54_usize).map(|item| 100 + item * item * 7919 % 900).collect();
    let profits: Vec<usize> = weights.iter().map(|weight| weight + 100).collect();
    let capacity = weights.iter().sum::<usize>() / 2;
    let mut best = vec![0; capacity + 1];
    for (weight, profit) in weights.iter().zip(&profits) {
        for free in (*weight..=capacity).rev() {
            best[free] = best[free].max(best[free - weight] + profit);
        }
    }
    let argument = json!({ "capacity": capacity, "profits": profits, "weights": weights }).to_string();
    let search = site.cluster.begin("routines", &["search", "slow-knapsack@1", &argument]).unwrap();
    disturb(&mut site, 2);
    let ended = search.end().unwrap();
    assert_eq!(ended.code, 0, "{}\n{}", ended.err, site.cluster.logs());
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(found["best"]["cost"].as_i64(), Some(-i64::try_from(best[capacity]).unwrap()), "{found}");
    // A function is no search, and the reverse.
    for (arguments, reason) in [
        (["search", "square@1.0", "5"], "is a function"),
        (["call", "slow-knapsack@1", &argument], "is a search"),
    ] {
        let refused = site.cluster.run("routines", &arguments).unwrap();
        assert!(refused.code == 2 && refused.err.contains(reason), "{}", refused.err);
    }
}

//! Node processes on a real ZooKeeper: results, jobs in a row, concurrent programs.

use serde_json::Value;
use taskwork_tests::{
    cluster::Cluster,
    data::{self, workspace},
    tree::Tree,
};
use zk_server::Setup;

/// Every instance on three nodes gives the listed optimum; without pruning every state is counted once.
fn answers(setup: &Setup) {
    let mut cluster = Cluster::start(setup).unwrap();
    cluster.start_nodes("tsp", 3, &["--workers", "1"]).unwrap();
    let ours = [("europe.csv", 18_707), ("capitals15.csv", 7_936), ("random35.tsp", 4_880)];
    let ours = ours.map(|(name, optimum)| (workspace().join("tsp-example/instances").join(name), optimum));
    let published = data::folder().map_or_else(Vec::new, |folder| data::tsp_instances(&folder, 58).unwrap());
    let published = published.into_iter().map(|known| (known.file, known.optimum));
    for (file, optimum) in ours.into_iter().chain(published) {
        let file = file.to_str().unwrap();
        let solved = cluster.json("tsp", &["submit", file, "--wait"]).unwrap();
        assert_eq!(solved["length"], optimum, "{file}: {solved}\n{}", cluster.logs());
        assert_eq!(solved["proven"], true, "{file}");
    }
    for (cities, states) in [("9", 109_601), ("10", 986_410)] {
        let made = cluster.run("tsp", &["generate", "--cities", cities, "--seed", "1"]).unwrap();
        let file = cluster.folder().join(format!("{cities}.tsp"));
        std::fs::write(&file, made.out).unwrap();
        for _ in 0..3 {
            let arguments = ["submit", file.to_str().unwrap(), "--wait", "--no-pruning"];
            let solved = cluster.json("tsp", &arguments).unwrap();
            assert_eq!(solved["states"], states, "{cities} cities\n{}", cluster.logs());
        }
    }
}

#[test]
fn results_are_exact_on_three_nodes_and_one_server() {
    answers(&Setup::standalone());
}

#[test]
fn results_are_exact_on_three_nodes_and_three_servers() {
    answers(&Setup::ensemble());
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn figure(cluster: &Cluster, name: &str) -> u64 {
    cluster.servers().figures(0).unwrap()[name].parse().unwrap()
}

#[test]
fn ten_jobs_in_a_row_leave_no_resources() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 3, &["--workers", "1"]).unwrap();
    let (states, largest) = Tree::sequential(12);
    let mut after = Vec::new();
    for round in 0..10 {
        let said = cluster.json("tree", &["submit", "12", "--wait"]).unwrap();
        assert_eq!((&said["states"], &said["largest"]), (&states.into(), &largest.into()), "round {round}");
        let job = said["job"].as_str().unwrap().to_owned();
        let kept = figure(&cluster, "znode_count");
        cluster.json("taskwork", &["forget", &job]).unwrap();
        let memory: Vec<u64> = cluster.nodes.iter().map(|node| node.memory_kib().unwrap()).collect();
        let znodes = figure(&cluster, "znode_count");
        let (connections, watches) =
            (figure(&cluster, "num_alive_connections"), figure(&cluster, "watch_count"));
        println!(
            "round {round}: {kept} znodes, {znodes} once forgotten; {connections} connections, {watches} watches; {memory:?} KiB"
        );
        after.push((znodes, connections, watches, memory));
    }
    let (first, last) = (&after[1], &after[9]);
    assert_eq!((first.0, first.1), (last.0, last.1), "znodes and connections");
    assert!(last.2 <= first.2 + 3, "watches: {first:?}, {last:?}");
    for (before, after) in first.3.iter().zip(&last.3) {
        assert!(after < &(before + 16 * 1024), "a node has grown from {before} to {after} KiB");
    }
}

#[test]
fn concurrent_programs_run_their_own_jobs_and_job_without_nodes_waits() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let file = workspace().join("tsp-example/instances/europe.csv");
    let submitted = cluster.run("tsp", &["submit", file.to_str().unwrap()]).unwrap();
    assert!(submitted.err.contains("no node runs tsp"), "{}", submitted.err);
    let waiting = submitted.out.trim().to_owned();
    // The other program's jobs run at the same time.
    let (states, _) = Tree::sequential(10);
    assert_eq!(cluster.json("tree", &["submit", "10", "--wait"]).unwrap()["states"], states);
    let status = cluster.run("taskwork", &["status"]).unwrap();
    assert!(status.out.contains("waits for nodes"), "{}", status.out);
    assert_eq!(cluster.json("taskwork", &["job", &waiting]).unwrap()["state"], "no_nodes");
    cluster.wait_for_log(0, "waits for nodes of another program").unwrap();
    let early = cluster.run("taskwork", &["result", &waiting]).unwrap();
    assert!(early.code == 1 && early.err.contains("has no result"), "{early:?}");

    let node = cluster.start_node("tsp", &[]).unwrap();
    cluster.wait_for_log(node, "the node's work on the job has ended").unwrap();
    assert_eq!(cluster.json("taskwork", &["job", &waiting]).unwrap()["state"], "done");
    let result = cluster.json("taskwork", &["result", &waiting]).unwrap();
    assert_eq!(result["variables"]["incumbent"]["cost"], 18_707);
    let status = cluster.json("taskwork", &["status"]).unwrap();
    assert_eq!((&status["nodes"], &status["done"]), (&2.into(), &2.into()), "{status}");
}

#[test]
fn jobs_queue_and_can_be_cancelled_and_forgotten() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    // It would take an hour.
    let long = cluster.run("tree", &["submit", "24", "--spin", "10000"]).unwrap().out.trim().to_owned();
    let next = cluster.begin("tree", &["submit", "10", "--wait", "--json"]).unwrap();
    cluster.wait_for_log(0, "works on a job").unwrap();
    let refused = cluster.run("taskwork", &["forget", &long]).unwrap();
    assert!(refused.code == 1 && refused.err.contains("cancel it first"), "{refused:?}");
    let cancelled = cluster.run("taskwork", &["cancel", &long, "--reason", "it takes an hour"]).unwrap();
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let said = next.end().unwrap();
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["states"], Tree::sequential(10).0);
    let jobs = cluster.json("taskwork", &["jobs"]).unwrap();
    let states: Vec<&str> =
        jobs.as_array().unwrap().iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["cancelled", "done"]);
    assert_eq!(jobs[0]["reason"], "it takes an hour");
    assert_eq!(
        cluster.json("taskwork", &["forget", "--all"]).unwrap()["forgotten"].as_array().unwrap().len(),
        2
    );
    assert_eq!(cluster.json("taskwork", &["jobs"]).unwrap(), serde_json::json!([]));
}

#[test]
fn job_reports_its_load_on_zookeeper() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 3, &["--workers", "1"]).unwrap();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", "18", "--gate", gate.path(), "--wait", "--json"];
    let running = cluster.begin("tree", &submit).unwrap();
    for node in 0..3 {
        cluster.wait_for_log(node, "the node takes part").unwrap();
    }
    gate.open().unwrap();
    let said: Value = serde_json::from_str(&running.end().unwrap().out).unwrap();
    let job = cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    // Programs print bounds in another form.
    for (name, figure) in job["figures"].as_object().unwrap() {
        if !["left_open", "outlook", "share_done"].contains(&&**name) {
            assert_eq!(*figure, said["figures"][name], "{name}: the submitter waits for all last reports");
        }
    }
    assert_eq!(number(&job["figures"]["worked"]), Tree::sequential(18).0);
    assert_eq!(job["nodes"].as_array().unwrap().len(), 3);
    let cost = &job["zookeeper"];
    println!("{cost} {}", job["figures"]);
    assert!(number(&cost["transactions"]) >= 2, "a claim and a commit: {job}");
    for figure in ["retried_share", "reads_per_write", "transactions_per_thousand_tasks"] {
        assert!(cost[figure].as_f64().is_some_and(|value| value >= 0.0), "{figure}: {cost}");
    }
    let text = cluster.run("taskwork", &["job", "0"]).unwrap().out;
    assert!(text.contains("reads per write"), "{text}");
}

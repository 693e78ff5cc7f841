//! The kinds of search, on nodes within a process and on a cluster: deciding, collecting, limits,
//! suggestions, and replicable searches.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::{
    cluster::{Cluster, CommandOutput, program},
    data,
};

const PATIENCE: Duration = Duration::from_secs(120);

fn solve(name: &str, arguments: &[&str]) -> Value {
    let said =
        Command::new(program(name).unwrap()).args(["solve", "--quiet", "--json"]).args(arguments).output();
    serde_json::from_slice(&said.unwrap().stdout).unwrap()
}

fn submit(cluster: &Cluster, name: &str, arguments: &[&str]) -> CommandOutput {
    let submit = ["submit", "--wait", "--quiet", "--json"];
    cluster.begin(name, &[&submit[..], arguments].concat()).unwrap().end_within(PATIENCE).unwrap()
}

fn json_of(said: &CommandOutput) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn decision_stops_at_first_solution_or_proves_there_is_none() {
    let Some(folder) = data::folder() else { return };
    let graph = folder.join("clique/p_hat300-3.clq");
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("maxclique", 8, &["--workers", "1"]).unwrap();
    let met = submit(&cluster, "maxclique", &[text(&graph), "--target", "36"]);
    assert_eq!(
        (met.code, &json_of(&met)["end"], &json_of(&met)["vertices"]),
        (0, &json!("target"), &json!(36))
    );
    let none = submit(&cluster, "maxclique", &[text(&graph), "--target", "37"]);
    assert_eq!(
        (none.code, &json_of(&none)["end"], &json_of(&none)["clique"]),
        (0, &json!("proven"), &Value::Null)
    );
}

/// The collected set does not depend on the nodes, even if one is killed during the search.
#[test]
fn collected_set_is_independent_of_nodes() {
    let Some(folder) = data::folder() else { return };
    let items = folder.join("knapsack/low/f8_l-d_kp_23_10000");
    let near = [text(&items), "--within", "3"];
    let alone = solve("knapsack", &[&near[..], &["--workers", "1"]].concat());
    assert!(alone["collected"].as_array().unwrap().len() > 10 && alone["collected_all"] == true, "{alone}");
    for nodes in ["2", "4", "8"] {
        let several = solve("knapsack", &[&near[..], &["--nodes", nodes]].concat());
        assert_eq!(several["collected"], alone["collected"], "{nodes} nodes");
    }
    let best = solve("knapsack", &[text(&items), "--best", "25", "--nodes", "3"]);
    assert_eq!(best["collected"].as_array().unwrap().len(), 25);
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("knapsack", 3, &["--workers", "1", "--zk-session-timeout", "2"]).unwrap();
    let submitted = [&["submit", "--wait", "--quiet", "--json"][..], &near].concat();
    let job = cluster.begin("knapsack", &submitted).unwrap();
    // The first node that works: the job may be over before all do.
    let deadline = Instant::now() + PATIENCE;
    let works = loop {
        if let Some(works) = (0..3).find(|&node| cluster.log(node).contains("the node takes part")) {
            break works;
        }
        assert!(Instant::now() < deadline, "no node works\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(5));
    };
    cluster.nodes[works].signal("KILL").unwrap();
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(json_of(&said)["collected"], alone["collected"], "{}", cluster.logs());
    assert_eq!(cluster.json("taskwork", &["job", "0"]).unwrap()["attempt"], 1, "{}", cluster.logs());
}

#[test]
fn limit_ends_search_with_proven_bound() {
    let Some(folder) = data::folder() else { return };
    let shop = folder.join("flowshop/ta022");
    let shop = text(&shop);
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("flowshop", 3, &["--workers", "1"]).unwrap();
    for (limit, end) in
        [(["--time-limit", "1.5"], "time limit"), (["--state-limit", "300000"], "state limit")]
    {
        let there = submit(&cluster, "flowshop", &[&[shop][..], &limit].concat());
        assert_eq!(there.code, 1, "{there:?}");
        let jobs = cluster.json("taskwork", &["jobs"]).unwrap();
        let id = jobs.as_array().unwrap().iter().filter_map(|job| job["job"].as_str()).max().unwrap();
        let job = cluster.json("taskwork", &["job", id]).unwrap();
        assert!(job["state"] == "done" && job["gap"].as_f64() > Some(0.0), "{job}");
        assert!((1.0..=2099.0).contains(&job["bound"].as_f64().unwrap()), "{job}");
        for said in [json_of(&there), solve("flowshop", &[&[shop][..], &limit].concat())] {
            assert_eq!((&said["end"], &said["proven"]), (&json!(end), &json!(false)));
            let (found, bound) = (said["makespan"].as_u64().unwrap(), said["bound"].as_u64().unwrap());
            assert!(bound <= 2099 && 2099 <= found && said["gap"].as_f64() > Some(0.0), "{said}");
        }
    }
    let enough = solve("flowshop", &[shop, "--relative-gap", "0.2"]);
    assert_eq!((&enough["end"], &enough["proven"]), (&json!("proven"), &json!(true)));
    assert!(enough["gap"].as_f64().unwrap() <= 0.2, "{enough}");
}

/// Waits until the job has reached a state.
fn wait_for_job(cluster: &Cluster, state: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let job = cluster.json("taskwork", &["job", "0"]).unwrap();
        if is_reached(&job) {
            return job;
        }
        assert!(Instant::now() < deadline, "not {state}: {job}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn stopped_search_keeps_its_gap_and_lost_nodes() {
    let Some(folder) = data::folder() else { return };
    let shop = folder.join("flowshop/ta022");
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("flowshop", 3, &["--workers", "1", "--zk-session-timeout", "2"]).unwrap();
    cluster.json("flowshop", &["submit", text(&shop)]).unwrap();
    // The optimum is 2099.
    let has_gap = |job: &Value| {
        let bound = job["bound"].as_f64();
        assert!(bound.is_none_or(|bound| (1.0..=2099.0).contains(&bound)), "{job}");
        bound.is_some() && job["gap"].as_f64() > Some(0.0)
    };
    let at_work = |nodes: u64| move |job: &Value| job["workers"] == nodes && has_gap(job);
    wait_for_job(&cluster, "at work", at_work(3));
    let name = cluster.name_of(2).unwrap();
    let is_lost = |job: &Value| {
        let nodes = job["nodes"].as_array().unwrap();
        nodes.iter().any(|node| node["node"] == *name && node["state"] == "lost")
    };
    cluster.nodes[2].signal("KILL").unwrap();
    wait_for_job(&cluster, "without the lost node", |job| is_lost(job) && at_work(2)(job));
    assert_eq!(cluster.run("taskwork", &["suspend", "0"]).unwrap().code, 0);
    let idle = |state: &'static str| move |job: &Value| job["state"] == state && job["workers"].is_null();
    wait_for_job(&cluster, "suspended with a gap", |job| idle("suspended")(job) && has_gap(job));
    assert_eq!(cluster.run("taskwork", &["resume", "0"]).unwrap().code, 0);
    // While a third task is parked, its bound is unknown.
    wait_for_job(&cluster, "at work again", |job| job["workers"] == 2);
    assert_eq!(cluster.run("taskwork", &["cancel", "0"]).unwrap().code, 0);
    cluster.signal_nodes(&[0, 1], "TERM").unwrap();
    for node in [0, 1] {
        assert!(cluster.nodes[node].wait().unwrap().success(), "{}", cluster.log(node));
    }
    let job = wait_for_job(&cluster, "cancelled with a gap", |job| idle("cancelled")(job) && has_gap(job));
    assert!(is_lost(&job), "{job}");
    let known = cluster.run("taskwork", &["result", "0", "--json"]).unwrap();
    let (shown, best) = (json_of(&known), job["best"].as_f64().unwrap());
    assert_eq!((known.code, &shown["stopped"], &shown["output"]), (1, &json!("cancelled"), &Value::Null));
    assert!(shown["variables"].to_string().contains(&format!("{best}")), "{shown}");
    assert!(known.err.contains("the best known values"), "{known:?}");
}

#[test]
fn running_job_accepts_checked_solution() {
    let Some(folder) = data::folder() else { return };
    let (instance, best) = (folder.join("atsp/ry48p.atsp"), folder.join("atsp/computed/ry48p.opt.tour"));
    let cities = fs::read_to_string(best).unwrap();
    let cities = cities.split_once("TOUR_SECTION").unwrap().1.split_whitespace();
    let tour: Vec<u32> = cities.map_while(|word| word.parse().ok()).collect();
    let mut cluster = Cluster::shared().unwrap();
    let given = |name: &str, value: &Value| {
        let file = cluster.folder().join(name);
        fs::write(&file, value.to_string()).unwrap();
        file
    };
    let good = given("good", &json!({ "tour": tour }));
    let long = given("long", &json!({ "tour": (1..=tour.len()).collect::<Vec<_>>() }));
    let twice = given("twice", &json!([1, 1, 2]));
    let other = given("other", &json!("a tour"));
    let wrong = cluster.folder().join("wrong");
    fs::write(&wrong, "1 2 3").unwrap();
    cluster.start_nodes("tsp", 2, &["--workers", "1"]).unwrap();
    // With the weaker of the bounds and no heuristic, a proof takes minutes without the optimum, and seconds
    // with it.
    let job = ["submit", text(&instance), "--bound", "assignment", "--start", "none", "--heuristics", "0"];
    let job = [&job[..], &["--wait", "--quiet", "--json"]].concat();
    let job = cluster.begin("tsp", &job).unwrap();
    cluster.wait_for_log(0, "the node takes part").unwrap();
    let inject = |file: &Path| cluster.run("taskwork", &["inject", "0", text(file), "--json"]).unwrap();
    for (file, said) in [(&twice, "no solution"), (&other, "does not look like")] {
        let refused = inject(file);
        assert_eq!((refused.code, &json_of(&refused)["taken"]), (1, &json!(false)), "{refused:?}");
        assert!(json_of(&refused)["said"].as_str().unwrap().contains(said), "{refused:?}");
    }
    assert_eq!(inject(&wrong).code, 2, "that is no JSON");
    // It may be accepted or not, depending on the progress of the search. Until the optimum is known, the job
    // does not end.
    inject(&long);
    let again = inject(&long);
    assert!(again.code == 1 && again.out.contains("no better than what is known"), "{again:?}");
    let taken = inject(&good);
    assert_eq!((taken.code, &json_of(&taken)["taken"]), (0, &json!(true)), "{taken:?}\n{}", cluster.logs());
    assert!(json_of(&taken)["said"].as_str().unwrap().contains("14422"), "{taken:?}");
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!((said.code, &json_of(&said)["length"]), (0, &json!(14_422)), "{said:?}");
    let late = inject(&good);
    assert!(
        late.code == 1 && late.err.contains("suggestions are accepted only until it is over"),
        "{late:?}"
    );
}

/// Twenty runs, on 1, 2, 4 and 8 nodes.
#[test]
fn replicable_search_visits_same_states_and_finds_same_tour() {
    let Some(folder) = data::folder() else { return };
    let instance = folder.join("tsp/att48.tsp");
    let run = |nodes: &str| {
        let said = solve("tsp", &[text(&instance), "--start", "none", "--replicable", "--nodes", nodes]);
        (said["length"].clone(), said["tour"].clone(), said["states"].clone(), said["pruned"].clone())
    };
    let first = run("1");
    assert_eq!(first.0, 10_628);
    for _ in 0..5 {
        for nodes in ["1", "2", "4", "8"] {
            assert_eq!(run(nodes), first, "{nodes} nodes");
        }
    }
}

//! Several jobs on the same nodes: their shares, and their isolation from each other.

use std::{
    fs, iter, thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, SOON},
    gate::Gate,
    tree::Tree,
};

/// A job that does not end by itself.
const ENDLESS: &str = "60";

/// The amount of work after which shares are measured, in units.
const UNITS: u64 = 400_000;

/// The time for which jobs share the workers in a long test.
const LONG: Duration = Duration::from_secs(30);

/// The work in a state.
const SPIN: &str = "4000";

fn submit(cluster: &Cluster, depth: &str, options: &[&str]) -> String {
    let arguments = [&["submit", depth, "--spin", SPIN], options].concat();
    cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
}

/// Submits a job that does not end before the gate is open.
fn submit_with_gate(cluster: &Cluster, depth: &str, gate: &Gate, options: &[&str]) -> String {
    let arguments = [&["submit", depth, "--gate", gate.path()], options].concat();
    cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
}

fn job(cluster: &Cluster, id: &str) -> Value {
    cluster.json("taskwork", &["job", id]).unwrap()
}

/// Returns the units of work that the nodes have reported for a job.
fn worked(cluster: &Cluster, id: &str) -> u64 {
    job(cluster, id)["figures"]["worked"].as_u64().unwrap_or(0)
}

fn nodes_of(cluster: &Cluster, id: &str) -> usize {
    job(cluster, id)["nodes"].as_array().unwrap().len()
}

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

fn assert_done(cluster: &Cluster, id: &str, depth: u32) {
    let done = cluster.json("taskwork", &["wait", id]).unwrap();
    assert_eq!(done["output"], Tree::sequential(depth).0, "{done}\n{}", cluster.logs());
    assert_eq!(job(cluster, id)["attempt"], 1, "{}", cluster.logs());
}

#[test]
fn jobs_on_shared_nodes_stay_exact_when_nodes_leave_or_die() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 3, &["--workers", "2"]).unwrap();
    let gate = cluster.gate().unwrap();
    let first = submit_with_gate(&cluster, "18", &gate, &[]);
    let second = submit_with_gate(&cluster, "18", &gate, &["--weight", "3"]);
    wait_until(&cluster, "all nodes work on both", || {
        [&first, &second].iter().all(|id| nodes_of(&cluster, id) == 3)
    });
    cluster.kill_nodes(&[0]).unwrap();
    let leaves = cluster.name_of(1).unwrap();
    assert_eq!(cluster.run("taskwork", &["drain", &leaves]).unwrap().code, 0);
    gate.open().unwrap();
    assert_done(&cluster, &first, 18);
    assert_done(&cluster, &second, 18);
}

#[test]
fn suspended_or_cancelled_job_takes_no_node_from_another() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let endless = submit(&cluster, ENDLESS, &[]);
    let gate = cluster.gate().unwrap();
    let aside = submit_with_gate(&cluster, "18", &gate, &[]);
    let stopped = submit(&cluster, ENDLESS, &[]);
    wait_until(&cluster, "all nodes work on all", || {
        [&endless, &aside, &stopped].iter().all(|id| nodes_of(&cluster, id) == 2)
    });
    let names = [0, 1].map(|node| cluster.name_of(node));
    for (act, id) in [("cancel", &stopped), ("suspend", &aside)] {
        assert_eq!(cluster.run("taskwork", &[act, id]).unwrap().code, 0);
    }
    let before = worked(&cluster, &endless);
    wait_until(&cluster, "it continues", || worked(&cluster, &endless) > before + 1000);
    assert_eq!([0, 1].map(|node| cluster.name_of(node)), names, "no node has joined again");
    // To take part again, the nodes need new ids.
    assert_eq!(cluster.run("taskwork", &["resume", &aside]).unwrap().code, 0);
    gate.open().unwrap();
    assert_done(&cluster, &aside, 18);
    let before = worked(&cluster, &endless);
    wait_until(&cluster, "it continues", || worked(&cluster, &endless) > before + 1000);
    assert_eq!(job(&cluster, &endless)["attempt"], 1);
}

#[test]
fn higher_priority_runs_first_and_exclusive_job_waits() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let endless = submit(&cluster, ENDLESS, &["--weight", "1000"]);
    let urgent = submit(&cluster, "13", &["--priority", "1"]);
    assert_done(&cluster, &urgent, 13);
    assert_eq!(job(&cluster, &urgent)["priority"], 1);
    let exclusive = submit(&cluster, "12", &["--exclusive"]);
    let after = submit(&cluster, "11", &[]);
    let before = worked(&cluster, &endless);
    wait_until(&cluster, "the first continues", || worked(&cluster, &endless) > before + 1000);
    for id in [&exclusive, &after] {
        assert_eq!(nodes_of(&cluster, id), 0, "it waits: {}", job(&cluster, id));
    }
    assert_eq!(cluster.run("taskwork", &["cancel", &endless]).unwrap().code, 0);
    assert_done(&cluster, &exclusive, 12);
    assert_done(&cluster, &after, 11);
}

#[test]
fn raised_priority_of_a_started_job_gives_it_the_workers() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let endless = submit(&cluster, ENDLESS, &[]);
    wait_until(&cluster, "it works", || worked(&cluster, &endless) > 0);
    let urgent = submit(&cluster, "13", &["--priority", "-1"]);
    // It gets no worker yet, so it has no figures of the node.
    wait_until(&cluster, "the node works on both", || cluster.logs().contains("jobs=2"));
    let set = |options: &[&str]| cluster.json("taskwork", &[&["set", &urgent], options].concat()).unwrap();
    assert_eq!(set(&["--priority", "5"])["priority"], 5);
    assert_done(&cluster, &urgent, 13);
    let done = job(&cluster, &urgent);
    let timeline = done["timeline"].as_array().unwrap();
    let is_change = |event: &&Value| event["kind"] == "share_changed";
    let changes: Vec<_> = timeline.iter().filter(is_change).map(|event| &event["detail"]).collect();
    assert_eq!(changes, ["weight 1, priority 5"], "{done}");
    let late = cluster.run("taskwork", &["set", &urgent, "--weight", "2"]).unwrap();
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("is done") && late.err.contains("submit another"), "{late:?}");
    let set = cluster.run("taskwork", &["set", &endless, "--weight", "7"]).unwrap();
    assert!(set.out.contains("has weight 7, priority 0"), "{set:?}");
    assert_eq!(job(&cluster, &endless)["weight"], 7);
}

#[test]
fn invalid_share_options_are_refused() {
    let cluster = Cluster::shared().unwrap();
    for (option, given) in [
        ("--weight", "0"),
        ("--weight", "-1"),
        ("--weight", "1001"),
        ("--weight", "1000000000"),
        ("--priority", "101"),
        ("--priority", "-101"),
    ] {
        for (program, command) in [("tree", "submit"), ("taskwork", "set")] {
            let said = cluster.run(program, &[command, "3", &format!("{option}={given}")]).unwrap();
            assert_eq!(said.code, 2, "{option} {given}: {said:?}");
            assert!(said.err.contains(option) && said.err.contains(given), "{said:?}");
        }
    }
}

/// With `TASKWORK_LONG=1`, for 30 s.
#[test]
fn workers_are_shared_by_weight() {
    let is_long = std::env::var_os("TASKWORK_LONG").is_some();
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let light = submit(&cluster, ENDLESS, &[]);
    let heavy = submit(&cluster, ENDLESS, &["--weight", "3"]);
    let both = [&light, &heavy];
    wait_until(&cluster, "both nodes work on both", || both.iter().all(|id| nodes_of(&cluster, id) == 2));
    let all = || both.map(|id| worked(&cluster, id));
    let before = all();
    let begun = Instant::now();
    let is_enough = |now: [u64; 2]| {
        let is_long_enough = !is_long || begun.elapsed() >= LONG;
        is_long_enough && now[0] + now[1] >= before[0] + before[1] + UNITS
    };
    let deadline = begun + 10 * SOON;
    let after = loop {
        let now = all();
        if is_enough(now) {
            break now;
        }
        assert!(Instant::now() < deadline, "{before:?} {now:?}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(100));
    };
    let had = [0, 1].map(|place| after[place] - before[place]);
    let share = had[1] as f64 / (had[0] + had[1]) as f64;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{had:?} in {seconds:.1} s: {share:.3} of the work for a weight of 3 beside one of 1");
    // Figures are up to two seconds old, which matters less in a long run.
    let tolerance = if is_long { 0.075 } else { 0.2 };
    assert!((share - 0.75).abs() < tolerance, "{share} of {had:?}");
}

/// The number of commands of a workflow that are not reached.
const COMMANDS: usize = 2_000;

/// Submits a workflow of commands that record their starts and ends.
fn submit_commands(cluster: &Cluster, name: &str, weight: &str) {
    let folder = cluster.folder().join(name);
    fs::create_dir(&folder).unwrap();
    let numbers: Vec<String> = (0..COMMANDS).map(|number| format!("\"{number}\"")).collect();
    let log = cluster.folder().join("log");
    let run = format!(
        "echo +{name} >> {log}; sleep 0.03; echo -{name} >> {log}; touch {{out}}",
        log = log.display()
    );
    let numbers = numbers.join(", ");
    let job = format!("[each]\nn = [{numbers}]\n[task.one]\nout = [\"{{n}}\"]\nrun = \"\"\"{run}\"\"\"\n");
    let file = folder.join("job.toml");
    fs::write(&file, job).unwrap();
    cluster.json("flow", &["submit", file.to_str().unwrap(), "--weight", weight]).unwrap();
}

#[test]
fn calls_of_workflows_share_workers_by_weight() {
    const WORKERS: i32 = 2;
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("flow", 1, &["--workers", &WORKERS.to_string()]).unwrap();
    submit_commands(&cluster, "light", "1");
    submit_commands(&cluster, "heavy", "3");
    let log = cluster.folder().join("log");
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    wait_until(&cluster, "both run", || {
        let text = lines();
        ["+light", "+heavy"].iter().all(|line| text.contains(line))
    });
    let before = lines().len();
    wait_until(&cluster, "enough commands run", || lines().len() > before + 400 * "+light\n".len());
    let text = lines();
    // Two lines may be written at the same time.
    let running = iter::once(0).chain(text.lines().scan(0_i32, |running, line| {
        *running += if line.starts_with('+') { 1 } else { -1 };
        Some(*running)
    }));
    assert!(running.max() <= Some(WORKERS + 1), "{text}");
    let count = |line: &str| text[before..].lines().filter(|one| *one == line).count();
    let (light, heavy) = (count("+light"), count("+heavy"));
    let share = heavy as f64 / (light + heavy) as f64;
    assert!((share - 0.75).abs() < 0.1, "{heavy} of {}", light + heavy);
}

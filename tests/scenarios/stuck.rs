//! Nodes under adverse conditions: tasks that do not check whether they should stop, and a ZooKeeper that is
//! stopped when a node should leave, or that has lost all data. A node without a deadline waits; a deadline
//! holds regardless of the program.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, CommandOutput, SOON},
    gate::Gate,
    tree::{SILENT, Tree},
};
use zk_server::Setup;

/// The duration of a state that outlasts any scenario, in milliseconds.
const ENDLESS_MS: &str = "600000";

/// The exit code of a node that reached its deadline before everything was handed on.
const LATE: Option<i32> = Some(4);

/// Longer than the drain deadline of the nodes that get one second.
const TOO_LONG: Duration = Duration::from_secs(2);

/// Starts nodes of one worker each, and a job with one state that does not check for this long, or until the
/// gate is open. Returns when it is working on that state.
fn start_working(mut cluster: Cluster, silent_ms: &str, nodes: usize, options: &[&str]) -> (Cluster, Gate) {
    let options = [&["--workers", "1"], options].concat();
    cluster.start_nodes("tree", 1, &options).unwrap();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", "1", "--silent-ms", silent_ms, "--gate", gate.path()];
    let submitted = cluster.run("tree", &submit).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    cluster.wait_for_log(0, SILENT).unwrap();
    cluster.start_nodes("tree", nodes - 1, &options).unwrap();
    (cluster, gate)
}

fn cancel(cluster: &Cluster, job: &str) {
    let cancelled = cluster.run("taskwork", &["cancel", job]).unwrap();
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
}

/// Runs another job, and checks that it is reported as done.
fn run_another_job(cluster: &Cluster) {
    let said = cluster.run("tree", &["submit", "10", "--wait", "--json"]).unwrap_or_else(|error| {
        panic!("{error}\n{}", cluster.logs());
    });
    assert_done(cluster, &said);
}

fn assert_done(cluster: &Cluster, said: &CommandOutput) {
    assert_eq!(said.code, 0, "{said:?}\n{}", cluster.logs());
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["states"], Tree::sequential(10).0);
}

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

fn members(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    nodes.as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

fn job(cluster: &Cluster, id: &str) -> Value {
    cluster.json("taskwork", &["job", id]).unwrap()
}

#[test]
fn unresponsive_task_does_not_block_later_job() {
    let (mut cluster, _gate) = start_working(Cluster::shared().unwrap(), ENDLESS_MS, 2, &[]);
    // The task that does not check runs on the leader. This is reported before the task is asked to stop,
    // because the node cannot write its holdings.
    let stuck = members(&cluster);
    cluster.wait_for_log(0, "does not check whether it should be written").unwrap();
    wait_until(&cluster, "the operator can see it", || {
        let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
        nodes.as_array().unwrap().iter().filter(|node| node["silent"].is_string()).count() == 1
    });
    cancel(&cluster, "0");
    run_another_job(&cluster);
    cluster.wait_for_log(0, "does not check whether it should stop").unwrap();
    // It has joined again, and works: alone it is enough.
    wait_until(&cluster, "it joins again", || {
        let members = members(&cluster);
        members.len() == 2 && members.iter().filter(|member| stuck.contains(member)).count() == 1
    });
    cluster.nodes[1].signal("TERM").unwrap();
    assert!(cluster.nodes[1].wait().unwrap().success(), "{}", cluster.log(1));
    run_another_job(&cluster);
    // The lingering thread does not keep the process alive.
    cluster.nodes[0].signal("TERM").unwrap();
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
}

#[test]
fn single_node_with_unresponsive_task_runs_next_job() {
    let (mut cluster, _gate) = start_working(Cluster::shared().unwrap(), ENDLESS_MS, 1, &[]);
    cancel(&cluster, "0");
    run_another_job(&cluster);
    // With as many lingering threads as workers it takes part in no job until one of them has returned, but
    // leaves when asked to.
    let submitted = cluster.run("tree", &["submit", "1", "--silent-ms", ENDLESS_MS]).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    wait_until(&cluster, "the second job starts", || cluster.log(0).matches(SILENT).count() == 2);
    cancel(&cluster, "2");
    cluster.wait_for_log(0, "the node waits for them and is not a member").unwrap();
    assert!(members(&cluster).is_empty(), "{}", cluster.log(0));
    cluster.nodes[0].signal("TERM").unwrap();
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
}

#[test]
fn node_waiting_for_workers_leaves_on_signal() {
    let (mut cluster, _gate) = start_working(Cluster::shared().unwrap(), ENDLESS_MS, 1, &[]);
    cancel(&cluster, "0");
    cluster.wait_for_log(0, "is over").unwrap();
    cluster.nodes[0].signal("TERM").unwrap();
    // It holds no tasks of any job.
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
}

#[test]
fn drain_deadline_holds_with_unresponsive_task() {
    let (mut cluster, _gate) =
        start_working(Cluster::shared().unwrap(), ENDLESS_MS, 1, &["--drain-deadline", "2"]);
    cluster.nodes[0].signal("TERM").unwrap();
    let status = cluster.nodes[0].wait().unwrap();
    assert_eq!(status.code(), LATE, "{}", cluster.log(0));
    let log = cluster.log(0);
    assert!(
        log.contains("job j-0000000000: task") && log.contains("does not check whether it should stop"),
        "{log}"
    );
    wait_until(&cluster, "it is not a member", || members(&cluster).is_empty());
}

#[test]
fn suspended_job_waits_for_unresponsive_tasks() {
    let (mut cluster, gate) =
        start_working(Cluster::shared().unwrap(), ENDLESS_MS, 2, &["--drain-deadline", "1"]);
    assert_eq!(cluster.json("taskwork", &["suspend", "0"]).unwrap()["suspended"], true);
    // The node with that task waits for it. If it gets the root of the next job, that job waits too.
    let next = cluster.begin("tree", &["submit", "10", "--wait", "--json"]).unwrap();
    thread::sleep(TOO_LONG);
    assert_ne!(job(&cluster, "0")["state"], "done");
    gate.open().unwrap();
    assert_done(&cluster, &next.end().unwrap());
    assert_eq!(cluster.json("taskwork", &["resume", "0"]).unwrap()["resumed"], true);
    wait_until(&cluster, "the job is done", || job(&cluster, "0")["state"] == "done");
    let job = job(&cluster, "0");
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{}", cluster.logs());
    assert!(!cluster.nodes[0].has_ended().unwrap(), "{}", cluster.log(0));
}

#[test]
fn unresponsive_task_of_old_attempt_does_not_block_the_next() {
    let mut cluster = Cluster::shared().unwrap();
    // Only the loss of a node that does not write its holdings ends an attempt.
    let other = cluster.start_unprotected_node().unwrap();
    cluster.wait_for_log(other, "the node is ready").unwrap();
    // The task nearest to the root is given away first: the state that does not stop.
    let gate = cluster.gate().unwrap();
    let submitted = ["submit", "19", "--gate", gate.path(), "--silent-ms", ENDLESS_MS];
    let submitted = cluster.run("tree", &submitted).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    cluster.wait_until_unprotected().unwrap();
    let stuck = cluster.start_node("tree", &["--workers", "1", "--zk-session-timeout", "2"]).unwrap();
    cluster.wait_for_log(stuck, "the node has its first task").unwrap();
    cluster.nodes[other].signal("KILL").unwrap();
    cluster.wait_for_log(stuck, "the node takes part attempt=2").unwrap();
    assert_eq!(members(&cluster).len(), 1, "{}", cluster.log(stuck));
    cancel(&cluster, "0");
    cluster.nodes[stuck].signal("TERM").unwrap();
    assert!(cluster.nodes[stuck].wait().unwrap().success(), "{}", cluster.log(stuck));
}

#[test]
fn operator_drain_waits_for_tasks() {
    let (mut cluster, gate) =
        start_working(Cluster::shared().unwrap(), ENDLESS_MS, 2, &["--drain-deadline", "1"]);
    let stuck = cluster.log(0);
    let from = stuck.find("is ready node=").unwrap() + "is ready node=".len();
    let name: String = stuck[from..].chars().take_while(|c| !c.is_whitespace()).collect();
    let drained = cluster.begin("taskwork", &["drain", &name, "--wait"]).unwrap();
    cluster.wait_for_log(0, "an operator has asked this node to leave").unwrap();
    thread::sleep(TOO_LONG);
    gate.open().unwrap();
    let drained = drained.end().unwrap();
    assert_eq!(drained.code, 0, "{drained:?}");
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
    wait_until(&cluster, "the job is done", || job(&cluster, "0")["state"] == "done");
    let job = job(&cluster, "0");
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{}", cluster.logs());
}

#[test]
fn unresponsive_task_is_reported_to_operator() {
    let (mut cluster, _gate) =
        start_working(Cluster::shared().unwrap(), ENDLESS_MS, 1, &["--drain-deadline", "1"]);
    let node = members(&cluster).pop().unwrap();
    assert_eq!(cluster.run("taskwork", &["drain", &node]).unwrap().code, 0);
    let told = || cluster.json("taskwork", &["nodes"]).unwrap()[0]["silent"].clone();
    wait_until(&cluster, "the task is reported", || told().is_string());
    let told = told();
    assert!(told.as_str().unwrap().contains("of job j-0000000000"), "{told}");
    let text = cluster.run("taskwork", &["nodes"]).unwrap().out;
    assert!(text.contains("does not ask whether it is to stop"), "{text}");
    // A signal sets a deadline.
    cluster.nodes[0].signal("TERM").unwrap();
    assert_eq!(cluster.nodes[0].wait().unwrap().code(), LATE, "{}", cluster.log(0));
}

/// Gives the node a long job, kills ZooKeeper and asks the node to leave.
fn leave_without_zookeeper(cluster: &mut Cluster) {
    let gate = cluster.gate().unwrap();
    let long = cluster.run("tree", &["submit", "20", "--gate", gate.path()]).unwrap();
    assert_eq!(long.code, 0, "{long:?}");
    wait_until(cluster, "the long job", || {
        cluster.log(0).matches("the node has its first task").count() == 2
    });
    cluster.servers_mut().kill(0).unwrap();
    cluster.nodes[0].signal("TERM").unwrap();
}

#[test]
fn drain_during_outage_exits_at_deadline() {
    let (mut cluster, _gate) = start_working(
        Cluster::start(&Setup::standalone()).unwrap(),
        "1",
        1,
        &["--drain-deadline", "2", "--zk-session-timeout", "40"],
    );
    leave_without_zookeeper(&mut cluster);
    let status = cluster.nodes[0].wait().unwrap();
    assert_eq!(status.code(), LATE, "{}", cluster.log(0));
    assert!(cluster.log(0).contains("ZooKeeper does not answer"), "{}", cluster.log(0));
}

#[test]
fn drain_during_short_outage_leaves_cleanly() {
    let (mut cluster, _gate) = start_working(
        Cluster::start(&Setup::standalone()).unwrap(),
        "1",
        1,
        &["--drain-deadline", "60", "--zk-session-timeout", "40"],
    );
    leave_without_zookeeper(&mut cluster);
    cluster.wait_for_log(0, "asked to leave").unwrap();
    cluster.servers_mut().revive(0).unwrap();
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
    let job = job(&cluster, "1");
    assert_eq!((&job["attempt"], &job["state"]), (&1.into(), &"no_nodes".into()), "{job}");
}

#[test]
fn emptied_zookeeper_is_reported_and_folders_recreated() {
    let (mut cluster, _gate) =
        start_working(Cluster::start(&Setup::standalone()).unwrap(), "1", 2, &["--zk-session-timeout", "4"]);
    let gate = cluster.gate().unwrap();
    let long = cluster.run("tree", &["submit", "20", "--gate", gate.path()]).unwrap();
    assert_eq!(long.code, 0, "{long:?}");
    for node in 0..2 {
        wait_until(&cluster, "the long job", || {
            cluster.log(node).matches("the node takes part").count() >= 1
        });
    }
    cluster.servers_mut().kill(0).unwrap();
    cluster.servers_mut().wipe(0).unwrap();
    cluster.servers_mut().revive(0).unwrap();
    cluster.servers_mut().wait_until_serving(0).unwrap();
    wait_until(&cluster, "the nodes are members again", || {
        let nodes = cluster.run("taskwork", &["nodes", "--json"]).unwrap();
        let nodes: Value = serde_json::from_str(&nodes.out).unwrap_or_default();
        nodes.as_array().is_some_and(|nodes| nodes.len() == 2)
    });
    run_another_job(&cluster);
    // The first node that reconnects detects the loss, and reports it once.
    let said = cluster.logs().matches("they are created again").count();
    assert!((1..=2).contains(&said), "{}", cluster.logs());
}

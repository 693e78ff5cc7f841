//! Nodes in bad weather: tasks that do not ask whether they are to stop, a ZooKeeper that is away when a node
//! is to leave, or that has lost everything. A node that can wait waits; a deadline holds whatever the
//! program does.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, CommandOutput, SOON},
    gate::Gate,
    tree::Tree,
};
use zk_server::Setup;

/// A state that takes longer than any scenario.
const FOR_EVER: &str = "600000";

/// The exit code of a node whose time to leave was up before everything was handed on.
const LATE: Option<i32> = Some(4);

/// Longer than the time to leave of the nodes that get one second.
const TOO_LONG: Duration = Duration::from_secs(2);

/// Nodes of one worker each, and a job of which one state does not ask for so long, or until the gate is open; returns
/// when it is at work on the first.
fn at_work(mut cluster: Cluster, silent_ms: &str, nodes: usize, options: &[&str]) -> (Cluster, Gate) {
    let options = [&["--workers", "1"], options].concat();
    cluster.start_nodes("tree", 1, &options).unwrap();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", "1", "--silent-ms", silent_ms, "--gate", gate.path()];
    let submitted = cluster.run("tree", &submit).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    cluster.wait_for_log(0, "the node has its first task").unwrap();
    cluster.start_nodes("tree", nodes - 1, &options).unwrap();
    (cluster, gate)
}

fn cancel(cluster: &Cluster, job: &str) {
    let cancelled = cluster.run("taskwork", &["cancel", job]).unwrap();
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
}

/// Another job is done, and declared done.
fn another_job_is_done(cluster: &Cluster) {
    let said = cluster.run("tree", &["submit", "10", "--wait", "--json"]).unwrap_or_else(|error| {
        panic!("{error}\n{}", cluster.logs());
    });
    is_done(cluster, &said);
}

fn is_done(cluster: &Cluster, said: &CommandOutput) {
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
fn a_task_that_never_asks_keeps_no_later_job_from_its_end() {
    let (mut cluster, _gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 2, &[]);
    // The node that leads is the one whose task does not ask. That is said before anybody wants it to stop,
    // because the node cannot write what it holds.
    let stuck = members(&cluster);
    cluster.wait_for_log(0, "does not check whether it should be written").unwrap();
    wait_until(&cluster, "the operator can see it", || {
        let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
        nodes.as_array().unwrap().iter().filter(|node| node["silent"].is_string()).count() == 1
    });
    cancel(&cluster, "0");
    another_job_is_done(&cluster);
    cluster.wait_for_log(0, "does not check whether it should stop").unwrap();
    // It has joined anew, and works: alone it is enough.
    wait_until(&cluster, "it joins anew", || {
        let members = members(&cluster);
        members.len() == 2 && members.iter().filter(|member| stuck.contains(member)).count() == 1
    });
    cluster.nodes[1].signal("TERM").unwrap();
    assert!(cluster.nodes[1].wait().unwrap().success(), "{}", cluster.log(1));
    another_job_is_done(&cluster);
    // The thread that lingers does not keep the process.
    cluster.nodes[0].signal("TERM").unwrap();
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
}

#[test]
fn a_node_alone_whose_task_never_asks_takes_the_next_job() {
    let (mut cluster, _gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 1, &[]);
    cancel(&cluster, "0");
    another_job_is_done(&cluster);
    // With as many lingering threads as workers it takes no further part before one has returned, but leaves
    // when told to.
    let submitted = cluster.run("tree", &["submit", "1", "--silent-ms", FOR_EVER]).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    wait_until(&cluster, "the second", || cluster.log(0).matches("the node has its first task").count() == 3);
    cancel(&cluster, "2");
    cluster.wait_for_log(0, "the node waits for them").unwrap();
    assert!(members(&cluster).is_empty(), "{}", cluster.log(0));
    cluster.nodes[0].signal("TERM").unwrap();
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
}

#[test]
fn a_node_that_waits_for_its_workers_hears_the_word_to_leave() {
    let (mut cluster, _gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 1, &[]);
    cancel(&cluster, "0");
    cluster.wait_for_log(0, "is over").unwrap();
    cluster.nodes[0].signal("TERM").unwrap();
    // It holds nothing of any job.
    assert!(cluster.nodes[0].wait().unwrap().success(), "{}", cluster.log(0));
}

#[test]
fn the_deadline_to_leave_holds_whatever_the_program_does() {
    let (mut cluster, _gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 1, &["--drain-deadline", "2"]);
    cluster.nodes[0].signal("TERM").unwrap();
    let status = cluster.nodes[0].wait().unwrap();
    assert_eq!(status.code(), LATE, "{}", cluster.log(0));
    let log = cluster.log(0);
    assert!(
        log.contains("job j-0000000000: task") && log.contains("does not check whether it should stop"),
        "{log}"
    );
    wait_until(&cluster, "it is no member", || members(&cluster).is_empty());
}

#[test]
fn a_suspended_job_waits_for_its_tasks_as_long_as_it_takes() {
    let (mut cluster, gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 2, &["--drain-deadline", "1"]);
    assert_eq!(cluster.json("taskwork", &["suspend", "0"]).unwrap()["suspended"], true);
    // The node with that task waits for it. If it gets the root of the next job, that job waits, too.
    let next = cluster.begin("tree", &["submit", "10", "--wait", "--json"]).unwrap();
    thread::sleep(TOO_LONG);
    assert_ne!(job(&cluster, "0")["state"], "done");
    gate.open().unwrap();
    is_done(&cluster, &next.end().unwrap());
    assert_eq!(cluster.json("taskwork", &["resume", "0"]).unwrap()["resumed"], true);
    wait_until(&cluster, "the job is done", || job(&cluster, "0")["state"] == "done");
    let job = job(&cluster, "0");
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{}", cluster.logs());
    assert!(!cluster.nodes[0].has_ended().unwrap(), "{}", cluster.log(0));
}

#[test]
fn a_task_of_an_attempt_that_is_over_does_not_keep_its_node_from_the_next() {
    let mut cluster = Cluster::shared().unwrap();
    // Only the loss of a node that does not write what it holds ends an attempt.
    let other = cluster.start_unprotected_node().unwrap();
    cluster.wait_for_log(other, "the node is ready").unwrap();
    // What is given away first is what lies nearest to the root: the state that does not stop.
    let gate = cluster.gate().unwrap();
    let submitted = ["submit", "19", "--gate", gate.path(), "--silent-ms", FOR_EVER];
    let submitted = cluster.run("tree", &submitted).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    cluster.wait_for_log(other, "the node has its first task").unwrap();
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
fn an_operator_who_drains_a_node_can_wait_for_its_tasks() {
    let (mut cluster, gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 2, &["--drain-deadline", "1"]);
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
fn the_operator_is_told_which_task_does_not_stop() {
    let (mut cluster, _gate) = at_work(Cluster::shared().unwrap(), FOR_EVER, 1, &["--drain-deadline", "1"]);
    let node = members(&cluster).pop().unwrap();
    assert_eq!(cluster.run("taskwork", &["drain", &node]).unwrap().code, 0);
    let told = || cluster.json("taskwork", &["nodes"]).unwrap()[0]["silent"].clone();
    wait_until(&cluster, "it is said which task", || told().is_string());
    let told = told();
    assert!(told.as_str().unwrap().contains("of job j-0000000000"), "{told}");
    let text = cluster.run("taskwork", &["nodes"]).unwrap().out;
    assert!(text.contains("does not ask whether it is to stop"), "{text}");
    // A signal presses.
    cluster.nodes[0].signal("TERM").unwrap();
    assert_eq!(cluster.nodes[0].wait().unwrap().code(), LATE, "{}", cluster.log(0));
}

/// Gives the node a long job, kills ZooKeeper and tells the node to leave.
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
fn a_node_told_to_leave_while_zookeeper_is_away_goes_at_its_deadline() {
    let (mut cluster, _gate) = at_work(
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
fn a_node_told_to_leave_while_zookeeper_is_away_leaves_cleanly_when_it_is_back_in_time() {
    let (mut cluster, _gate) = at_work(
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
    assert_eq!((&job["attempt"], &job["state"]), (&1.into(), &"waits for nodes".into()), "{job}");
}

#[test]
fn when_zookeeper_has_lost_everything_the_nodes_say_so_and_make_the_folders_anew() {
    let (mut cluster, _gate) =
        at_work(Cluster::start(&Setup::standalone()).unwrap(), "1", 2, &["--zk-session-timeout", "4"]);
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
    wait_until(&cluster, "they are members again", || {
        let nodes = cluster.run("taskwork", &["nodes", "--json"]).unwrap();
        let nodes: Value = serde_json::from_str(&nodes.out).unwrap_or_default();
        nodes.as_array().is_some_and(|nodes| nodes.len() == 2)
    });
    another_job_is_done(&cluster);
    // The first that comes back finds them gone, and says so once.
    let said = cluster.logs().matches("they are created again").count();
    assert!((1..=2).contains(&said), "{}", cluster.logs());
}

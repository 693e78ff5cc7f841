//! Commands during outages: ZooKeeper stops while they ask, submit or wait, and restarts; and the sessions
//! and watches that they leave behind.

use std::{
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, Running, SOON},
    tree::Tree,
};
use zk::{ClusterPaths, Connect, Store};
use zk_server::Setup;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The session timeout of the waiting commands, in seconds.
const SESSION: &str = "2";
/// Longer than that session and a first connection together.
const LONG_AWAY: Duration = Duration::from_secs(14);

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", SOON.as_secs());
        thread::sleep(LOOK_EVERY);
    }
}

fn interrupt(process: u32) {
    signal(process, "INT");
}

fn signal(process: u32, name: &str) {
    assert!(
        Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success()
    );
}

fn jobs(cluster: &Cluster) -> Vec<Value> {
    cluster.json("taskwork", &["jobs"]).unwrap().as_array().unwrap().clone()
}

/// Submits a job and starts to wait for it; returns its id once it exists.
fn begin_to_wait(cluster: &Cluster, more: &[&str]) -> (Running, String) {
    let before = jobs(cluster).len();
    let submit = ["submit", "10", "--wait", "--json", "--zk-session-timeout", SESSION];
    let running = cluster.begin("tree", &[&submit, more].concat()).unwrap();
    let mut id = String::new();
    wait_until("the job is submitted", || {
        let jobs = jobs(cluster);
        let last = jobs.last().filter(|job| jobs.len() > before && job["state"] == "no_nodes");
        let queued = jobs.last().filter(|job| jobs.len() > before && job["state"] == "queued");
        id = last.or(queued).map_or_else(String::new, |job| job["job"].as_str().unwrap().to_owned());
        !id.is_empty()
    });
    (running, id)
}

fn figure(cluster: &Cluster, name: &str) -> u64 {
    cluster.servers().figures(0).unwrap()[name].parse().unwrap()
}

fn prepared() -> Cluster {
    let cluster = Cluster::start(&Setup::standalone()).unwrap();
    // The first job creates the cluster.
    let first = cluster.run("tree", &["submit", "3"]).unwrap();
    assert_eq!(first.code, 0, "{first:?}");
    cluster
}

#[test]
fn waiting_commands_survive_outage_and_print_result() {
    let mut cluster = prepared();
    let (patient, id) = begin_to_wait(&cluster, &[]);
    let (hasty, hasty_id) = begin_to_wait(&cluster, &["--zk-give-up", "4"]);
    let (mut angry, angry_id) = begin_to_wait(&cluster, &[]);
    let wait = cluster.begin("taskwork", &["wait", &id, "--json", "--zk-session-timeout", SESSION]).unwrap();
    wait_until("all four wait", || figure(&cluster, "watch_count") == 4);
    cluster.servers_mut().kill(0).unwrap();
    let away = Instant::now();

    let hasty = hasty.end().unwrap();
    assert_eq!(hasty.code, 3, "{hasty:?}");
    assert!(hasty.err.contains(&format!("taskwork wait {hasty_id}")), "{hasty:?}");
    wait_until("it exits after two interrupts", || {
        let ended = angry.has_ended().unwrap();
        if !ended {
            interrupt(angry.id());
        }
        ended
    });
    let angry = angry.end().unwrap();
    assert_eq!(angry.code, 3, "{angry:?}");
    assert!(angry.err.contains(&format!("taskwork wait {angry_id}")), "{angry:?}");

    let (mut patient, mut wait) = (patient, wait);
    while away.elapsed() < LONG_AWAY {
        for waits in [&mut patient, &mut wait] {
            assert!(!waits.has_ended().unwrap(), "it has not waited: {}", waits.errors());
        }
        thread::sleep(LOOK_EVERY);
    }
    cluster.servers_mut().revive(0).unwrap();
    cluster.servers_mut().wait_until_serving(0).unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let patient = patient.end().unwrap();
    assert_eq!(patient.code, 0, "{patient:?}");
    for said in ["has not answered since", "answers again"] {
        assert!(patient.err.contains(said), "no {said:?} in {patient:?}");
    }
    let solved: Value = serde_json::from_str(&patient.out).unwrap();
    assert_eq!((&solved["states"], &solved["job"]), (&Tree::sequential(10).0.into(), &id.as_str().into()));
    let wait = wait.end().unwrap();
    assert_eq!(wait.code, 0, "{wait:?}");
    let waited: Value = serde_json::from_str(&wait.out).unwrap();
    assert_eq!(waited, cluster.json("taskwork", &["result", &id]).unwrap());
    // Interrupting the wait does not affect the jobs: the first one completes, and the other one was not
    // cancelled.
    for id in [&hasty_id, &angry_id] {
        let said = cluster.run("taskwork", &["wait", id]).unwrap();
        assert_eq!(said.code, 0, "{said:?}");
    }
}

#[test]
fn waiting_for_job_without_result_states_reason() {
    let cluster = prepared();
    let (submitter, id) = begin_to_wait(&cluster, &[]);
    let wait = cluster.begin("taskwork", &["wait", &id]).unwrap();
    cluster.json("taskwork", &["cancel", &id, "--reason", "enough"]).unwrap();
    let (submitter, wait) = (submitter.end().unwrap(), wait.end().unwrap());
    assert_eq!((submitter.code, wait.code), (1, 1), "{submitter:?} {wait:?}");
    assert!(wait.err.contains("was cancelled: enough"), "{wait:?}");
    let nobody = cluster.run("taskwork", &["wait", "77"]).unwrap();
    assert!(nobody.code == 5 && nobody.err.contains("no job j-0000000077"), "{nobody:?}");

    let (submitter, id) = begin_to_wait(&cluster, &[]);
    let wait = cluster.begin("taskwork", &["wait", &id]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = Connect::new(cluster.hosts()).open().await.unwrap();
        wait_until("both wait", || figure(&cluster, "watch_count") == 2);
        zk::job::forget(&*store, &ClusterPaths::new("default").unwrap(), &id).await.unwrap();
        store.close().await.unwrap();
    });
    for said in [submitter.end().unwrap(), wait.end().unwrap()] {
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("forgotten, or the servers have lost their data"), "{said:?}");
    }
}

#[test]
fn terminated_submitter_names_wait_command_and_leaves_job() {
    let cluster = prepared();
    for (name, code) in [("TERM", 143), ("HUP", 129)] {
        let (submitter, id) = begin_to_wait(&cluster, &[]);
        wait_until("it waits", || figure(&cluster, "watch_count") > 0);
        signal(submitter.id(), name);
        let said = submitter.end().unwrap();
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(&format!("taskwork wait {id}")), "{said:?}");
        let is_open = |job: &Value| job["job"] == id.as_str() && job["state"] != "cancelled";
        assert!(jobs(&cluster).iter().any(is_open), "the job stays");
        wait_until("its session is closed", || figure(&cluster, "watch_count") == 0);
    }
}

#[test]
fn commands_leave_no_session() {
    let cluster = prepared();
    let figure = |name: &str| figure(&cluster, name);
    let before = figure("global_sessions");
    for _ in 0..3 {
        for command in [&["status"][..], &["nodes"], &["jobs"], &["job", "0"]] {
            assert_eq!(cluster.run("taskwork", command).unwrap().code, 0, "{command:?}");
        }
        for missing in [&["job", "77"][..], &["status", "--cluster", "x"], &["drain", "nobody"]] {
            assert_eq!(cluster.run("taskwork", missing).unwrap().code, 5, "{missing:?}");
        }
        assert_eq!(cluster.run("tree", &["submit", "3"]).unwrap().code, 0);
    }
    let (mut waits, id) = begin_to_wait(&cluster, &[]);
    wait_until("a cancelled job's submitter has ended", || {
        let ended = waits.has_ended().unwrap();
        if !ended {
            interrupt(waits.id());
        }
        ended
    });
    let mut wait = cluster.begin("taskwork", &["wait", "0"]).unwrap();
    wait_until("it waits", || figure("watch_count") == 1);
    interrupt(wait.id());
    wait_until("an interrupted command has ended", || wait.has_ended().unwrap());
    let said = wait.end().unwrap();
    assert!(said.code == 130 && said.err.contains("taskwork wait j-0000000000"), "{said:?}");
    assert_eq!(figure("global_sessions"), before, "sessions; the last of a job {id}");
    assert_eq!(figure("num_alive_connections"), 1, "connections, with the one that asks");
}

#[test]
fn submission_during_server_loss_creates_one_job() {
    const ROUNDS: usize = 6;
    let mut cluster = Cluster::start(&Setup::ensemble()).unwrap();
    let first = cluster.run("tree", &["submit", "3", "--name", "first"]).unwrap();
    assert_eq!(first.code, 0, "{first:?}");
    for round in 0..ROUNDS {
        let leader = cluster.servers().leader().unwrap();
        let name = format!("round-{round}");
        let submits: Vec<Running> =
            (0..3).map(|_| cluster.begin("tree", &["submit", "3", "--name", &name]).unwrap()).collect();
        cluster.servers_mut().kill(leader).unwrap();
        let ids: Vec<String> = submits
            .into_iter()
            .map(|submit| {
                let said = submit.end().unwrap();
                assert_eq!(said.code, 0, "round {round}: {said:?}");
                said.out.trim().to_owned()
            })
            .collect();
        let listed = jobs(&cluster);
        let of_round = listed.iter().filter(|job| job["name"] == name.as_str());
        let mut submitted: Vec<&str> = of_round
            .filter(|job| job["state"] != "submitting")
            .map(|job| job["job"].as_str().unwrap())
            .collect();
        let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        submitted.sort_unstable();
        ids.sort_unstable();
        assert_eq!(submitted, ids, "round {round}: {listed:?}");
        cluster.servers_mut().revive(leader).unwrap();
        cluster.servers_mut().wait_until_serving(leader).unwrap();
    }
}

//! The connector to Slurm against a real one: its nodes are jobs of `deploy/slurm/nodes.sbatch`, and work on
//! a real job over a real ZooKeeper.
//!
//! `cargo xtask test --long` runs this, since it needs Slurm's daemons.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod site;

use std::{
    collections::BTreeSet,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_scale::connector::{
    Calling, Connector, Key, Machine, MachineId, MachineState, Refusal, Why, file,
};
use taskwork_tests::{
    cluster::{Cluster, Running, SOON, program},
    hosts,
    tree::Tree,
};
use zk_server::Setup;

use crate::site::{NODES, Site, in_namespaces, said};

const OFFER: &str = "cpu";

/// The depth of the counted tree.
const DEPTH: &str = "16";
const DEPTH_NUMBER: u32 = 16;

/// The number of tries of the scenario, each with longer jobs.
const ROUNDS: u32 = 4;

/// The maximum duration of a job.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for the result of a call.
fn done<T>(call: Calling<'_, T>) -> Result<T, Refusal> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(call)
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(
            Instant::now() < deadline,
            "not in time: {what}\n{}",
            said("squeue", &["-a", "-t", "all"]).unwrap()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

/// Opens a connector, from a file as users write it.
fn connector(folder: &Path, cluster: &Cluster, more: &[&str]) -> Box<dyn Connector> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm/nodes.sbatch");
    let output = format!("--output={}/logs/%A_%a.log", folder.display());
    let options = [&["--cpus-per-task=2", &output], more].concat();
    let text = json!({
        "kind": "slurm",
        "script": script,
        "arguments": ["--insecure", "--workers", "1", "--drain-deadline", "10"],
        "sbatch": {OFFER: options},
        "environment": {
            "TASKWORK_PROGRAM": program("tree").unwrap(),
            "TASKWORK_ZK": cluster.hosts(),
        },
        "offers": [{"name": OFFER, "workers": 1, "max": 20}],
    });
    file::parse(&text.to_string(), "default", folder).unwrap().connector
}

fn list(connector: &dyn Connector) -> Vec<Machine> {
    done(connector.list()).unwrap()
}

/// Returns the machines in a state.
fn in_state(connector: &dyn Connector, state: &MachineState) -> Vec<MachineId> {
    list(connector).into_iter().filter(|machine| machine.state == *state).map(|machine| machine.id).collect()
}

/// Returns the number of nodes. There is no cluster before its first node.
fn members(cluster: &Cluster) -> usize {
    cluster.json("taskwork", &["nodes"]).map_or(0, |nodes| nodes.as_array().unwrap().len())
}

/// Waits until there are this many nodes, and prints the duration.
fn wait_for_members(cluster: &Cluster, count: usize, what: &str) {
    let began = Instant::now();
    wait_until(what, || members(cluster) == count);
    println!("{what}: {:.1} s", began.elapsed().as_secs_f64());
}

/// Waits until these machines take part in the job. Returns false if the job ended before.
fn wait_for_participation(site: &Site, machines: &[MachineId], job: &mut Running) -> bool {
    let mut all = false;
    wait_until("the nodes take part", || {
        all = machines.iter().all(|machine| site.log(machine.as_str()).contains("the node takes part"));
        all || job.has_ended().unwrap()
    });
    all
}

/// Waits until machines are gone, and checks that they have handed on their tasks.
fn wait_for_leave(site: &Site, connector: &dyn Connector, machines: &[MachineId]) {
    wait_until("the machines are removed", || {
        let gone = in_state(connector, &MachineState::Gone);
        machines.iter().all(|machine| gone.contains(machine))
    });
    for machine in machines {
        let log = site.log(machine.as_str());
        assert!(log.contains("the node has left"), "{machine}:\n{log}");
    }
}

/// Runs the scenario with a job whose states take this long. Returns whether the job was long enough.
fn play(site: &Site, folder: &Path, spin: u32) -> bool {
    let cluster = Cluster::start(&Setup::standalone()).unwrap();
    let slurm = connector(folder, &cluster, &[]);
    let name = |number| key(&format!("s{spin}-{number}"));
    let first = done(slurm.create(OFFER, 2, &name(1))).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(done(slurm.create(OFFER, 2, &name(1))).unwrap(), first, "the same request is done once");
    wait_for_members(&cluster, 2, "0 to 2 nodes");
    let submit = ["submit", DEPTH, "--spin", &spin.to_string(), "--wait", "--json"];
    let mut job = cluster.begin("tree", &submit).unwrap();
    let second = done(slurm.create(OFFER, 2, &name(2))).unwrap();
    wait_for_members(&cluster, NODES, "2 to 4 nodes");
    let four = [&first[..], &second].concat();
    let mut all = wait_for_participation(site, &four, &mut job);
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let theirs: BTreeSet<&str> =
        nodes.as_array().unwrap().iter().filter_map(|node| node["labels"]["machine"].as_str()).collect();
    assert_eq!(
        theirs,
        four.iter().map(MachineId::as_str).collect(),
        "the nodes say on which machines they run"
    );
    let keys: Vec<_> = list(&*slurm).into_iter().filter(|machine| !machine.state.is_over()).collect();
    assert!(
        keys.iter().all(|machine| machine.key == Some(name(1)) || machine.key == Some(name(2))),
        "{keys:?}"
    );
    assert!(keys.iter().all(|machine| machine.offer == OFFER && machine.created_ms.is_some()), "{keys:?}");

    // There is no machine for more: they wait, and are ended while waiting.
    let third = done(slurm.create(OFFER, 2, &name(3))).unwrap();
    let waiting: BTreeSet<MachineId> = in_state(&*slurm, &MachineState::Requested).into_iter().collect();
    assert_eq!(waiting, third.iter().cloned().collect());
    done(slurm.terminate(&third)).unwrap();
    wait_until("the waiting jobs are removed", || in_state(&*slurm, &MachineState::Requested).is_empty());

    // Scale down by the connector, including a job that is already gone.
    let ending = [first[0].clone(), second[1].clone()];
    done(slurm.terminate(&[&ending[..], &third[..1]].concat())).unwrap();
    wait_for_members(&cluster, 2, "4 to 2 nodes");
    wait_for_leave(site, &*slurm, &ending);
    done(slurm.terminate(&ending)).unwrap();

    // A user scales down, and up again.
    said("scancel", &[first[1].as_str()]).unwrap();
    wait_for_leave(site, &*slurm, &first[1..]);
    let fourth = done(slurm.create(OFFER, 1, &name(4))).unwrap();
    wait_for_members(&cluster, 2, "1 to 2 nodes");
    all &= wait_for_participation(site, &fourth, &mut job);
    let was_long_enough = all && !job.has_ended().unwrap();

    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["states"], Tree::sequential(DEPTH_NUMBER).0, "{said}");
    let job = cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
    let rest = in_state(&*slurm, &MachineState::Running);
    done(slurm.terminate(&rest)).unwrap();
    wait_for_leave(site, &*slurm, &rest);
    was_long_enough
}

#[test]
#[ignore = "it needs Slurm's daemons, which `cargo xtask test --long` installs"]
fn slurm_jobs_follow_connector_requests() {
    if !hosts::can_be_made() {
        return;
    }
    let Some(folder) = in_namespaces("slurm_jobs_follow_connector_requests") else {
        return;
    };
    let mut site = Site::start(&folder).unwrap();
    let was_long_enough = (0..ROUNDS).any(|round| play(&site, &folder, 3000 * 4_u32.pow(round)));
    assert!(was_long_enough, "every job ended before its nodes were removed");

    let cluster = Cluster::start(&Setup::standalone()).unwrap();
    let wrong = connector(&folder, &cluster, &["--partition=gpu"]);
    let refusal = done(wrong.create(OFFER, 1, &key("wrong"))).unwrap_err();
    assert!(refusal.why == Why::Wrong && refusal.message.contains("partition"), "{refusal:?}");
    let much = connector(&folder, &cluster, &["--mem=900T"]);
    let refusal = done(much.create(OFFER, 1, &key("much"))).unwrap_err();
    assert_eq!(refusal.why, Why::Wrong, "{refusal:?}");
    let slurm = connector(&folder, &cluster, &[]);
    assert!(list(&*slurm).iter().all(|machine| machine.key != Some(key("wrong"))), "nothing was done");
    site.kill_controller();
    let refusal = done(slurm.list()).unwrap_err();
    assert_eq!(refusal.why, Why::Unknown, "{refusal:?}");
}

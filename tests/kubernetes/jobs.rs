//! A real job on pods that are started and ended: the count is exact, and no node is lost.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use taskwork_scale::connector::MachineId;
use taskwork_tests::{
    cluster::{Cluster, Running, program},
    tree::Tree,
};
use zk_server::Setup;

use crate::{
    done, key,
    kubelet::Program,
    small::{OFFER, Small},
};

/// The depth of the counted tree.
const DEPTH: &str = "16";
const DEPTH_NUMBER: u32 = 16;

/// The number of tries of the scenario, each with longer jobs.
const ROUNDS: u32 = 4;

/// The maximum duration of the job.
const PATIENCE: Duration = Duration::from_secs(240);

/// Waits until the nodes of these pods take part in the job. Returns false if the job ended before.
fn wait_for_participation(kubernetes: &Small, pods: &[String], job: &mut Running) -> bool {
    let mut all = false;
    kubernetes.wait_until("the nodes take part", |this| {
        all = pods.iter().all(|pod| this.log(pod).contains("the node takes part"));
        all || job.has_ended().unwrap()
    });
    all
}

/// Checks that removed pods have handed on their tasks.
fn check_left(kubernetes: &Small, pods: &[String]) {
    for pod in pods {
        let log = kubernetes.log(pod);
        assert!(log.contains("the node has left"), "{pod}:\n{log}");
    }
}

/// Returns the machine names that the nodes of a cluster report.
fn machines(cluster: &Cluster) -> BTreeSet<String> {
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let machine = |node: &Value| node["labels"]["machine"].as_str().unwrap_or_default().to_owned();
    nodes.as_array().unwrap().iter().map(machine).collect()
}

/// Runs the scenario with a job whose states take this long. Returns whether the job was long enough.
fn play(spin: u32) -> bool {
    let cluster = Cluster::start(&Setup::standalone()).unwrap();
    let kubernetes = Small::start(
        0,
        Some(Program {
            path: program("tree").unwrap(),
            arguments: ["node", "--workers", "1", "--drain-deadline", "10"].map(str::to_owned).to_vec(),
            environment: cluster.environment.clone(),
            grace: Duration::from_secs(20),
            logs: cluster.folder().to_owned(),
        }),
    );
    let connector = kubernetes.connector();
    done(connector.create(OFFER, 2, &key("k-1"))).unwrap();
    kubernetes.wait_for(2);
    let mut job =
        cluster.begin("tree", &["submit", DEPTH, "--spin", &spin.to_string(), "--wait", "--json"]).unwrap();

    // Scale up, with one answer lost.
    kubernetes.world().faults.lost = 1;
    done(connector.create(OFFER, 2, &key("k-2"))).unwrap_err();
    done(connector.create(OFFER, 2, &key("k-2"))).unwrap();
    kubernetes.wait_for(4);
    let four = kubernetes.ready();
    let mut all = wait_for_participation(&kubernetes, &four, &mut job);
    assert_eq!(machines(&cluster), four.iter().cloned().collect());

    // Scale down: exactly the chosen pods drain.
    let chosen = [four[0].clone(), four[3].clone()];
    let ids: Vec<MachineId> = chosen.iter().map(|pod| pod.parse().unwrap()).collect();
    done(connector.terminate(&ids)).unwrap();
    kubernetes.wait_for(2);
    assert_eq!((kubernetes.ready(), kubernetes.replicas()), (vec![four[1].clone(), four[2].clone()], 2));
    check_left(&kubernetes, &chosen);

    // Half of them are evicted at once; Kubernetes replaces them.
    done(connector.create(OFFER, 2, &key("k-3"))).unwrap();
    kubernetes.wait_for(4);
    let four = kubernetes.ready();
    all &= wait_for_participation(&kubernetes, &four, &mut job);
    for pod in &four[..2] {
        let _ = kubernetes.world().delete_pod(pod, None);
    }
    kubernetes.wait_for(4);
    check_left(&kubernetes, &four[..2]);
    let was_long_enough = all && !job.has_ended().unwrap();

    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["states"], Tree::sequential(DEPTH_NUMBER).0, "{said}");
    let job = cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    assert_eq!((&job["attempt"], &job["lost"]), (&1.into(), &Value::Array(vec![])), "{job}");
    was_long_enough
}

#[test]
fn job_continues_while_pods_are_scaled_and_evicted() {
    let was_long_enough = (0..ROUNDS).any(|round| play(2000 * 4_u32.pow(round)));
    assert!(was_long_enough, "every job ended before its pods were removed");
}

/// Kubernetes restarts a node that exits by itself, for example after `taskwork drain`, as another node of
/// the same pod. The pod is removed when it is ended.
#[test]
fn pod_with_drained_node_is_removed_when_ended() {
    let cluster = Cluster::start(&Setup::standalone()).unwrap();
    let kubernetes = Small::start(
        0,
        Some(Program {
            path: program("tree").unwrap(),
            arguments: ["node", "--workers", "1"].map(str::to_owned).to_vec(),
            environment: cluster.environment.clone(),
            grace: Duration::from_secs(40),
            logs: cluster.folder().to_owned(),
        }),
    );
    let connector = kubernetes.connector();
    let machines = done(connector.create(OFFER, 1, &key("k"))).unwrap();
    kubernetes.wait_for(1);
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let node = nodes[0]["node"].as_str().unwrap().to_owned();
    let drained = cluster.run("taskwork", &["drain", &node, "--wait"]).unwrap();
    assert_eq!(drained.code, 0, "{drained:?}");
    kubernetes.wait_until("its process was started again", |this| {
        this.world().pods.values().all(|pod| pod.restarts == 1 && pod.is_ready)
    });
    done(connector.terminate(&machines)).unwrap();
    kubernetes.wait_for(0);
    assert_eq!(kubernetes.log(machines[0].as_str()).matches("the node has left").count(), 2);
    assert_eq!(done(connector.list()).unwrap(), []);
}

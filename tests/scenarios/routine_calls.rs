//! Direct and nested calls of routines: nodes and gateways that are lost, an outage of ZooKeeper, and overload.

use std::{
    fs,
    io::Read as _,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{Cluster, SOON};
use zk_server::Setup;

use crate::routine_site::{Gateway, Site};

/// Routines that note their nodes, and wait while there is no file `open`.
const MODULE: &str = r#"
import os, time
import routines

NODE = os.getppid()

def waits(n):
    with open(FOLDER + "/notes", "a") as notes:
        notes.write(f"{n} {NODE}\n")
    while not os.path.exists(FOLDER + "/open"):
        time.sleep(0.01)
    return n

def deep(n):
    return 0 if n == 0 else 1 + routines.call("deep@1", n - 1)

def outer(n):
    return routines.call("square@1.0", n)
"#;

impl Site {
    /// Deploys a routine of the module.
    fn add(&self, name: &str, function: &str, more: &str) {
        let folder = self.cluster.folder().join(name);
        fs::create_dir(&folder).unwrap();
        let text = format!(
            "name = '{name}'\nversion = '1'\nruntime = 'python3'\nentry = 'calls:{function}'\n{more}\n"
        );
        fs::write(folder.join("routine.toml"), text).unwrap();
        let place = format!("FOLDER = {:?}\n", self.source.to_str().unwrap());
        fs::write(folder.join("calls.py"), place + MODULE).unwrap();
        self.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
    }

    fn open(&self) {
        fs::write(self.source.join("open"), "").unwrap();
    }

    /// Waits until a call runs for the `times`th time, and returns its nodes.
    fn wait_for(&self, call: u64, times: usize) -> Vec<u32> {
        let deadline = Instant::now() + SOON;
        loop {
            let nodes = self.notes().remove(&call).unwrap_or_default();
            if nodes.len() >= times {
                return nodes;
            }
            assert!(Instant::now() < deadline, "call {call}: {nodes:?}\n{}", self.cluster.logs());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Gateway {
    /// Makes a call with one argument, and returns its outcome. Repeats it while it is refused.
    fn call(&self, routine: &str, argument: &Value) -> Value {
        let (path, body) = (format!("/v1/routines/{routine}/call"), json!({ "argument": [argument] }));
        let deadline = Instant::now() + SOON;
        loop {
            let (status, line) = self.post(&path, "", &body);
            if status != 503 {
                assert_eq!((status, &line["index"]), (200, &json!(0)), "{line}");
                return line;
            }
            assert!(Instant::now() < deadline, "{line}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn killed_node_repeats_idempotent_direct_calls_only() {
    let mut site = Site::new();
    site.start_nodes(2);
    site.add("again", "waits", "idempotent = true");
    site.add("once", "waits", "");
    let gateway = Gateway::start(&site.cluster);
    assert_eq!(gateway.call("square@1.0", &json!(12))["value"]["square"], 144);
    let large = "x".repeat(2 << 20);
    assert_eq!(gateway.call("square@1.0", &json!(large))["error"]["kind"], "user", "it is no number");
    thread::scope(|scope| {
        let (calls, gateway) = ([("once@1", 1), ("again@1", 2)], &gateway);
        let called = calls.map(|(routine, n)| scope.spawn(move || gateway.call(routine, &json!(n))));
        let [once, again] = [1, 2].map(|call| site.wait_for(call, 1)[0]);
        assert_ne!(once, again, "the first node is busy");
        let killed =
            [once, again].map(|id| site.cluster.nodes.iter().position(|node| node.id() == id).unwrap());
        site.cluster.kill_nodes(&killed[1..]).unwrap();
        // The only slot of the other node is free after the first call.
        site.cluster.kill_nodes(&killed[..1]).unwrap();
        site.start_nodes(1);
        let nodes = site.wait_for(2, 2);
        assert!(nodes[1] != once && nodes[1] != again, "{nodes:?}");
        site.open();
        let [once, again] = called.map(|called| called.join().unwrap());
        assert_eq!(once["error"]["kind"], "outcome-unknown", "{once}");
        assert_eq!(again["value"], 2, "{again}");
    });
    assert_eq!(site.notes()[&1].len(), 1, "it is not repeated");
    // A direct call is no job.
    let jobs = site.cluster.json("taskwork", &["jobs"]).unwrap();
    assert_eq!(jobs.as_array().unwrap().len(), 1, "{jobs}");
}

#[test]
fn nested_calls_use_one_worker_to_depth_16() {
    let mut site = Site::new();
    site.start_nodes(1);
    site.add("deep", "deep", "");
    site.add("outer", "outer", "");
    let gateway = Gateway::start(&site.cluster);
    assert_eq!(gateway.call("deep@1", &json!(16))["value"], 16);
    assert_eq!(gateway.call("outer@1", &json!(3))["value"], json!({ "square": 9 }));
    let error = &gateway.call("outer@1", &json!(-3))["error"];
    let trace = error["trace"].as_str().unwrap();
    assert!(
        trace.contains("in outer") && trace.contains("in run") && trace.contains("-3 is negative"),
        "{error}"
    );
    let jobs = site.cluster.json("taskwork", &["jobs"]).unwrap();
    let service = jobs[0]["job"].as_str().unwrap();
    site.wait_for_display(service, &[("done", 2), ("failed", 1), ("running", 0)]);
    // In a job, too.
    let mapped = site.cluster.run("routines", &["map", "deep@1", "--range", "17..18"]).unwrap();
    assert!(mapped.code == 1 && mapped.out.contains("more than 16 deep"), "{mapped:?}");
}

#[test]
fn direct_calls_continue_without_zookeeper_and_after_gateway_restart() {
    let mut site = Site::on(Cluster::start(&Setup::standalone()).unwrap());
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    assert_eq!(gateway.call("square@1.0", &json!(1))["value"]["square"], 1);
    site.cluster.servers_mut().kill(0).unwrap();
    for n in 2..40 {
        assert_eq!(gateway.call("square@1.0", &json!(n))["value"]["square"], n * n);
    }
    let servers = site.cluster.servers_mut();
    servers.revive(0).unwrap();
    servers.wait_until_serving(0).unwrap();
    assert_eq!(gateway.call("square@1.0", &json!(40))["value"]["square"], 1600);
    // Killed, so that it does not leave.
    drop(gateway.running);
    let gateway = Gateway::start(&site.cluster);
    let other = Gateway::start(&site.cluster);
    for gateway in [&gateway, &other] {
        assert_eq!(gateway.call("square@1.0", &json!(41))["value"]["square"], 1681);
    }
    let jobs = site.cluster.json("taskwork", &["jobs"]).unwrap();
    assert_eq!(jobs.as_array().unwrap().len(), 1, "one service job: {jobs}");
    let id = jobs[0]["job"].as_str().unwrap();
    assert_eq!(site.cluster.run("taskwork", &["cancel", id]).unwrap().code, 0);
    let deadline = Instant::now() + SOON;
    while site.cluster.json("taskwork", &["jobs"]).unwrap().as_array().unwrap().len() < 2 {
        assert!(Instant::now() < deadline, "the service job is not replaced\n{}", site.cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateway.call("square@1.0", &json!(42))["value"]["square"], 1764);
}

#[test]
fn overload_is_refused_and_abandoned_calls_are_stopped() {
    /// The calls for which a node with one slot has room.
    const ROOM: usize = 17;
    let mut site = Site::new();
    site.start_nodes(1);
    site.add("waits", "waits", "");
    let gateway = Gateway::start(&site.cluster);
    let json = "content-type: application/json\r\n";
    let send = |n: usize| {
        let body = format!("{{\"argument\":[{n}]}}");
        gateway.send("POST /v1/routines/waits@1/call", json, &body)
    };
    let mut calls = (0..=ROOM).map(send).collect::<Vec<_>>();
    // One of them is refused at once; which one depends on the order of arrival.
    let (found, refused) = std::sync::mpsc::channel();
    for call in &calls {
        let (mut call, found) = (call.try_clone().unwrap(), found.clone());
        thread::spawn(move || {
            let mut answer = String::new();
            // Fails when the connection is shut down below.
            if call.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
                let _ = found.send(answer);
            }
        });
    }
    let refused = refused.recv_timeout(SOON).unwrap();
    assert!(refused.starts_with("HTTP/1.0 503") && refused.contains("retry-after: 1"), "{refused}");
    assert!(refused.contains("busy"), "{refused}");
    calls.drain(..).for_each(|call| call.shutdown(std::net::Shutdown::Both).unwrap());
    // The gate is closed, so an abandoned call would keep the slot.
    assert_eq!(gateway.call("square@1.0", &json!(5))["value"]["square"], 25);
}

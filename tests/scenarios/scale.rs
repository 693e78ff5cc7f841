//! A controller starts and ends the processes of a job: the count is exact, and no process is started twice.

use std::{
    collections::BTreeSet,
    fs::{self, DirEntry},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::{
    cluster::{Cluster, Running, SOON, program},
    tree::Tree,
};
use zk_server::Setup;

use crate::json::Schema;

/// The depth of the counted tree: every process gets a part of it before the gate is open.
const DEPTH: &str = "20";
const DEPTH_NUMBER: u32 = 20;
/// The maximum duration of the job.
const PATIENCE: Duration = Duration::from_secs(300);
/// The interval at which conditions are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A cluster whose nodes are started by a controller.
struct Stage {
    /// Kills the processes in every case: they are children of controllers that have exited.
    machines: Machines,
    cluster: Cluster,
    connector: PathBuf,
}

/// The folder in which the connector stores the list of its processes.
pub(crate) struct Machines(PathBuf);

impl Machines {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    fn records(&self) -> Vec<Value> {
        let files = fs::read_dir(self.0.join("default")).into_iter().flatten().flatten();
        let json = files.filter(|file| file.path().extension().is_some_and(|end| end == "json"));
        json.filter_map(|file| serde_json::from_str(&fs::read_to_string(file.path()).ok()?).ok()).collect()
    }

    /// Returns the ids of the processes that were started and not found to be gone.
    fn processes(&self) -> BTreeSet<u64> {
        let states = self.records().into_iter().map(|record| record["state"].clone());
        states
            .filter_map(|state| {
                state["running"]["pid"].as_u64().or(state["ending"]["process"]["pid"].as_u64())
            })
            .collect()
    }

    pub(crate) fn logs(&self) -> String {
        let files = fs::read_dir(self.0.join("default")).into_iter().flatten().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
        let shown = |file: DirEntry| {
            format!("--- {}\n{}", file.path().display(), fs::read_to_string(file.path()).unwrap_or_default())
        };
        logs.map(shown).collect::<Vec<_>>().concat()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for process in self.processes() {
            // It may have exited already.
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{process}")]).status();
        }
    }
}

impl Stage {
    fn new(cluster: Cluster) -> Self {
        let node = program("tree").unwrap();
        let connector = cluster.folder().join("connector.json");
        let content = json!({
            "kind": "local",
            "currency": "EUR",
            "program": [node, "node", "--workers", "1", "--drain-deadline", "10", "--zk-session-timeout", "4"],
            "folder": "machines",
            "grace_s": 30,
            "offers": [{"name": "process", "workers": 1, "price_per_hour": 0.05, "max": 12, "start_s": 2}],
        });
        fs::write(&connector, content.to_string()).unwrap();
        Self { machines: Machines::new(cluster.folder().join("machines")), cluster, connector }
    }

    /// Starts a controller. Its session is short, so that the next one need not wait long.
    fn controller(&self, min: &str, max: &str) -> Running {
        let file = self.connector.to_str().unwrap();
        let bounds = ["scale", "--connector", file, "--min", min, "--max", max];
        let pace = ["--every", "0.5", "--zk-session-timeout", "2"];
        self.cluster.begin("taskwork", &[&bounds[..], &pace].concat()).unwrap()
    }

    fn nodes(&self) -> Vec<Value> {
        let nodes = self.cluster.json("taskwork", &["nodes"]);
        nodes.map(|nodes| nodes.as_array().unwrap().clone()).unwrap_or_default()
    }

    fn wait_until(&self, what: &str, by: &Running, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let before = Instant::now();
        while !holds(self) {
            let controller = by.errors();
            assert!(before.elapsed() < SOON, "not in time: {what}\n{controller}\n{}", self.machines.logs());
            thread::sleep(LOOK_EVERY);
        }
        before.elapsed()
    }

    /// Waits until there are this many nodes and as many processes.
    fn has(&self, count: usize, by: &Running) -> Duration {
        let what = format!("{count} nodes");
        self.wait_until(&what, by, |stage| {
            stage.nodes().len() == count && stage.machines.processes().len() == count
        })
    }
}

fn kill(process: &Running) {
    assert!(Command::new("kill").args(["-KILL", &process.id().to_string()]).status().unwrap().success());
}

#[test]
fn killed_controllers_scale_job_from_2_to_12_to_4_processes() {
    let stage = Stage::new(Cluster::shared().unwrap());
    let first = stage.controller("2", "2");
    stage.wait_until("the first controller is in office", &first, |_| {
        first.errors().contains("decides about")
    });
    // It waits until the first is gone.
    let second = stage.controller("12", "12");
    stage.has(2, &first);
    stage.wait_until("the second controller waits", &second, |_| second.errors().contains("waiting"));
    let before = stage.machines.processes();
    let gate = stage.cluster.gate().unwrap();
    let submit = ["submit", DEPTH, "--gate", gate.path(), "--wait", "--json"];
    let job = stage.cluster.begin("tree", &submit).unwrap();
    kill(&first);
    let up = stage.has(12, &second);
    assert!(
        before.is_subset(&stage.machines.processes()),
        "the next controller knows the processes of the first"
    );
    let labels = stage.nodes().iter().map(|node| node["labels"].clone()).collect::<Vec<_>>();
    assert!(
        labels.iter().all(|labels| labels["offer"] == "process"
            && labels["price"] == "0.05/h"
            && labels["currency"] == "EUR"),
        "{labels:?}"
    );
    // A process that crashes is replaced.
    let lost = stage.machines.processes().into_iter().next().unwrap();
    assert!(Command::new("kill").args(["-KILL", &lost.to_string()]).status().unwrap().success());
    stage.wait_until("it is replaced", &second, |stage| {
        let processes = stage.machines.processes();
        processes.len() == 12 && !processes.contains(&lost) && stage.nodes().len() == 12
    });
    kill(&second);
    let third = stage.controller("4", "4");
    let down = stage.has(4, &third);
    gate.open().unwrap();
    println!("2 to 12 processes in {:.1} s, 12 to 4 in {:.1} s", up.as_secs_f64(), down.as_secs_f64());
    let explained = stage.cluster.json("taskwork", &["scale", "--explain"]).unwrap();
    Schema::shipped(&stage.cluster).check("scaling", &explained);
    assert_eq!((&explained["wanted"], &explained["goals"]["max"]), (&4.into(), &4.into()), "{explained}");
    let said = job.end_within(PATIENCE).unwrap();
    assert_eq!(said.code, 0, "{said:?}\n{}", stage.machines.logs());
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["states"], Tree::sequential(DEPTH_NUMBER).0, "{said}");
    let job = stage.cluster.json("taskwork", &["job", said["job"].as_str().unwrap()]).unwrap();
    assert_eq!(job["attempt"], 1, "{job}");
    assert_eq!(
        stage.machines.records().len(),
        13,
        "no other processes were started than these and the lost one"
    );
    kill(&third);
    let fourth = stage.controller("0", "4");
    stage.has(0, &fourth);
}

#[test]
fn controller_without_zookeeper_changes_nothing() {
    let mut stage = Stage::new(Cluster::start(&Setup::standalone()).unwrap());
    let controller = stage.controller("3", "3");
    stage.has(3, &controller);
    let before = stage.machines.processes();
    let since = controller.errors().len();
    stage.cluster.servers_mut().kill(0).unwrap();
    // ZooKeeper stops either between two rounds, or when the controller was about to write its actions. In
    // the second case it does not know whether it holds the office, and takes it again.
    let notices = ["nothing is changed", "the planned actions were not written"];
    stage.wait_until("it notices", &controller, |_| {
        let said = &controller.errors()[since..];
        notices.iter().any(|notice| said.contains(notice))
    });
    let loses_office = controller.errors()[since..].contains(notices[1]);
    // Longer than the sessions of the controller and the nodes.
    thread::sleep(Duration::from_secs(6));
    stage.cluster.servers_mut().revive(0).unwrap();
    stage.cluster.servers_mut().wait_until_serving(0).unwrap();
    let goes_on = if loses_office { "decides about the machines now" } else { "are known again" };
    stage.wait_until("it continues", &controller, |_| controller.errors()[since..].contains(goes_on));
    stage.wait_until("the nodes are members again", &controller, |stage| stage.nodes().len() == 3);
    assert_eq!(stage.machines.processes(), before);
    assert_eq!(stage.machines.records().len(), 3);
}

#[test]
fn invalid_controller_settings_are_reported_at_once() {
    let stage = Stage::new(Cluster::shared().unwrap());
    let file = stage.connector.to_str().unwrap();
    let bad = stage.cluster.folder().join("bad.json");
    fs::write(&bad, r#"{"kind": "local", "offers": []}"#).unwrap();
    for (arguments, code, part) in [
        (&["--connector", "/no/such/file", "--max", "3"][..], 2, "/no/such/file"),
        (&["--connector", bad.to_str().unwrap(), "--max", "3"], 2, "0 offers"),
        (&["--connector", file, "--min", "4", "--max", "3"], 2, "--min 4"),
        (&["--connector", file], 2, "--max"),
        (&["--explain"], 5, "no cluster"),
    ] {
        let said = stage.cluster.run("taskwork", &[&["scale"], arguments].concat()).unwrap();
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(part), "no {part:?} in {said:?}");
    }
    // `--once`, for schedulers that start commands at fixed times.
    let once = ["scale", "--connector", file, "--min", "1", "--max", "1", "--once"];
    let said = stage.cluster.run("taskwork", &once).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(stage.machines.records().len(), 1);
    // A deadline that has passed is a warning: restarting the controller must not fail because of it.
    let late = [&once[..], &["--deadline", "2020-01-01T00:00:00Z"]].concat();
    let said = stage.cluster.run("taskwork", &late).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("the deadline has passed"), "{said:?}");
    // `--once` also exits if the machines are not known, or another controller is in office.
    let blind = stage.cluster.folder().join("blind.json");
    let content = json!({
        "kind": "command",
        "create": ["false"],
        "list": ["false"],
        "terminate": ["false"],
        "offers": [{"name": "none", "workers": 1, "max": 1}],
    });
    fs::write(&blind, content.to_string()).unwrap();
    let blind =
        ["scale", "--connector", blind.to_str().unwrap(), "--max", "1", "--once", "--zk-give-up", "8"];
    let said = stage.cluster.run("taskwork", &blind).unwrap();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the machines are not known"), "{said:?}");
    let controller = stage.controller("1", "1");
    stage.wait_until("a controller is in office", &controller, |_| {
        controller.errors().contains("decides about")
    });
    let soon = [&once[..], &["--zk-give-up", "5"]].concat();
    let said = stage.cluster.run("taskwork", &soon).unwrap();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("controls the machines of this cluster"), "{said:?}");
    kill(&controller);
    let dry = ["scale", "--connector", file, "--max", "9", "--min", "9", "--once", "--dry-run", "--json"];
    let said = stage.cluster.run("taskwork", &dry).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains(r#""wanted":{"process":9}"#), "{said:?}");
    assert_eq!(stage.machines.records().len(), 1, "nothing was started");
    assert!(Path::new(file).exists());
}

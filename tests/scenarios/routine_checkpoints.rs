//! Long calls in Python that continue from their states when nodes leave or are killed, and jobs are suspended.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::json;
use taskwork_tests::cluster::SOON;

use crate::routine_site::{Gateway, Site, write_routine};

/// A call of many steps, which are slow until a gate is open. It notes each with the process of its node.
const MODULE: &str = r#"
import os, time
import routines

# Read before the node can be killed.
NODE = os.getppid()

def run(last):
    for step in range(routines.restored(0), last):
        with open(FOLDER + "/notes", "a") as notes:
            notes.write(f"{step} {NODE}\n")
        if not os.path.exists(FOLDER + "/gate"):
            time.sleep(0.02)
        routines.checkpoint(step + 1)
    return last
"#;

const STEPS: u64 = 3_000;

/// A running job of one call.
struct LongCall {
    site: Site,
    gateway: Gateway,
    job: String,
}

impl LongCall {
    /// Starts the call, and waits until it has made so many steps.
    fn start(steps: usize) -> Self {
        let mut site = Site::new();
        let folder = site.cluster.folder().join("steps");
        let description = "name = 'steps'\nversion = '1'\nentry = 'module:run'\ncheckpoint = 0.2";
        write_routine(&folder, description, &site.source, MODULE);
        site.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
        site.start_nodes(2);
        let gateway = Gateway::start(&site.cluster);
        let (status, job) =
            gateway.post("/v1/jobs", "", &json!({ "routine": "steps@1", "arguments": [STEPS] }));
        assert_eq!(status, 201, "{job}");
        let call = Self { site, gateway, job: job["job"].as_str().unwrap().to_owned() };
        call.wait(|call| call.site.notes().len() >= steps);
        call
    }

    fn wait(&self, until: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !until(self) {
            assert!(Instant::now() < deadline, "{:?}\n{}", self.site.notes(), self.site.cluster.logs());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the process of the node that has made a step.
    fn node_of(&self, step: u64) -> u32 {
        self.site.notes()[&step][0]
    }

    /// Returns the place of the node that makes the call.
    fn place(&self) -> usize {
        let process = self.node_of(0);
        self.site.cluster.nodes.iter().position(|node| node.id() == process).unwrap()
    }

    /// Lets the call complete, and checks that it has made all steps. Returns those that were repeated.
    fn finish(self) -> Vec<u64> {
        fs::write(self.site.source.join("gate"), "").unwrap();
        let state = self.gateway.wait(&self.job, &self.site.cluster);
        assert_eq!(state["tally"], json!({ "ended": 1, "failed": {} }), "{state}");
        let notes = self.site.notes();
        assert_eq!(notes.keys().copied().collect::<Vec<_>>(), (0..STEPS).collect::<Vec<_>>());
        notes.into_iter().filter(|(_, nodes)| nodes.len() > 1).map(|(step, _)| step).collect()
    }
}

#[test]
fn long_call_continues_elsewhere_and_repeats_no_step_when_its_node_leaves() {
    let mut call = LongCall::start(20);
    let leaves = call.place();
    call.site.cluster.signal_nodes(&[leaves], "TERM").unwrap();
    assert!(call.site.cluster.nodes[leaves].wait().unwrap().success(), "{}", call.site.cluster.logs());
    let last = call.node_of(0);
    call.wait(|call| call.site.notes().values().flatten().any(|&node| node != last));
    assert_eq!(call.finish(), [0; 0]);
}

#[test]
fn suspended_long_call_repeats_no_step() {
    let call = LongCall::start(20);
    let command = |verb: &str| call.site.cluster.run("taskwork", &[verb, &call.job]).unwrap();
    assert_eq!(command("suspend").code, 0);
    // Its node has written the task when the state says so.
    call.wait(|call| call.gateway.get(&format!("/v1/jobs/{}", call.job)).1["state"] == "suspended");
    assert_eq!(command("resume").code, 0);
    let steps = call.site.notes().len();
    call.wait(|call| call.site.notes().len() > steps);
    assert_eq!(call.finish(), [0; 0]);
}

#[test]
fn long_call_continues_from_periodic_state_when_its_node_is_killed() {
    // Longer than the time between two writes of the node's tasks.
    const KILLED_AFTER: usize = 250;
    let mut call = LongCall::start(KILLED_AFTER);
    let killed = call.place();
    call.site.cluster.kill_nodes(&[killed]).unwrap();
    let process = call.node_of(0);
    call.wait(|call| call.site.notes().values().flatten().any(|&node| node != process));
    let repeated = call.finish();
    assert!(!repeated.contains(&0) && repeated.len() < KILLED_AFTER, "{repeated:?}");
}

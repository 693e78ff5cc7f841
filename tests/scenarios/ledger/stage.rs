//! A cluster with a running job whose result is known, as the target of faults.

use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::{
    cluster::{Cluster, Running, SOON},
    gate::Gate,
    tree::Tree,
};
/// The depth of the counted tree: more than a million states.
pub(super) const DEPTH: u32 = 16;
/// The maximum duration of a job, with a margin for a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);
/// The options of a node. It may start while ZooKeeper is stopped.
const NODE: [&str; 6] = ["--workers", "1", "--zk-session-timeout", "2", "--zk-connect-timeout", "60"];
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A job whose result is known.
pub(super) struct Counted {
    pub(super) program: &'static str,
    pub(super) submit: Vec<&'static str>,
    /// The name and value of its result.
    pub(super) answer: (&'static str, u64),
}

/// Returns a tree of some dozens of large tasks, which waits at the gate of the stage.
pub(super) fn tree() -> Counted {
    let (states, _) = Tree::sequential(DEPTH);
    Counted { program: "tree", submit: vec!["16"], answer: ("states", states) }
}

/// Returns a published unbalanced tree, of which much more is stolen.
pub(super) fn unbalanced(spin: &'static str) -> Counted {
    Counted { program: "uts", submit: vec!["T3", "--spin", spin], answer: ("nodes", 4_112_897) }
}

/// A cluster with a running job.
pub(super) struct Stage {
    /// The title of the scenario in failure messages.
    pub(super) title: String,
    pub(super) began: Instant,
    pub(super) cluster: Cluster,
    pub(super) job: Running,
    pub(super) counted: Counted,
    /// The gate of the job, if it is of the program `tree`.
    pub(super) gate: Gate,
    /// The running nodes.
    pub(super) here: Vec<usize>,
}

impl Stage {
    /// Starts nodes of one worker each, and a job; returns when all are at work.
    pub(super) fn new(title: impl Display, mut cluster: Cluster, nodes: usize, counted: Counted) -> Self {
        cluster.start_nodes(counted.program, nodes, &NODE).unwrap();
        let gate = cluster.gate().unwrap();
        let mut arguments = [&["submit", "--wait", "--json"], &counted.submit[..]].concat();
        if counted.program == "tree" {
            arguments.extend(["--gate", gate.path()]);
        }
        let job = cluster.begin(counted.program, &arguments).unwrap();
        for node in 0..nodes {
            cluster.wait_for_log(node, "the node takes part").unwrap();
        }
        let (title, began) = (title.to_string(), Instant::now());
        Self { title, began, cluster, job, counted, gate, here: (0..nodes).collect() }
    }

    /// Records an action with its time; the harness prints it when the scenario fails.
    pub(super) fn note(&self, what: impl Display) {
        println!("{}: {:.2} s: {what}", self.title, self.began.elapsed().as_secs_f64());
    }

    pub(super) fn fail(&self, what: impl Display) -> ! {
        self.note(&what);
        panic!("{}: {what}\n{}", self.title, self.cluster.logs());
    }

    pub(super) fn wait_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds(self) {
            if Instant::now() > deadline {
                self.fail(format!("not in time: {what}"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns the nodes as the cluster lists them; none while ZooKeeper does not answer.
    pub(super) fn members(&self) -> Vec<Value> {
        let said = self.cluster.json("taskwork", &["nodes"]).unwrap_or_default();
        said.as_array().cloned().unwrap_or_default()
    }

    /// Returns the ids of the members.
    pub(super) fn names(&self) -> Vec<String> {
        self.members().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the node that leads, if any.
    pub(super) fn leader(&self) -> Option<usize> {
        let members = self.members();
        let leads = members.iter().find(|member| member["leads"] == true)?["node"].as_str()?;
        self.here.iter().copied().find(|&node| self.cluster.name_of(node).as_deref() == Some(leads))
    }

    pub(super) fn job(&self) -> Value {
        self.cluster.json("taskwork", &["job", "0"]).unwrap()
    }

    /// Waits until about half of the work is done, by the reports of the nodes.
    pub(super) fn wait_until_half_done(&mut self) {
        let half = self.counted.answer.1 / 2;
        self.wait_until("half of the job", |stage| stage.job()["figures"]["worked"].as_u64() >= Some(half));
    }

    /// Kills nodes, all at the same instant.
    pub(super) fn kill(&mut self, victims: &[usize], how: &str) {
        let names: Vec<_> = victims.iter().map(|&node| (node, self.cluster.name_of(node))).collect();
        self.cluster.kill_nodes(victims).unwrap();
        self.here.retain(|node| !victims.contains(node));
        self.note(format!("killed {names:?}, {how}; there are {:?}", self.here));
    }

    /// Starts nodes, which may be killed before they are ready.
    pub(super) fn start(&mut self, count: usize) {
        for _ in 0..count {
            self.here.push(self.cluster.start_node(self.counted.program, &NODE).unwrap());
        }
        self.note(format!("{count} nodes started; there are {:?}", self.here));
    }

    /// Opens the gate of a job of the program `tree`, so that it can end.
    pub(super) fn open_gate(&mut self) {
        if self.counted.program == "tree" && self.job.has_ended().unwrap() {
            self.fail("the job has not waited at its gate");
        }
        self.gate.open().unwrap();
    }

    /// Opens the gate, and waits for the end of the job: the exact count, in the first attempt. Returns the
    /// output of `taskwork job`, and the cluster; its nodes run the next job.
    pub(super) fn finish_exactly(mut self) -> (Value, Cluster) {
        self.open_gate();
        let deadline = Instant::now() + PATIENCE;
        while !self.job.has_ended().unwrap() {
            if Instant::now() > deadline {
                let job = self.cluster.json("taskwork", &["job", "0"]);
                self.fail(format!("the job does not end: {job:?}"));
            }
            thread::sleep(LOOK_EVERY);
        }
        let job = self.job();
        let worked = &job["figures"]["worked"];
        self.note(format!("the job has ended: {} worked of {:?}", worked, self.counted.answer));
        self.assert_exact(&job);
        for node in self.here.clone() {
            if self.cluster.nodes[node].has_ended().unwrap() {
                self.fail(format!("node {node} has ended"));
            }
        }
        // No node is stuck in a state in which it cannot work.
        if self.counted.program == "tree" {
            let said = self.cluster.json("tree", &["submit", "10", "--wait"]);
            let states = said.as_ref().map(|said| said["states"].as_u64()).unwrap_or_default();
            if states != Some(Tree::sequential(10).0) {
                self.fail(format!("the next job: {said:?}"));
            }
        }
        (job, self.cluster)
    }

    /// Checks the exact count, in the first attempt.
    pub(super) fn assert_exact(&self, job: &Value) {
        let said = self.cluster.json("taskwork", &["result", "0"]);
        let (name, answer) = self.counted.answer;
        let errors = self.job.errors();
        let printed = self.job.output();
        let found: Value = serde_json::from_str(&printed).unwrap_or_default();
        if found[name] != answer {
            self.fail(format!("{name} is not {answer}: {printed} {errors} {said:?} {job}"));
        }
        if job["attempt"] != 1 || job["lost"] != json!([]) {
            self.fail(format!("another attempt: {job}"));
        }
    }
}

//! Tasks that crash every node: they are set aside, the job ends without them and reports it, and a retry
//! completes the job once the cause is fixed. The count is exact then: nothing was lost with the task, and
//! nothing is done twice.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, CommandOutput, SOON},
    tree::{DEADLY_DEPTH, Tree},
};

const DEPTH: u32 = 13;
/// The session timeout of a node that only panics, in seconds: a node that is stopped for a while together
/// with its machine is not lost, which would count against its tasks.
const PATIENT: &str = "60";
/// The session timeout where processes die, which others detect when the session is over. Longer than the
/// pauses of a busy machine.
const HASTY: &str = "4";
/// The number of nodes in a row that a task may crash.
const CRASHES: u64 = 3;
/// The maximum number of lost nodes. Each task that holds the deadly state starts at a deeper level than the task
/// that it was split off from. At each level at most `CRASHES - 1` losses count, and one more before the task
/// was written, which counts for none.
const LOSSES_MAX: u64 = CRASHES * DEADLY_DEPTH as u64;
/// The maximum duration of a job that loses nodes one after the other, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A cluster, and the file that makes a state deadly.
struct Stage {
    cluster: Cluster,
    file: PathBuf,
    node: [&'static str; 4],
}

impl Stage {
    fn new(nodes: usize, session: &'static str) -> Self {
        let node = ["--workers", "2", "--zk-session-timeout", session];
        let mut cluster = Cluster::shared().unwrap();
        cluster.start_nodes("tree", nodes, &node).unwrap();
        let file = cluster.folder().join("deadly");
        fs::write(&file, "").unwrap();
        Self { cluster, file, node }
    }

    /// Submits the job and waits for its end, replacing the nodes that have died.
    fn submit(&mut self, more: &[&str]) -> CommandOutput {
        let (depth, file) = (DEPTH.to_string(), self.file.to_str().unwrap());
        let crashes = format!("--crashes={CRASHES}");
        let arguments = ["submit", &depth, "--spin", "20000", "--deadly", file, &crashes, "--wait", "--json"];
        let mut job = self.cluster.begin("tree", &[&arguments, more].concat()).unwrap();
        let began = Instant::now();
        while !job.has_ended().unwrap() {
            assert!(began.elapsed() < PATIENCE, "{}", self.cluster.logs());
            self.replace_the_dead();
            thread::sleep(Duration::from_millis(50));
        }
        job.end().unwrap()
    }

    fn replace_the_dead(&mut self) {
        let dead =
            self.cluster.nodes.iter_mut().filter_map(|node| node.has_ended().ok()).filter(|&dead| dead);
        let (dead, nodes) = (dead.count(), self.cluster.nodes.len());
        for _ in nodes..2 + dead {
            self.cluster.start_node("tree", &self.node).unwrap();
        }
    }

    /// Returns the number of nodes that have died.
    fn died(&mut self) -> usize {
        self.cluster.nodes.iter_mut().filter_map(|node| node.has_ended().ok()).filter(|&dead| dead).count()
    }

    fn job(&self) -> Value {
        self.cluster.json("taskwork", &["job", "0"]).unwrap()
    }

    /// Fixes the cause, retries, and checks the result.
    fn retry(&mut self) {
        fs::remove_file(&self.file).unwrap();
        self.replace_the_dead();
        let said = self.cluster.run("taskwork", &["retry", "0"]).unwrap();
        assert_eq!((said.code, said.out.trim()), (0, "job j-0000000000 retries 1 task that was set aside"));
        let waiting = self.cluster.begin("taskwork", &["wait", "0"]).unwrap();
        let said = waiting.end_within(SOON).unwrap();
        assert_eq!(said.code, 0, "{}\n{}", said.err, self.cluster.logs());
        let result: Value = serde_json::from_str(&said.out).unwrap();
        let (states, largest) = Tree::sequential(DEPTH);
        assert_eq!((&result["output"], &result["variables"]["largest"]), (&states.into(), &largest.into()));
        assert_eq!(result.get("set_aside"), None);
        let job = self.job();
        assert_eq!((&job["state"], &job["set_aside"]), (&"done".into(), &Value::Array(Vec::new())), "{job}");
    }
}

/// Checks the output for a job that has ended without one of its tasks.
fn check_incomplete(stage: &Stage, said: &CommandOutput) -> Value {
    assert_eq!(said.code, 1, "{}\n{}", said.err, stage.cluster.logs());
    let result: Value = serde_json::from_str(&said.out).unwrap();
    let (states, _) = Tree::sequential(DEPTH);
    let found = result["states"].as_u64().unwrap();
    assert!(found < states, "{found} of {states} states");
    assert!(found > 0 && result["finished"] == false, "{result}");
    let [task] = &result["set_aside"].as_array().unwrap()[..] else { panic!("{result}") };
    assert_eq!(task["crashes"], CRASHES, "{task}");
    assert!(said.err.contains("taskwork retry j-0000000000"), "{}", said.err);
    let job = stage.job();
    assert_eq!((&job["state"], &job["attempt"]), (&"incomplete".into(), &1.into()), "{job}");
    assert_eq!(&job["set_aside"][0], task, "{job}");
    let waited = stage.cluster.run("taskwork", &["wait", "0"]).unwrap();
    assert_eq!(waited.code, 1, "{}", waited.err);
    assert!(waited.err.contains("is incomplete"), "{}", waited.err);
    task.clone()
}

fn events(job: &Value, kind: &str) -> usize {
    let timeline = job["timeline"].as_array().unwrap();
    timeline.iter().filter(|event| event["kind"] == kind).count()
}

#[test]
fn panicking_task_is_set_aside_without_process_loss() {
    let mut stage = Stage::new(2, PATIENT);
    let said = stage.submit(&[]);
    let task = check_incomplete(&stage, &said);
    assert!(task["reason"].as_str().unwrap().ends_with("is deadly"), "{task}");
    assert_eq!(stage.died(), 0);
    let job = stage.job();
    let panicked = events(&job, "panicked") as u64;
    assert!((CRASHES..=LOSSES_MAX).contains(&panicked), "{panicked}: {job}");
    assert_eq!(events(&job, "set_aside"), 1, "{job}");
    stage.retry();
}

#[test]
fn task_that_aborts_is_set_aside_after_three_processes() {
    let mut stage = Stage::new(2, HASTY);
    let said = stage.submit(&["--aborts"]);
    let task = check_incomplete(&stage, &said);
    assert_eq!(task["reason"], "");
    let died = stage.died() as u64;
    assert!((CRASHES..=LOSSES_MAX).contains(&died), "{died}");
    stage.retry();
}

#[test]
fn job_without_set_aside_tasks_cannot_be_retried() {
    let stage = Stage::new(1, PATIENT);
    fs::remove_file(&stage.file).unwrap();
    let said = stage.cluster.run("tree", &["submit", "6", "--wait"]).unwrap();
    assert_eq!(said.code, 0, "{}", said.err);
    let said = stage.cluster.run("taskwork", &["retry", "0"]).unwrap();
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("only an incomplete job can be retried"), "{}", said.err);
    for wrong in ["1", "-1", "many"] {
        let said = stage.cluster.run("tree", &["submit", "6", &format!("--crashes={wrong}")]).unwrap();
        assert_eq!(said.code, 2, "{}", said.err);
    }
}

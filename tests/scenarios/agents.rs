//! Programs that travel with jobs: agents fetch them, and start nodes from them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::{
    cluster::{Cluster, SOON, edited},
    tree::Tree,
};
use tempfile::TempDir;
use zk_server::{Setup, TlsFiles};

use crate::tls::Authority;

/// The nodes of an agent leave soon after their last job, so that other programs start.
const IDLE: [&str; 4] = ["--idle-exit", "1s", "--workers", "1"];

const STARTED: &str = "a node of the job's program is started";

fn wait_until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Starts an agent with a cache of its own, and waits until it is a member.
fn start_agent(cluster: &mut Cluster, more: &[&str]) -> (usize, PathBuf) {
    let cache = cluster.folder().join(format!("cache-{}", cluster.nodes.len()));
    let options = [&["--cache", cache.to_str().unwrap()], &IDLE[..], more].concat();
    let agent = cluster.start_agent(&options).unwrap();
    cluster.wait_for_log(agent, "the node is ready").unwrap();
    (agent, cache)
}

/// Returns the processes of the nodes that an agent has started.
fn guests(cluster: &Cluster, agent: usize) -> Vec<String> {
    let log = cluster.log(agent);
    let lines = log.lines().filter(|line| line.contains(STARTED));
    let process = |line: &str| Some(line.split_once("process=")?.1.split_whitespace().next()?.to_owned());
    lines.filter_map(process).collect()
}

fn job(cluster: &Cluster, name: &str) -> Option<Value> {
    // The cluster does not exist before its first member or job.
    let jobs = cluster.json("taskwork", &["jobs"]).ok()?;
    jobs.as_array().unwrap().iter().find(|job| job["name"] == name).cloned()
}

/// A cluster with TLS, and the certificates of two submitters.
fn certified() -> (Cluster, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let authority = Authority::new();
    fs::write(at("ca.pem"), &authority.certificate).unwrap();
    for name in ["server", "alice", "mallory"] {
        authority.sign(folder.path(), name);
    }
    let files = TlsFiles { key_store: at("server.pem").into(), trust_store: at("ca.pem").into() };
    let mut cluster = Cluster::start(&Setup { tls: Some(files), ..Setup::standalone() }).unwrap();
    cluster.environment =
        [("TASKWORK_ZK", cluster.servers().tls_hosts()), ("TASKWORK_ZK_TLS_CA", at("ca.pem"))]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec();
    become_submitter(&mut cluster, folder.path(), "alice");
    (cluster, folder)
}

/// Lets the next commands have a certificate.
fn become_submitter(cluster: &mut Cluster, folder: &Path, name: &str) {
    cluster.environment.retain(|(variable, _)| !variable.ends_with("_CERT") && !variable.ends_with("_KEY"));
    for (variable, file) in [("TASKWORK_ZK_TLS_CERT", "cert"), ("TASKWORK_ZK_TLS_KEY", "key")] {
        let file = folder.join(format!("{name}.{file}")).to_str().unwrap().to_owned();
        cluster.environment.push((variable.to_owned(), file));
    }
}

#[test]
fn program_of_certified_submitter_runs_on_agents_although_one_is_killed() {
    let (mut cluster, folder) = certified();
    let agents = [0; 3].map(|_| start_agent(&mut cluster, &["--allow", "alice"]).0);
    let gate = cluster.gate().unwrap();
    // The submitter exits when two agents have the program.
    let submitted = cluster.json("tree", &["submit", "14", "--bring", "--gate", gate.path()]).unwrap();
    let id = submitted["job"].as_str().unwrap();
    for agent in agents {
        cluster.wait_for_log(agent, "the node works on a job").unwrap();
    }
    let lost = guests(&cluster, agents[0]);
    cluster.kill_nodes(&[agents[0]]).unwrap();
    wait_until(&cluster, "the node of the killed agent is gone", || {
        lost.len() == 1 && lost.iter().all(|process| !Path::new("/proc").join(process).exists())
    });
    gate.open().unwrap();
    let done = cluster.json("taskwork", &["wait", id]).unwrap();
    assert_eq!(done["output"], Tree::sequential(14).0, "{done}\n{}", cluster.logs());

    let changed = edited("tree", &folder.path().join("changed"), "a").unwrap();
    let changed = changed.to_str().unwrap();
    let done = cluster.json(changed, &["submit", "11", "--bring", "--wait", "--name", "changed"]).unwrap();
    assert_eq!(done["states"], Tree::sequential(11).0, "{done}\n{}", cluster.logs());

    // Both agents have the first program already, so they do not fetch it again, and the submitter exits nevertheless.
    let submitted = cluster.json("tree", &["submit", "10", "--bring"]).unwrap();
    let done = cluster.json("taskwork", &["wait", submitted["job"].as_str().unwrap()]).unwrap();
    assert_eq!(done["output"], Tree::sequential(10).0, "{done}\n{}", cluster.logs());

    become_submitter(&mut cluster, folder.path(), "mallory");
    let others = edited("tree", &folder.path().join("others"), "b").unwrap();
    let submitting =
        cluster.begin(others.to_str().unwrap(), &["submit", "9", "--bring", "--name", "refused"]).unwrap();
    for agent in &agents[1..] {
        cluster.wait_for_log(*agent, "does not allow its submitter: run the agent with --allow ").unwrap();
    }
    let refused = job(&cluster, "refused").unwrap();
    assert_eq!(refused["state"], "no_nodes", "{refused}");
    assert_eq!(cluster.run("taskwork", &["cancel", refused["job"].as_str().unwrap()]).unwrap().code, 0);
    assert_eq!(submitting.end().unwrap().code, 0, "it no longer waits for agents");
}

#[test]
fn job_waits_for_agent_which_drains_after_signal() {
    let mut cluster = Cluster::shared().unwrap();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", "12", "--bring", "--name", "waits", "--gate", gate.path()];
    let submitting = cluster.begin("tree", &submit).unwrap();
    let shows = |text: &str| {
        let id = job(&cluster, "waits").map(|job| job["job"].as_str().unwrap().to_owned());
        id.is_some_and(|id| cluster.run("taskwork", &["job", &id]).unwrap().out.contains(text))
    };
    wait_until(&cluster, "the job shows the missing agent", || shows("no agent (`taskwork agent`) for "));
    let (agent, _) = start_agent(&mut cluster, &["--allow-any"]);
    let submitted = submitting.end().unwrap();
    assert!(submitted.code == 0 && submitted.err.contains("travels with the job"), "{submitted:?}");
    cluster.wait_for_log(agent, "the node works on a job").unwrap();
    cluster.signal_nodes(&[agent], "TERM").unwrap();
    assert!(cluster.nodes[agent].wait().unwrap().success(), "{}", cluster.logs());
    let processes = guests(&cluster, agent);
    assert!(processes.len() == 1 && !Path::new("/proc").join(&processes[0]).exists(), "{}", cluster.logs());
    // The next agent gets the program from its own folder: the submitter has exited.
    let cache = cluster.folder().join(format!("cache-{agent}"));
    let again = ["--allow-any", "--cache", cache.to_str().unwrap()];
    let next = cluster.start_agent(&[&again, &IDLE[..]].concat()).unwrap();
    cluster.wait_for_log(next, "the node works on a job").unwrap();
    gate.open().unwrap();
    let done = cluster.json("taskwork", &["wait", submitted.out.trim()]).unwrap();
    assert_eq!(done["output"], Tree::sequential(12).0, "{done}\n{}", cluster.logs());
}

#[test]
fn program_with_another_content_is_refused_and_fetched_again() {
    let mut cluster = Cluster::shared().unwrap();
    let (_, cache) = start_agent(&mut cluster, &["--allow-any"]);
    let done = cluster.json("tree", &["submit", "9", "--bring", "--wait"]).unwrap();
    assert_eq!(done["states"], Tree::sequential(9).0, "{}", cluster.logs());
    // The only copy gets another content of the same length.
    let kept = fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
    let mut content = fs::read(&kept).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    let other = cache.join("other");
    fs::write(&other, content).unwrap();
    fs::rename(other, &kept).unwrap();

    let submit =
        ["submit", "10", "--bring", "--require", "zone=b", "--name", "orphan", "--zk-session-timeout", "2"];
    let submitting = cluster.begin("tree", &submit).unwrap();
    wait_until(&cluster, "it is submitted", || {
        job(&cluster, "orphan").is_some_and(|job| job["state"] == "no_nodes")
    });
    let id = job(&cluster, "orphan").unwrap()["job"].as_str().unwrap().to_owned();
    drop(submitting);
    let is_alone = || {
        let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
        nodes.as_array().unwrap().iter().filter(|node| node["program"] == "agent").count() == 1
    };
    wait_until(&cluster, "the submitter is gone", is_alone);
    let (agent, _) = start_agent(&mut cluster, &["--allow-any", "--label", "zone=b"]);
    cluster.wait_for_log(agent, "does not match its name").unwrap();
    assert!(cluster.log(agent).contains("submit the program again with --bring"), "{}", cluster.log(agent));
    assert!(!cluster.log(agent).contains(STARTED), "{}", cluster.log(agent));

    let again = ["submit", "9", "--bring", "--require", "zone=b", "--wait"];
    let done = cluster.json("tree", &again).unwrap();
    assert_eq!(done["states"], Tree::sequential(9).0, "{}", cluster.logs());
    let done = cluster.json("taskwork", &["wait", &id]).unwrap();
    assert_eq!(done["output"], Tree::sequential(10).0, "{}", cluster.logs());
}

#[test]
fn submitter_of_a_running_program_waits_only_for_agents_with_the_required_labels() {
    let mut cluster = Cluster::shared().unwrap();
    let (agent, _) = start_agent(&mut cluster, &["--allow-any", "--label", "zone=a"]);
    let (other, _) = start_agent(&mut cluster, &["--allow-any", "--label", "zone=b"]);
    let gate = cluster.gate().unwrap();
    // The node has the label of agents, too.
    let at_gate = ["submit", "14", "--bring", "--require", "zone=a,agent=yes", "--gate", gate.path()];
    let first = cluster.run("tree", &at_gate).unwrap();
    assert_eq!(first.code, 0, "it waits for two copies: {first:?}\n{}", cluster.logs());
    cluster.wait_for_log(agent, "the node works on a job").unwrap();
    let second = cluster.run("tree", &at_gate).unwrap();
    assert_eq!(second.code, 0, "{second:?}\n{}", cluster.logs());
    assert!(!cluster.log(other).contains(STARTED), "{}", cluster.log(other));
    gate.open().unwrap();
    for submitted in [first, second] {
        let done = cluster.json("taskwork", &["wait", submitted.out.trim()]).unwrap();
        assert_eq!(done["output"], Tree::sequential(14).0, "{done}\n{}", cluster.logs());
    }
    assert_eq!(guests(&cluster, agent).len(), 1, "{}", cluster.log(agent));
}

#[test]
fn node_that_ignores_signals_is_killed_at_the_third_one() {
    let mut cluster = Cluster::shared().unwrap();
    let (agent, _) = start_agent(&mut cluster, &["--allow-any"]);
    let gate = cluster.gate().unwrap();
    let submitted = cluster.run("tree", &["submit", "12", "--bring", "--gate", gate.path()]).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    cluster.wait_for_log(agent, "the node works on a job").unwrap();
    let node = guests(&cluster, agent);
    assert!(Command::new("kill").args(["-STOP", &node[0]]).status().unwrap().success());
    let killed = "a node has not left in time and is killed";
    wait_until(&cluster, killed, || {
        // The system may merge signals that are sent in quick succession.
        cluster.log(agent).contains(killed) || cluster.signal_nodes(&[agent], "TERM").is_err()
    });
    assert!(cluster.nodes[agent].wait().unwrap().success(), "{}", cluster.logs());
    assert!(!Path::new("/proc").join(&node[0]).exists(), "{}", cluster.logs());
}

#[test]
fn agent_and_its_node_leave_after_notice() {
    let mut cluster = Cluster::shared().unwrap();
    let notice = cluster.folder().join("notice");
    let source = format!("file:{}", notice.display());
    let (agent, _) = start_agent(&mut cluster, &["--allow-any", "--notice", &source]);
    let gate = cluster.gate().unwrap();
    let submitted = cluster.run("tree", &["submit", "12", "--bring", "--gate", gate.path()]).unwrap();
    assert_eq!(submitted.code, 0, "{submitted:?}");
    cluster.wait_for_log(agent, "the node works on a job").unwrap();
    fs::write(&notice, "").unwrap();
    assert!(cluster.nodes[agent].wait().unwrap().success(), "{}", cluster.logs());
    let is_gone = |process: &String| !Path::new("/proc").join(process).exists();
    assert!(guests(&cluster, agent).iter().all(is_gone), "{}", cluster.logs());
    assert!(!cluster.log(agent).contains("is killed"), "{}", cluster.logs());
}

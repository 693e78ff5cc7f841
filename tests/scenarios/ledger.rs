//! Nodes that are killed without notice, at any moment and in any number: others continue from their last
//! written state. The count is exact every time, in the first attempt.

mod stage;

use std::{thread, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng, seq::SliceRandom as _};
use serde_json::{Value, json};
use taskwork_tests::{cluster::Cluster, data::is_long, tree::Tree};
use zk_server::Setup;

use self::stage::{DEPTH, PATIENCE, Stage, tree, unbalanced};

/// The leader's message about a node whose holdings other nodes continue.
const CONTINUED: &str = "a node was lost; others continue from its last write";

/// A random victim.
fn any(random: &mut SmallRng, nodes: &[usize]) -> usize {
    nodes[random.random_range(0..nodes.len())]
}

/// One round: one to four nodes are killed at random moments of a job, determined by a seed: one node,
/// several at once, the leader, or a draining node; other nodes are started sooner or later.
fn round_of_kills(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let spin = if is_long() { "20" } else { "15" };
    let counted = if seed.is_multiple_of(2) { tree() } else { unbalanced(spin) };
    let mut stage = Stage::new(format!("kills, seed {seed}"), Cluster::shared().unwrap(), 4, counted);
    let mut kills: usize = random.random_range(1..=4);
    let mut missing = 0;
    while kills > 0 {
        thread::sleep(Duration::from_millis(random.random_range(0..3_000)));
        if stage.job.has_ended().unwrap() {
            stage.note(format!("the job has ended before the last {kills} kills"));
            break;
        }
        let together = random.random_range(1..=kills.min(stage.here.len()));
        let (mut victims, mut how) = (stage.here.clone(), "at the same instant".to_owned());
        victims.shuffle(&mut random);
        victims.truncate(together);
        match random.random_range(0..4) {
            0 => {
                if let Some(leader) = stage.leader() {
                    victims = vec![leader];
                    "the leader".clone_into(&mut how);
                }
            }
            1 => {
                victims = vec![any(&mut random, &stage.here)];
                // A node that is not ready yet is killed by the signal, which is as good.
                stage.cluster.nodes[victims[0]].signal("TERM").unwrap();
                let head_start = Duration::from_millis(random.random_range(0..60));
                thread::sleep(head_start);
                how = format!("{head_start:?} after it was told to leave");
            }
            _ => {}
        }
        stage.kill(&victims, &how);
        kills -= victims.len();
        missing += victims.len();
        if kills == 0 || stage.here.is_empty() || random.random() {
            stage.start(missing);
            missing = 0;
        }
    }
    stage.finish_exactly();
}

/// Seeds that together kill a leader, several nodes at the same instant, and draining nodes.
const SHORT_SEEDS: [u64; 2] = [9, 28];

/// Returns the seed of a single round, to repeat a failure.
fn seed() -> Option<u64> {
    std::env::var("TASKWORK_SEED").ok()?.parse().ok()
}

#[test]
fn kills() {
    if let Some(seed) = seed() {
        return round_of_kills(seed);
    }
    if is_long() {
        (0..50).for_each(round_of_kills);
    } else {
        // Together they cover every way to be killed.
        SHORT_SEEDS.into_iter().for_each(round_of_kills);
    }
}

/// Short jobs, one after another: a kill hits the claim of the root and the last commits as often as any step
/// between.
fn round_of_short_jobs(seed: u64, jobs: usize) {
    let mut random = SmallRng::seed_from_u64(seed);
    let options = ["--workers", "1", "--zk-session-timeout", "1"];
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 3, &options).unwrap();
    let mut here: Vec<usize> = (0..3).collect();
    let (states, largest) = Tree::sequential(12);
    for number in 0..jobs {
        let title = format!("short jobs, seed {seed}, job {number}");
        let spin = random.random_range(0..8_000).to_string();
        let job = cluster.begin("tree", &["submit", "12", "--spin", &spin, "--wait", "--json"]).unwrap();
        let moment = Duration::from_millis(random.random_range(0..1_000));
        thread::sleep(moment);
        here.shuffle(&mut random);
        let victims = here.split_off(random.random_range(0..here.len()));
        cluster.kill_nodes(&victims).unwrap();
        println!("{title}: --spin {spin}; killed {victims:?} after {moment:?}; there are {here:?}");
        for _ in victims {
            here.push(cluster.start_node("tree", &options).unwrap());
        }
        let said = job.end_within(PATIENCE).unwrap_or_else(|error| {
            let job = cluster.json("taskwork", &["job", &number.to_string()]);
            panic!("{title}: {error} {job:?}\n{}", cluster.logs())
        });
        let found: Value = serde_json::from_str(&said.out).unwrap_or_default();
        let right = found["states"] == states && found["largest"] == largest;
        assert!(right, "{title}: {said:?}\n{}", cluster.logs());
        let job = cluster.json("taskwork", &["job", &number.to_string()]).unwrap();
        let nobody = job["attempt"] == 1 && job["lost"] == json!([]);
        assert!(nobody, "{title}: {job}\n{}", cluster.logs());
    }
}

#[test]
fn short_jobs() {
    let jobs = if is_long() { 100 } else { 3 };
    round_of_short_jobs(seed().unwrap_or(0), jobs);
}

/// All faults at once, by a seed: nodes join, leave, are killed, are frozen and thawed, and ZooKeeper is
/// restarted, faster than the nodes recover.
fn round_of_storms(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let counted = if seed.is_multiple_of(2) { tree() } else { unbalanced("15") };
    let cluster = Cluster::start(&Setup::standalone()).unwrap();
    let mut stage = Stage::new(format!("storm, seed {seed}"), cluster, 4, counted);
    let mut frozen: Vec<usize> = Vec::new();
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(random.random_range(0..600)));
        if stage.job.has_ended().unwrap() {
            break;
        }
        let awake: Vec<usize> = stage.here.iter().copied().filter(|node| !frozen.contains(node)).collect();
        match random.random_range(0..10) {
            0..=3 if !stage.here.is_empty() => {
                let mut victims = stage.here.clone();
                victims.shuffle(&mut random);
                victims.truncate(random.random_range(1..=2));
                stage.kill(&victims, "in a storm");
                frozen.retain(|node| !victims.contains(node));
            }
            4 if !awake.is_empty() => {
                let node = any(&mut random, &awake);
                stage.cluster.nodes[node].signal("TERM").unwrap();
                stage.here.retain(|&here| here != node);
                stage.note(format!("{node} was told to leave"));
            }
            5 | 6 if !awake.is_empty() => {
                let node = any(&mut random, &awake);
                stage.cluster.nodes[node].signal("STOP").unwrap();
                frozen.push(node);
                stage.note(format!("{node} stopped"));
            }
            7 if !frozen.is_empty() => {
                let node = frozen.swap_remove(random.random_range(0..frozen.len()));
                stage.cluster.nodes[node].signal("CONT").unwrap();
                stage.note(format!("{node} continues"));
            }
            8 => {
                stage.cluster.servers_mut().kill(0).unwrap();
                thread::sleep(Duration::from_millis(random.random_range(0..1_500)));
                stage.cluster.servers_mut().revive(0).unwrap();
                stage.cluster.servers_mut().wait_until_serving(0).unwrap();
                stage.note("ZooKeeper was restarted");
            }
            _ => {}
        }
        if stage.here.len() - frozen.len() < 4 && random.random() {
            stage.start(1);
        }
    }
    for node in frozen {
        stage.cluster.nodes[node].signal("CONT").unwrap();
    }
    stage.start(2);
    stage.finish_exactly();
}

/// With `TASKWORK_LONG=1`: the scenarios above already cover every single fault.
#[test]
fn storms() {
    if let Some(seed) = seed() {
        return round_of_storms(seed);
    }
    (0..if is_long() { 30 } else { 1 }).for_each(round_of_storms);
}

/// Returns the part of a job that a node has done, by its last report.
fn worked_by(job: &Value, name: &str) -> u64 {
    let nodes = job["nodes"].as_array().unwrap();
    nodes
        .iter()
        .find(|node| node["node"] == name)
        .map_or(0, |node| node["figures"]["worked"].as_u64().unwrap())
}

#[test]
fn all_nodes_killed_at_half_are_continued_by_new_ones() {
    let mut stage = Stage::new("all", Cluster::shared().unwrap(), 4, tree());
    stage.wait_until_half_done();
    stage.kill(&[0, 1, 2, 3], "all at once");
    stage.start(4);
    let (job, cluster) = stage.finish_exactly();
    // They have not started from the beginning.
    let again: u64 = (4..8).map(|node| worked_by(&job, &cluster.name_of(node).unwrap())).sum();
    assert!(again < Tree::sequential(DEPTH).0, "{again} states by the new nodes: {job}");
}

#[test]
fn job_without_living_nodes_is_suspended_and_resumed() {
    let mut stage = Stage::new("suspend", Cluster::shared().unwrap(), 4, tree());
    stage.wait_until_half_done();
    stage.kill(&[0, 1, 2, 3], "all at once");
    assert_eq!(stage.cluster.json("taskwork", &["suspend", "0"]).unwrap()["suspended"], true);
    stage.wait_until("there is no member", |stage| stage.names().is_empty());
    assert_eq!(stage.job()["state"], "suspended");
    stage.start(3);
    // They do another job, and leave this one suspended.
    let other = stage.cluster.json("tree", &["submit", "10", "--wait"]).unwrap();
    assert_eq!(other["states"], Tree::sequential(10).0, "{}", stage.cluster.logs());
    assert_eq!(stage.job()["state"], "suspended");
    assert_eq!(stage.cluster.json("taskwork", &["resume", "0"]).unwrap()["resumed"], true);
    stage.finish_exactly();
}

#[test]
fn nodes_frozen_beyond_sessions_are_continued_and_join_again() {
    let mut stage = Stage::new("frozen", Cluster::shared().unwrap(), 4, tree());
    let leader = stage.leader().unwrap();
    let frozen = [leader, (leader + 1) % 4];
    let before = stage.names();
    for node in frozen {
        stage.cluster.nodes[node].signal("STOP").unwrap();
    }
    stage.note(format!("{frozen:?} stopped"));
    stage.wait_until("their sessions have expired", |stage| stage.names().len() == 2);
    let left = stage.here.clone().into_iter().filter(|node| !frozen.contains(node));
    let left: Vec<usize> = left.collect();
    stage.wait_until("their work is taken over", |stage| {
        left.iter().map(|&node| stage.cluster.log(node).matches(CONTINUED).count()).sum::<usize>() >= 2
    });
    for node in frozen {
        stage.cluster.nodes[node].signal("CONT").unwrap();
    }
    stage.note("they continue");
    stage.wait_until("they have joined again", |stage| {
        let names = stage.names();
        names.len() == 4 && names.iter().filter(|name| !before.contains(name)).count() == 2
    });
    stage.finish_exactly();
}

/// A node is killed while ZooKeeper is stopped, so no node can detect it.
fn killed_while_zookeeper_is_away(away: Duration) {
    let title = format!("ZooKeeper stopped for {away:?}");
    let mut stage = Stage::new(title, Cluster::start(&Setup::standalone()).unwrap(), 4, tree());
    stage.cluster.servers_mut().kill(0).unwrap();
    stage.note("ZooKeeper is stopped");
    // It stays stopped for this time.
    thread::sleep(away / 2);
    stage.kill(&[1], "while ZooKeeper is stopped");
    thread::sleep(away / 2);
    stage.cluster.servers_mut().revive(0).unwrap();
    stage.cluster.servers_mut().wait_until_serving(0).unwrap();
    stage.note("ZooKeeper is restarted");
    stage.wait_until("it is known to be lost", |stage| stage.cluster.logs().contains(CONTINUED));
    stage.finish_exactly();
}

#[test]
fn node_killed_during_outage_is_continued() {
    killed_while_zookeeper_is_away(Duration::from_secs(3));
    if is_long() {
        killed_while_zookeeper_is_away(Duration::from_secs(10));
    }
}

#[test]
fn job_and_ensemble_leaders_killed_together_are_replaced() {
    let mut stage = Stage::new("leaders", Cluster::start(&Setup::ensemble()).unwrap(), 4, tree());
    let (leader, server) = (stage.leader().unwrap(), stage.cluster.servers().leader().unwrap());
    stage.cluster.servers_mut().kill(server).unwrap();
    stage.kill(&[leader], &format!("with server {server}, which led the ensemble"));
    stage.start(1);
    stage.wait_until("another server leads", |stage| stage.cluster.servers().leader().is_some());
    stage.wait_until("it is known to be lost", |stage| stage.cluster.logs().contains(CONTINUED));
    stage.finish_exactly();
}

/// Jobs have the same names again: nodes must not mix their old holdings into a new job.
#[test]
fn emptied_zookeeper_receives_no_old_work() {
    let mut stage = Stage::new("empty", Cluster::start(&Setup::standalone()).unwrap(), 3, tree());
    let before = stage.names();
    stage.cluster.servers_mut().kill(0).unwrap();
    stage.cluster.servers_mut().wipe(0).unwrap();
    stage.cluster.servers_mut().revive(0).unwrap();
    stage.note("ZooKeeper is empty");
    // The new job exists before the nodes detect the loss.
    let new = ["submit", "14", "--spin", "1000", "--wait", "--json"];
    let said = stage.cluster.run("tree", &new).unwrap_or_else(|error| stage.fail(error));
    let found: Value = serde_json::from_str(&said.out).unwrap_or_default();
    let (states, largest) = Tree::sequential(14);
    if (said.code, &found["states"], &found["largest"]) != (0, &json!(states), &json!(largest)) {
        stage.fail(format!("{said:?}"));
    }
    assert_eq!(found["job"], "j-0000000000", "it has the name of the other");
    let job = stage.job();
    assert_eq!((&job["attempt"], &job["lost"]), (&json!(1), &json!([])), "{job}");
    stage.wait_until("all have joined again", |stage| {
        let names = stage.names();
        names.len() == 3 && !names.iter().any(|name| before.contains(name))
    });
    // The submitter of the old job gets an error, and not the result of the new one.
    stage.wait_until("the old job's submitter knows", |stage| stage.job.has_ended().unwrap());
    let (printed, errors) = (stage.job.output(), stage.job.errors());
    if !errors.contains("forgotten") || printed.contains("states") {
        stage.fail(format!("submitter of the old job: {printed} {errors}"));
    }
    let said = stage.cluster.logs().matches("the node's session is over; it joins again").count();
    assert!(said >= 3, "{}", stage.cluster.logs());
}

/// The node's work is lost with it, and the job starts again; the loss of any other node costs nothing.
#[test]
fn only_unprotected_node_loss_costs_an_attempt() {
    let mut stage = Stage::new("unprotected", Cluster::shared().unwrap(), 3, tree());
    let unprotected = stage.cluster.start_unprotected_node().unwrap();
    stage.cluster.wait_until_unprotected().unwrap();
    stage.kill(&[0], "which is protected");
    stage.wait_until("others continue", |stage| stage.cluster.logs().contains(CONTINUED));
    assert_eq!(stage.job()["attempt"], 1);
    stage.kill(&[unprotected], "which is not protected");
    stage.cluster.wait_for_log(1, "the node takes part attempt=2").unwrap();
    stage.cluster.wait_for_log(2, "the node takes part attempt=2").unwrap();
    let lost = stage.cluster.name_of(unprotected).unwrap();
    stage.open_gate();
    stage.wait_until("the job has ended", |stage| stage.job.has_ended().unwrap());
    let job = stage.job();
    assert_eq!(
        (&job["attempt"], &job["lost"][0]["node"]),
        (&json!(2), &json!(lost)),
        "{}",
        stage.cluster.logs()
    );
    assert_eq!(job["lost"].as_array().unwrap().len(), 1, "{job}");
    let found: Value = serde_json::from_str(&stage.job.output()).unwrap();
    assert_eq!(found["states"], stage.counted.answer.1, "{}", stage.cluster.logs());
}

//! `taskwork doctor`: its findings on healthy and faulty clusters.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::{Cluster, CommandOutput, SOON};
use zk::{ClusterPaths, Connect, CreateMode, Store};
use zk_server::Setup;

fn findings(said: &CommandOutput) -> Vec<Value> {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// Returns the names of the failed checks.
fn wrong(said: &CommandOutput) -> Vec<String> {
    let found = findings(said);
    let wrong = found.iter().filter(|finding| finding["ok"] == false);
    wrong.map(|finding| finding["check"].as_str().unwrap().to_owned()).collect()
}

fn doctor(cluster: &Cluster, more: &[&str]) -> CommandOutput {
    cluster.run("taskwork", &[&["doctor", "--json"], more].concat()).unwrap()
}

#[track_caller]
fn finds(said: &CommandOutput, check: &str, parts: &[&str]) {
    assert_eq!(said.code, 1, "{said:?}");
    let found = findings(said);
    let finding = found.iter().find(|finding| finding["check"] == check && finding["ok"] == false);
    let finding = finding.unwrap_or_else(|| panic!("nothing wrong with {check} in {said:?}"));
    for part in parts {
        assert!(finding["said"].as_str().unwrap().contains(part), "no {part:?} in {finding}");
    }
    assert_ne!(finding["advice"], "", "{finding}");
}

#[test]
fn doctor_finds_nothing_until_a_server_is_down() {
    let mut cluster = Cluster::start(&Setup::ensemble()).unwrap();
    finds(&doctor(&cluster, &[]), "cluster", &["default"]);
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    assert_eq!(cluster.run("tree", &["submit", "10", "--wait"]).unwrap().code, 0);
    let well = doctor(&cluster, &[]);
    assert_eq!(well.code, 0, "{well:?}");
    let found = findings(&well);
    let checks: Vec<&str> = found.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(
        checks,
        [
            "server", "server", "server", "TLS", "access", "clock", "members", "network", "job", "data",
            "stopping"
        ]
    );
    let servers: Vec<&str> = found[..3].iter().map(|finding| finding["said"].as_str().unwrap()).collect();
    assert_eq!(servers.iter().filter(|said| said.contains("leader")).count(), 1, "{servers:?}");
    let text = cluster.run("taskwork", &["doctor"]).unwrap();
    assert!(text.code == 0 && text.out.contains("follower"), "{text:?}");

    let down = cluster.hosts().split(',').nth(1).unwrap().to_owned();
    cluster.servers_mut().kill(1).unwrap();
    let said = doctor(&cluster, &[]);
    finds(&said, "server", &[&down]);
    assert_eq!(wrong(&said), ["server"], "{said:?}");
}

#[test]
fn doctor_finds_open_folders_wrong_clocks_and_stuck_jobs() {
    let cluster = Cluster::shared().unwrap();
    let file = cluster.folder().join("credentials");
    fs::write(&file, "me:secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let auth = ["--zk-auth", file.to_str().unwrap()];
    let closed = cluster.run("tree", &[&["submit", "3"], &auth[..]].concat()).unwrap();
    assert_eq!(closed.code, 0, "{closed:?}");
    let said = doctor(&cluster, &auth);
    assert_eq!(wrong(&said), ["job"], "{said:?}");
    finds(&said, "job", &["j-0000000000", "no node runs"]);

    // Another cluster, with a member whose clock is wrong.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connect = Connect::new(cluster.hosts());
        connect.credentials = zk::Credentials::parse("me:secret");
        let owner: Arc<dyn Store> = connect.open().await.unwrap();
        let paths = ClusterPaths::new("ahead").unwrap();
        paths.prepare(&*owner).await.unwrap();
        // A member whose clock is a day ahead, and an entry that is not a member.
        let member = serde_json::json!({
            "format": 1, "node": "n1", "address": null, "fingerprint": "", "workers": 1, "program": "tree",
            "program_version": "1", "started_ms": 4_102_444_800_000_u64,
        });
        let made = owner.create(&paths.member("n1"), member.to_string().as_bytes(), CreateMode::Persistent);
        made.await.unwrap();
        owner.create(&paths.member("n2"), b"garbage", CreateMode::Persistent).await.unwrap();
        owner.close().await.unwrap();
    });
    let said = doctor(&cluster, &[&auth[..], &["--cluster", "ahead"]].concat());
    finds(&said, "clock", &["n1", "ahead of"]);
    finds(&said, "member", &["n2"]);
    finds(&doctor(&cluster, &[&auth[..], &["--cluster", "none"]].concat()), "cluster", &["none"]);

    let bare = Cluster::shared().unwrap();
    assert_eq!(bare.run("tree", &["submit", "3"]).unwrap().code, 0);
    let said = doctor(&bare, &auth);
    finds(&said, "access", &["/taskwork/default/jobs", "/taskwork/default/members"]);
}

#[test]
fn nodes_that_cannot_reach_each_other_are_named() {
    let mut cluster = Cluster::shared().unwrap();
    // Nothing listens at these ports: 9 is `discard`, and 7 is `echo`.
    for port in [7, 9] {
        let address = format!("127.0.0.1:{port}");
        cluster.start_node("tree", &["--workers", "1", "--advertise", &address]).unwrap();
    }
    let gate = cluster.gate().unwrap();
    let waiting = cluster.begin("tree", &["submit", "10", "--wait", "--gate", gate.path()]).unwrap();
    let deadline = Instant::now() + SOON;
    while !cluster.logs().contains("a node cannot be reached over the network") {
        assert!(Instant::now() < deadline, "no node warns\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(50));
    }
    let said = loop {
        let said = doctor(&cluster, &[]);
        if said.code == 1 || Instant::now() > deadline {
            break said;
        }
        thread::sleep(Duration::from_millis(50));
    };
    finds(&said, "network", &["cannot reach node", "at 127.0.0.1:"]);
    gate.open().unwrap();
    assert_eq!(waiting.end().unwrap().code, 0);
}

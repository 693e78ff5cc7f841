//! Faults around a cluster: wrong addresses, names and credentials, garbage in znodes, data that is too
//! large. Each error states the event and the remedy, with the right exit code, and affects nothing else.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use taskwork_tests::{
    cluster::{Cluster, CommandOutput, SOON, program},
    tree::Tree,
};
use tokio::net::TcpSocket;
use zk::{
    ClusterPaths, Connect, CreateMode, Credentials, Error, Store,
    membership::{self, Member},
};

#[track_caller]
fn says(said: &CommandOutput, code: i32, parts: &[&str]) {
    assert_eq!(said.code, code, "{said:?}");
    for part in parts {
        assert!(said.err.contains(part), "no {part:?} in {said:?}");
    }
    assert!(!said.err.contains("panicked"), "{said:?}");
}

fn connected(connect: Connect) -> Arc<dyn Store> {
    runtime().block_on(async move { connect.open().await.unwrap() as Arc<dyn Store> })
}

/// One runtime for all sessions of a test: a session needs the runtime that created it.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    })
}

#[test]
fn wrong_addresses_and_names_are_refused_with_remedy() {
    let mut cluster = Cluster::shared().unwrap();
    let hosts = cluster.hosts();
    // A closed port, reserved so that no other process listens on it.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap().to_string();
    let quick = ["--zk-connect-timeout", "1"];
    for command in [&["status"][..], &["nodes"], &["drain", "n"], &["job", "3"]] {
        let said = cluster.run("taskwork", &[command, &["--zk", &nobody], &quick].concat()).unwrap();
        says(&said, 3, &[&nobody, "1000 ms", "Is it running"]);
    }
    for command in [&["node"][..], &["submit", "3"]] {
        let said = cluster.run("tree", &[command, &["--zk", &nobody], &quick].concat()).unwrap();
        says(&said, 3, &[&nobody, "1000 ms"]);
    }
    let chroot = format!("{hosts}/no/such");
    says(&cluster.run("tree", &["submit", "3", "--zk", &chroot]).unwrap(), 3, &["/no/such", "create it"]);
    for bad in ["", "host:port", "a b:1", "zk://x:1"] {
        says(&cluster.run("tree", &["submit", "3", "--zk", bad]).unwrap(), 2, &["host:port"]);
    }
    let long = "x".repeat(10_000);
    for bad in ["a/b", "", "..", "a\u{7}b", &long] {
        let said = cluster.run("taskwork", &["status", "--cluster", bad]).unwrap();
        says(&said, 2, &["cannot be the name of a cluster"]);
        assert!(said.err.len() < 1000, "{} bytes of error", said.err.len());
    }
    for bad in ["a\nb", "", &long] {
        says(&cluster.run("tree", &["submit", "3", "--name", bad]).unwrap(), 2, &["name of a job"]);
    }
    says(&cluster.run("taskwork", &["status"]).unwrap(), 5, &["there is no cluster", "none"]);
    cluster.start_nodes("tree", 1, &[]).unwrap();
    says(&cluster.run("taskwork", &["status", "--cluster", "x"]).unwrap(), 5, &["\"x\"", "default"]);
    says(&cluster.run("taskwork", &["job", "../.."]).unwrap(), 2, &["expected an id"]);
    says(&cluster.run("taskwork", &["result", "7"]).unwrap(), 5, &["j-0000000007"]);
    says(&cluster.run("taskwork", &["drain", "nobody"]).unwrap(), 5, &["nobody"]);
    says(&cluster.run("tree", &["node", "--workers", "99999"]).unwrap(), 2, &["1 to"]);
    says(&cluster.run("tree", &["node", "--listen", "nowhere"]).unwrap(), 2, &["nowhere"]);
    says(&cluster.run("tree", &["submit", "3", "--attempts", "0"]).unwrap(), 2, &["attempts"]);
}

#[test]
fn invalid_log_filter_is_refused() {
    let run = |program_name: &str, arguments: &[&str], environment: Option<&str>| {
        let mut command = Command::new(program(program_name).unwrap());
        command.args(arguments).env_remove("TASKWORK_LOG");
        command.envs(environment.map(|filter| ("TASKWORK_LOG", filter)));
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        CommandOutput {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    };
    let parts = ["--log", "nonsense==", "is no directive", "warn,taskwork=debug"];
    for command in [&["solve", "3"][..], &["submit", "3"], &["node"]] {
        says(&run("tree", &[command, &["--log", "nonsense=="]].concat(), None), 2, &parts);
        says(&run("tree", command, Some("nonsense==")), 2, &parts);
    }
    says(&run("taskwork", &["status", "--log", "nonsense=="], None), 2, &parts);
    says(&run("tree", &["solve", "3", "--quiet", "--log", "warn,taskwork=debug"], None), 0, &[]);
    says(&run("tree", &["solve", "3", "--quiet"], Some("")), 0, &[]);
}

#[test]
fn port_conflict_and_foreign_address_are_reported() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 1, &[]).unwrap();
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let taken = nodes[0]["address"].as_str().unwrap().to_owned();
    says(&cluster.run("tree", &["node", "--listen", &taken]).unwrap(), 2, &[&taken, "cannot listen"]);
    let open = cluster.run("tree", &["node", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1"]).unwrap();
    says(&open, 2, &["without credentials", "--zk-auth", "--insecure"]);
    let nowhere = cluster.run("tree", &["node", "--listen", "0.0.0.0:0", "--insecure"]).unwrap();
    says(&nowhere, 2, &["--advertise"]);
    let node = cluster
        .start_node("tree", &["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1", "--insecure"])
        .unwrap();
    cluster.wait_for_log(node, "the node is ready").unwrap();
    assert_eq!(cluster.json("tree", &["submit", "10", "--wait"]).unwrap()["states"], Tree::sequential(10).0);
}

fn credentials_file(cluster: &Cluster, name: &str, line: &str) -> PathBuf {
    let file = cluster.folder().join(name);
    fs::write(&file, line).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn cluster_with_credentials_is_closed_to_others() {
    const SECRET: &str = "correct-horse-battery";
    let mut cluster = Cluster::shared().unwrap();
    let right = credentials_file(&cluster, "right", &format!("me:{SECRET}\n"));
    let wrong = credentials_file(&cluster, "wrong", "me:guessed\n");
    let (right, wrong) = (right.to_str().unwrap(), wrong.to_str().unwrap());
    cluster.environment.push(("TASKWORK_ZK_AUTH".to_owned(), right.to_owned()));
    cluster.start_nodes("tree", 2, &["--workers", "1", "--log", "debug"]).unwrap();
    let said = cluster.run("tree", &["submit", "12", "--wait", "--json", "--log", "trace"]).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()["states"],
        Tree::sequential(12).0
    );
    assert!(!said.err.contains(SECRET), "the password is in the log");
    assert!(!cluster.logs().contains(SECRET), "the password is in a node's log");
    for node in &cluster.nodes {
        let shown = fs::read(format!("/proc/{}/cmdline", node.id())).unwrap();
        assert!(
            !String::from_utf8_lossy(&shown).contains(SECRET),
            "the password is in the list of processes"
        );
    }
    // With other credentials, or none, nothing can be read or written.
    cluster.environment.pop();
    let stranger = cluster.run("tree", &["submit", "3", "--zk-auth", wrong]).unwrap();
    says(&stranger, 2, &["not permitted", "--zk-auth"]);
    says(&cluster.run("taskwork", &["nodes"]).unwrap(), 2, &["not permitted", "--zk-auth"]);
    says(&cluster.run("tree", &["node"]).unwrap(), 2, &["not permitted"]);
    let store = connected(Connect::new(cluster.hosts()));
    let paths = ClusterPaths::new("default").unwrap();
    for path in [paths.members(), paths.jobs(), paths.election(), ClusterPaths::ALL.to_owned()] {
        let read = runtime().block_on(store.children(&path));
        assert!(matches!(read, Err(Error::NoAuth { .. })), "{path}: {read:?}");
        let written = runtime().block_on(store.create(&format!("{path}/x"), b"", CreateMode::Persistent));
        assert!(matches!(written, Err(Error::NoAuth { .. })), "{path}: {written:?}");
    }
    let exposed = cluster.folder().join("exposed");
    fs::write(&exposed, "me:x").unwrap();
    fs::set_permissions(&exposed, fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = cluster.run("taskwork", &["nodes", "--zk-auth", exposed.to_str().unwrap()]).unwrap();
    says(&exposed, 2, &["chmod 600"]);
    let missing = cluster.run("taskwork", &["nodes", "--zk-auth", "/no/such"]).unwrap();
    says(&missing, 2, &["/no/such"]);
    // The owner sees everything, including the job that the stranger could not change.
    let mut connect = Connect::new(cluster.hosts());
    connect.credentials = Credentials::parse(&format!("me:{SECRET}"));
    assert_eq!(runtime().block_on(connected(connect).children(&paths.jobs())).unwrap().len(), 1);
}

#[test]
fn credentials_are_sent_to_other_machines_only_by_tls() {
    let cluster = Cluster::shared().unwrap();
    let file = credentials_file(&cluster, "credentials", "me:secret\n");
    let auth = ["--zk-auth", file.to_str().unwrap(), "--zk-connect-timeout", "0.5"];
    // Addresses reserved for documentation: nothing answers there.
    for hosts in ["192.0.2.1:2181", "127.0.0.1:1,192.0.2.1:2181/x", "zk.invalid:2181", "[2001:db8::1]:2181"] {
        let at = [&auth[..], &["--zk", hosts]].concat();
        for (program, command) in [
            ("taskwork", &["status"][..]),
            ("taskwork", &["wait", "3"]),
            ("tree", &["submit", "3"]),
            ("tree", &["node"]),
        ] {
            let said = cluster.run(program, &[command, &at].concat()).unwrap();
            says(&said, 2, &[hosts, "in the clear", "--zk-tls-ca", "--insecure"]);
            assert!(!said.err.contains("secret"), "{said:?}");
            let trusted = cluster.run(program, &[command, &at, &["--insecure"]].concat()).unwrap();
            says(&trusted, 3, &[hosts]);
        }
    }
    let here = cluster.run("tree", &[&["submit", "3"], &auth[..]].concat()).unwrap();
    assert_eq!(here.code, 0, "{here:?}");
}

#[test]
fn abandoned_submission_is_shown_and_can_be_forgotten() {
    let cluster = Cluster::shared().unwrap();
    assert_eq!(cluster.run("tree", &["submit", "3"]).unwrap().code, 0);
    let paths = ClusterPaths::new("default").unwrap();
    let store = connected(Connect::new(cluster.hosts()));
    let (content, _) = runtime().block_on(store.get(&paths.job("j-0000000000").record())).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&content).unwrap();
    let now_ms = record["submitted_ms"].clone();
    record["state"] = "submitting".into();
    for submitted_ms in [1.into(), now_ms] {
        record["submitted_ms"] = submitted_ms;
        let record = record.to_string();
        let path = format!("{}/j-", paths.jobs());
        let made = store.create(&path, record.as_bytes(), CreateMode::PersistentSequential);
        runtime().block_on(made).unwrap();
    }
    let jobs = cluster.json("taskwork", &["jobs"]).unwrap();
    let states: Vec<&str> =
        jobs.as_array().unwrap().iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["no_nodes", "abandoned", "submitting"]);
    says(&cluster.run("taskwork", &["forget", "2"]).unwrap(), 1, &["being submitted", "--force"]);
    assert_eq!(cluster.run("taskwork", &["forget", "--all"]).unwrap().code, 0);
    assert_eq!(cluster.json("taskwork", &["jobs"]).unwrap().as_array().unwrap().len(), 2);
    says(&cluster.run("taskwork", &["forget", "1"]).unwrap(), 5, &["no job j-0000000001"]);
    assert_eq!(cluster.run("taskwork", &["forget", "2", "--force"]).unwrap().code, 0);
    says(&cluster.run("taskwork", &["forget", "0", "--force"]).unwrap(), 1, &["cancel it first"]);
}

#[test]
fn other_build_of_same_version_runs_jobs_only_if_both_sides_allow() {
    let mut cluster = Cluster::shared().unwrap();
    let tree = program("tree").unwrap();
    // The same program, in a file that differs by a byte.
    let other = cluster.folder().join("other-tree");
    fs::write(&other, [fs::read(&tree).unwrap(), vec![0]].concat()).unwrap();
    fs::set_permissions(&other, fs::metadata(&tree).unwrap().permissions()).unwrap();
    let other = other.to_str().unwrap();
    cluster.start_nodes(other, 1, &["--workers", "1"]).unwrap();
    let submitted = cluster.run("tree", &["submit", "8"]).unwrap();
    says(&submitted, 0, &["another build of tree", "--any-build"]);
    let job = submitted.out.trim();
    let jobs = cluster.json("taskwork", &["jobs"]).unwrap();
    assert_eq!(jobs[0]["state"], "no_nodes", "{jobs}");
    // A node of its own build takes it, next to the other.
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    assert_eq!(cluster.run("taskwork", &["wait", job]).unwrap().code, 0, "{}", cluster.logs());
    cluster.start_nodes(other, 1, &["--workers", "1", "--any-build"]).unwrap();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", "18", "--gate", gate.path(), "--any-build", "--wait", "--json"];
    let running = cluster.begin("tree", &submit).unwrap();
    cluster.wait_for_log(2, "the node takes part").unwrap();
    gate.open().unwrap();
    let said: serde_json::Value = serde_json::from_str(&running.end().unwrap().out).unwrap();
    assert_eq!(said["states"], Tree::sequential(18).0);
}

#[test]
fn garbage_and_strangers_in_znodes_are_ignored() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let store = connected(Connect::new(cluster.hosts()));
    let paths = ClusterPaths::new("default").unwrap();
    runtime().block_on(async {
        let create = |path: String, data: &'static [u8]| store.create(&path, data, CreateMode::Persistent);
        create(paths.member("garbage"), b"\xff\x00").await.unwrap();
        create(paths.member("n0000000000000001"), br#"{"format":99,"all":"new"}"#).await.unwrap();
        create(format!("{}/not-a-candidate", paths.election()), b"").await.unwrap();
        create(paths.job("j-9999999990").record(), b"garbage").await.unwrap();
        create(paths.job("j-9999999991").record(), br#"{"format":99}"#).await.unwrap();
        create(paths.drain("nobody"), b"").await.unwrap();
        let mut members = membership::list(&*store, &paths).await.unwrap().into_iter();
        let version = members.next().unwrap().program_version;
        // A member that does not answer, with its clock in another year.
        let dead = Member {
            node: "n00000000000000aa".to_owned(),
            address: Some("127.0.0.1:9".parse().unwrap()),
            fingerprint: "00".repeat(32),
            workers: 1,
            memory_bytes: 0,
            labels: zk::Labels::default(),
            program: "tree".to_owned(),
            program_version: version,
            started_ms: u64::MAX,
            host: "<b>".to_owned(),
            pid: u32::MAX,
        };
        membership::join(&*store, &paths, &dead).await.unwrap();
    });
    let (states, largest) = Tree::sequential(12);
    for _ in 0..2 {
        let said = cluster.json("tree", &["submit", "12", "--wait"]).unwrap();
        assert_eq!(
            (&said["states"], &said["largest"]),
            (&states.into(), &largest.into()),
            "{}",
            cluster.logs()
        );
    }
    for command in ["status", "nodes", "jobs"] {
        assert_eq!(cluster.run("taskwork", &[command]).unwrap().code, 0, "{command}");
    }
    assert!(cluster.run("taskwork", &["jobs"]).unwrap().out.contains("unreadable"));
    says(
        &cluster.run("taskwork", &["job", "j-9999999991"]).unwrap(),
        1,
        &["j-9999999991", "format 99", "update"],
    );
    assert_eq!(cluster.run("taskwork", &["forget", "j-9999999990", "j-9999999991"]).unwrap().code, 0);
    // Garbage in a variable's znode is ignored as well.
    let gate = cluster.gate().unwrap();
    let said = cluster.json("tree", &["submit", "13", "--gate", gate.path()]).unwrap();
    let job = said["job"].as_str().unwrap();
    let deadline = Instant::now() + SOON;
    let set = || runtime().block_on(store.set(&paths.job(job).var("largest"), b"\xff\xff\xff", None));
    while let Err(error) = set() {
        // The znode exists once there is a first value.
        assert!(Instant::now() < deadline, "{error}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
    gate.open().unwrap();
    let said = cluster.json("taskwork", &["wait", job]).unwrap();
    assert_eq!(said["output"], Tree::sequential(13).0, "{}", cluster.logs());
}

//! A cluster on a real ZooKeeper, observed from outside: the view, its record, and the pages served from
//! both.

use std::{
    fs::{self, File},
    io::{BufReader, Read as _, Write as _},
    net::TcpStream,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use taskwork::{
    Client, Job, Node, Release,
    view::{Event, MomentKind, Recorder, Snapshot, View, replay},
};
use taskwork_tests::{
    cluster::{Cluster, Running, SOON, program},
    tree::{Shape, Tree},
};
use tokio::time::{sleep, timeout};
use zk_server::{Servers, Setup};

/// The output of an observer, as a view and as a record.
#[derive(Clone)]
struct Seen(Arc<Mutex<(View, Recorder<Vec<u8>>)>>);

impl Seen {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((View::default(), Recorder::new(Vec::new(), u64::MAX)))))
    }

    fn take(&self, event: &Event) {
        let mut seen = self.0.lock().unwrap();
        seen.0.apply(event);
        seen.1.note(event).unwrap();
    }

    async fn wait_until(&self, what: &str, holds: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let waiting = async {
            loop {
                let now = self.0.lock().unwrap().0.snapshot();
                if holds(&now) {
                    return now;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"))
    }
}

#[tokio::test]
async fn observer_view_is_recorded_and_replayed() {
    let mut servers = Servers::start(&Setup::standalone()).unwrap();
    let release = Release::new("observed", "1").unwrap();
    let client = Client::builder(servers.hosts()).cluster("observed").release(release).patience(None);
    let client = client.connect().await.unwrap();
    let start = |workers| Node::builder(&client).task::<Tree>().workers(workers).serve().unwrap();
    let mut nodes = [start(1), start(2)];
    let seen = Seen::new();
    let (observer, its) = (client.observer(), seen.clone());
    let observing = tokio::spawn(async move {
        let mut tell = |event: Event| its.take(&event);
        observer.follow(&mut tell).await
    });
    seen.wait_until("two members", |now| now.members.len() == 2).await;
    let endless = Job::new(Tree::root(), Shape { depth: 40, spin: 100, ..Shape::default() });
    let job = client.submit(endless.name("endless")).await.unwrap();
    let id = job.id().as_str().to_owned();
    let now = seen.wait_until("figures of both nodes", |now| {
        now.jobs
            .get(&id)
            .is_some_and(|job| job.about.pool.is_some_and(|pool| pool.workers == 3 && pool.busy > 0))
    });
    let about = now.await.jobs[&id].about.clone();
    assert!(about.figures.times.searching_ns > 0 && about.leader.is_some() && about.open_tasks > Some(0));
    assert!(about.latencies.writes.count() > 0);

    nodes[1].drain();
    timeout(SOON, nodes[1].ended()).await.unwrap().unwrap();
    seen.wait_until("a node has left", |now| now.cluster.nodes_left == 1).await;

    // The server is stopped and restarted; in between the view shows since when it is silent.
    servers.kill(0).unwrap();
    let now = seen.wait_until("the view is silent", |now| now.cluster.silent_since_ms.is_some()).await;
    assert!(now.jobs.contains_key(&id), "what was known is still shown");
    servers.revive(0).unwrap();
    servers.wait_until_serving(0).unwrap();
    seen.wait_until("the view is updated again", |now| now.cluster.silent_since_ms.is_none()).await;

    timeout(SOON, client.cancel(job.id(), "enough")).await.unwrap().unwrap();
    let now = seen.wait_until("the end", |now| !now.jobs[&id].about.stage.is_open()).await;
    assert!(now.moments.iter().any(|moment| moment.what == MomentKind::JobOver && moment.name == id));
    assert_eq!(now.cluster.nodes_lost, 0);
    assert!(now.warnings.is_empty(), "{:?}", now.warnings);
    observing.abort();
    let _ = observing.await;
    let Ok(seen) = Arc::try_unwrap(seen.0) else { panic!("there is another handle") };
    let (view, recorder) = seen.into_inner().unwrap();
    let record = recorder.finish().unwrap();
    assert_eq!(replay(&record[..]).unwrap().snapshot(), view.snapshot());
}

/// Returns the answer of a server to a request for a page.
fn page(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Waits until a page contains a text.
pub(crate) fn wait_for_page(address: &str, path: &str, text: &str) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let answer = page(address, path).unwrap_or_default();
        if answer.contains(text) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path} does not contain {text:?}:\n{answer}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn address(dashboard: &mut Running) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let output = dashboard.output();
        if let Some((_, rest)) = output.split_once("http://")
            && let Some((address, _)) = rest.split_once('/')
        {
            return address.to_owned();
        }
        assert!(!dashboard.has_ended().unwrap() && Instant::now() < deadline, "{}", dashboard.errors());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn metrics_are_served_and_recorded() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let folder = cluster.folder().join("record");
    let record = folder.to_str().unwrap();
    let arguments = ["dashboard", "--listen", "127.0.0.1:0", "--record", record];
    let mut dashboard = cluster.begin("taskwork", &arguments).unwrap();
    let address = address(&mut dashboard);
    assert!(page(&address, "/livez").unwrap().ends_with("alive\n"));
    wait_for_page(&address, "/readyz", "200 OK");
    assert_eq!(cluster.run("tree", &["submit", "14", "--wait"]).unwrap().code, 0);
    let metrics = wait_for_page(&address, "/metrics", "taskwork_jobs{state=\"done\"} 1");
    for line in [
        "taskwork_members{program=\"tree\"",
        "taskwork_workers{program=\"tree\"",
        "# TYPE taskwork_nodes_lost_total",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    let view = wait_for_page(&address, "/api/view", "\"stage\":\"done\"");
    assert!(view.contains("\"source\":\"live\"") && view.contains("j-0000000000"), "{view}");
    assert!(page(&address, "/api/job/j-0000000000").unwrap().contains("\"searching_s\":"));
    assert!(page(&address, "/").unwrap().contains("<title>taskwork</title>"));
    cluster.kill_nodes(&[1]).unwrap();
    wait_for_page(&address, "/metrics", "taskwork_nodes_left_total 1");
    drop(dashboard);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("one start makes one file: {files:?}") };
    let now = replay(BufReader::new(File::open(file).unwrap())).unwrap().snapshot();
    assert_eq!((now.members.len(), now.jobs.len()), (1, 1));
    // Reading a record needs no servers.
    let mut command = Command::new(program("taskwork").unwrap());
    command.args(["dashboard", "--listen", "127.0.0.1:0", "--replay", file.to_str().unwrap()]);
    command.env_remove("TASKWORK_ZK");
    let mut replayed = Running::begin(command, cluster.folder()).unwrap();
    let address = self::address(&mut replayed);
    let view = wait_for_page(&address, "/api/view", "\"stage\":\"done\"");
    assert!(view.contains("\"source\":\"replay\""), "{view}");
}

#[test]
fn dashboard_waits_for_missing_cluster() {
    let mut cluster = Cluster::shared().unwrap();
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let address = address(&mut dashboard);
    wait_for_page(&address, "/api/view", "\"waits\":\"there is no cluster \\\"default\\\"");
    wait_for_page(&address, "/readyz", "200 OK");
    let said = dashboard.errors();
    for part in
        ["there is no cluster \"default\"", "there is: none", "first node or job", "This waits for it"]
    {
        assert!(said.contains(part), "no {part} in {said}");
    }
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    wait_for_page(&address, "/metrics", "taskwork_members{program=\"tree\"");
    wait_for_page(&address, "/api/view", "\"waits\":null");
    assert!(dashboard.errors().contains("is there now"), "{}", dashboard.errors());
    assert!(!dashboard.has_ended().unwrap());
}

#[test]
fn dashboard_address_beyond_loopback_is_refused() {
    let cluster = Cluster::shared().unwrap();
    for (program, arguments) in
        [("tree", ["node", "--health", "0.0.0.0:0"]), ("tree", ["node", "--health", "[::]:0"])]
    {
        let said = cluster.run(program, &arguments).unwrap();
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("127.0.0.1") && said.err.contains("proxy"), "{}", said.err);
    }
    let said = cluster.run("taskwork", &["dashboard", "--listen", "0.0.0.0:0"]).unwrap();
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("--tls-cert") && said.err.contains("--token-file"), "{}", said.err);
}

#[test]
fn node_serves_health_and_metrics() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1", "--health", "127.0.0.1:0"]).unwrap();
    let log = cluster.log(0);
    let (_, address) = log.split_once("health and metrics are served address=").unwrap();
    let address = address.split_whitespace().next().unwrap().to_owned();
    assert!(wait_for_page(&address, "/livez", "alive").contains("200 OK"));
    wait_for_page(&address, "/readyz", "200 OK");
    wait_for_page(&address, "/metrics", "taskwork_node_is_member 1.0");
    let job = cluster.begin("tree", &["submit", "40", "--spin", "100"]).unwrap().end().unwrap();
    assert_eq!(job.code, 0, "{}", job.err);
    wait_for_page(&address, "/metrics", "taskwork_job_busy_workers{job_id=\"j-0000000000\"} 1.0");
    cluster.servers_mut().kill(0).unwrap();
    wait_for_page(&address, "/readyz", "503 Service Unavailable");
    assert!(page(&address, "/livez").unwrap().contains("200 OK"), "it continues");
}

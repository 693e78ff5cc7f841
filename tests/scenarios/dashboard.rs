//! Actions of operators on a dashboard, and the reported costs of nodes, on a real cluster.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{Cluster, Running, SOON};
use zk_server::Setup;

const TOKEN: &str = "an-operator's-token-of-a-test";
const JOB: &str = "j-0000000000";

struct Dashboard {
    running: Running,
    address: String,
}

impl Dashboard {
    fn start(cluster: &Cluster) -> Self {
        let file = cluster.folder().join("night-shift");
        fs::write(&file, TOKEN).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let file = file.to_str().unwrap();
        let options = ["--listen", "127.0.0.1:0", "--allow-actions", "--operator-token-file", file];
        let mut running = cluster.begin("taskwork", &[&["dashboard"], &options[..]].concat()).unwrap();
        let deadline = Instant::now() + SOON;
        let address = loop {
            if let Some((_, rest)) = running.output().split_once("http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
            assert!(!running.has_ended().unwrap() && Instant::now() < deadline, "{}", running.errors());
            thread::sleep(Duration::from_millis(20));
        };
        let dashboard = Self { running, address };
        dashboard.wait_for("/readyz", |answer| answer.contains("200 OK"));
        dashboard
    }

    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let length = body.len();
        let address = &self.address;
        write!(
            stream,
            "{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn wait_for(&self, path: &str, holds: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self.ask(&format!("GET {path} HTTP/1.1\r\n"), "");
            if holds(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "not in time: {path}:\n{answer}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_view(&self, holds: impl Fn(&Value) -> bool) {
        self.wait_for("/api/view", |answer| {
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            holds(&serde_json::from_str(body).unwrap())
        });
    }

    /// Sends an action like an operator's program. Returns the status and the message.
    fn act(&self, what: &str, body: &Value) -> (u16, String) {
        let head = format!(
            "POST /api/operator/{what} HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\nx-taskwork-action: 1\r\n\
             content-type: application/json\r\n"
        );
        let answer = self.ask(&head, &body.to_string());
        let (head, said) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), said.to_owned())
    }
}

fn stage(view: &Value) -> &Value {
    &view["snapshot"]["jobs"][JOB]["about"]["stage"]
}

#[test]
fn operator_actions_change_the_cluster() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let mut dashboard = Dashboard::start(&cluster);
    let job = json!({ "job": JOB });
    assert_eq!(cluster.run("tree", &["submit", "40", "--spin", "100"]).unwrap().code, 0);
    dashboard.wait_for_view(|view| stage(view) == "running");

    let (status, said) = dashboard.act("inject", &json!({ "job": JOB, "suggestion": [1, 2] }));
    assert!(status == 200 && said.contains("take it"), "{status} {said}");
    let (status, said) = dashboard.act("suspend", &job);
    assert!(status == 200 && said.contains("is suspended"), "{status} {said}");
    dashboard.wait_for_view(|view| stage(view) == "suspended");
    assert_eq!(dashboard.act("suspend", &job).0, 200, "it is already");
    assert_eq!(dashboard.act("resume", &job).0, 200);
    dashboard.wait_for_view(|view| stage(view) == "running");

    let node = cluster.name_of(1).unwrap();
    assert_eq!(dashboard.act("drain", &json!({ "node": node })).0, 200);
    cluster.nodes[1].wait().unwrap();
    dashboard.wait_for_view(|view| view["snapshot"]["members"].as_object().unwrap().len() == 1);
    let (status, said) = dashboard.act("drain", &json!({ "node": "n00000000000000ab" }));
    assert!(status == 404 && said.contains("no node"), "{status} {said}");

    assert_eq!(dashboard.act("cancel", &json!({ "job": JOB, "reason": "it's too dear" })).0, 200);
    dashboard.wait_for_view(|view| stage(view) == "cancelled");
    assert_eq!(cluster.json("taskwork", &["job", JOB]).unwrap()["reason"], "it's too dear");
    for (what, id, status, says) in [
        ("cancel", JOB, 409, "is over already"),
        ("inject", JOB, 409, "suggestions are accepted only until it is over"),
        ("resume", JOB, 409, "only a suspended job"),
        ("cancel", "j-0000000099", 404, "has no job"),
        ("suspend", "j-0000000099", 404, "has no job"),
    ] {
        let suggestion =
            if what == "inject" { json!({ "job": id, "suggestion": 1 }) } else { json!({ "job": id }) };
        let (told, said) = dashboard.act(what, &suggestion);
        assert!(told == status && said.contains(says), "{what} {id}: {told} {said}");
    }

    cluster.servers_mut().kill(0).unwrap();
    let (status, said) = dashboard.act("resume", &job);
    assert!(status == 503 && said.contains("has not answered for"), "{status} {said}");
    cluster.servers_mut().revive(0).unwrap();
    cluster.servers_mut().wait_until_serving(0).unwrap();
    let (status, said) = dashboard.act("resume", &job);
    assert!(status == 409 && said.contains("only a suspended job"), "{status} {said}");

    let log = dashboard.running.errors();
    for part in [
        "operator's action operator=\"night-shift\" from=127.0.0.1",
        "action=\"drain\"",
        &node,
        "action=\"cancel\"",
        "is over already",
        "has not answered",
    ] {
        assert!(log.contains(part), "no {part} in {log}");
    }
    assert!(!log.contains(TOKEN), "{log}");
    assert!(!dashboard.running.has_ended().unwrap());
}

#[test]
fn node_costs_follow_labels() {
    let mut cluster = Cluster::shared().unwrap();
    let priced = ["--workers", "1", "--label", "price=0.50/h,currency=EUR,zone=a"];
    cluster.start_nodes("tree", 1, &priced).unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1", "--label", "price=free,zone=b"]).unwrap();
    let dashboard = Dashboard::start(&cluster);
    assert_eq!(cluster.run("tree", &["submit", "40", "--spin", "100"]).unwrap().code, 0);
    dashboard.wait_for_view(|view| {
        let cost = &view["snapshot"]["jobs"][JOB]["about"]["cost"];
        let costs = &view["snapshot"]["costs"];
        let is_paid = cost["money"]["EUR"].as_f64() > Some(0.0) && cost["an_hour"]["EUR"] == json!(0.5);
        let is_busy = costs["about"]["total"]["busy_ms"].as_u64() > Some(5_000);
        is_paid
            && is_busy
            && cost["nodes"] == 2
            && cost["unpriced"] == 1
            && costs["labels"]["zone=a"].is_object()
    });
    dashboard.wait_for_view(|view| {
        let warnings = &view["snapshot"]["costs"]["about"]["warnings"];
        warnings[0].as_str().is_some_and(|warning| warning.contains("price=free"))
    });
    let metrics = dashboard.ask("GET /metrics HTTP/1.1\r\n", "");
    for line in [
        "taskwork_cost_total{currency=\"EUR\"} ",
        "taskwork_cost_per_hour{currency=\"EUR\"} 0.5",
        "taskwork_unpriced_members 1",
        "taskwork_job_cost{job_id=\"j-0000000000\",currency=\"EUR\"} ",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
}

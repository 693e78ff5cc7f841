//! A gateway with several tenants: each has its own jobs, resources and processes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

const ROUTINES: &str = env!("CARGO_BIN_EXE_routines");

/// The maximum time of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A routine with a state of its process, and one that calls it.
const MODULE: &str = r#"
import time
import routines

LAST = None

def keep(value=None):
    global LAST
    LAST = LAST if value is None else value
    return LAST

def waits(value):
    while value == "long":
        time.sleep(0.1)
    return value

def through(value=None):
    return routines.call("keep@1.0")

def place(path):
    return path

def read(path):
    with open(path) as file:
        return file.read()
"#;

/// A gateway without ZooKeeper, with tenants anna and bert.
struct Site {
    gateway: Child,
    /// The gateway ends at the end of it.
    _input: ChildStdin,
    folder: TempDir,
    url: String,
    anna: String,
    bert: String,
    reader: String,
    operator: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(ROUTINES);
    command.current_dir(folder).env("ROUTINES_STORE", "store").env("TMPDIR", folder.join("work"));
    for name in ["TASKWORK_ZK", "ROUTINES_ISOLATION", "ROUTINES_READ", "ROUTINES_WRITE", "ROUTINES_NETWORK"] {
        command.env_remove(name);
    }
    command
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Site {
    fn start(more: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        prepare(folder.path());
        let run = |arguments: &[&str]| {
            let mut command = command(folder.path());
            command.args(arguments);
            output(command)
        };
        for name in ["keep", "through", "place", "read", "waits"] {
            let text =
                format!("name = '{name}'\nversion = '1.0'\nruntime = 'python3'\nentry = 'module:{name}'\n");
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("routine.toml"), text).unwrap();
            fs::write(folder.path().join(name).join("module.py"), MODULE).unwrap();
            run(&["deploy", name]);
        }
        let [anna, bert] = ["anna", "bert"].map(|tenant| run(&["token", "tokens", tenant, "deploy"]));
        let reader = run(&["token", "tokens", "anna", "read"]);
        let operator = run(&["token", "tokens", "carla", "operator"]);
        let mut gateway = command(folder.path());
        gateway.args(["gateway", "--listen", "127.0.0.1:0", "--workers", "1", "--until-eof"]);
        gateway.args(["--tokens", "tokens"]).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut gateway = gateway.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(gateway.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("serving ").unwrap().trim().trim_end_matches('/').to_owned();
        let input = gateway.stdin.take().unwrap();
        Self { gateway, _input: input, folder, url, anna, bert, reader, operator }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a request, and returns the head and the body of the answer.
    fn send(&self, token: &str, request: &str, headers: &str, body: &str) -> (String, String) {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        let token =
            if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{token}{headers}\r\n"
        );
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }

    fn ask(&self, token: &str, request: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (head, answer) = self.send(token, request, "", &body);
        (status(&head), serde_json::from_str(&answer).unwrap_or(Value::String(answer)))
    }

    fn call(&self, token: &str, routine: &str, argument: &Value) -> Value {
        let request = format!("POST /v1/routines/{routine}/call");
        let (status, answer) = self.ask(token, &request, &json!({ "argument": argument }));
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Submits a job, waits until it is over, and returns its id and its results.
    fn run(&self, token: &str, job: &Value) -> (String, Value) {
        let (status, job) = self.ask(token, "POST /v1/jobs", job);
        assert_eq!(status, 201, "{job}");
        let id = job["job"].as_str().unwrap().to_owned();
        let (_, state) = self.ask(token, &format!("GET /v1/jobs/{id}?wait=60"), &Value::Null);
        assert_eq!(state["state"], "successful", "{state}");
        let (_, results) = self.ask(token, &format!("GET /v1/jobs/{id}/results"), &Value::Null);
        (id, results["results"].clone())
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Returns the requests of the document, each with a place for things of anna: its method, and its path.
fn requests(document: &Value, job: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let place = path
            .replace("{job}", job)
            .replace("{name}", "table")
            .replace("{routine}", "keep@1.0")
            .replace("{index}", "0");
        assert!(!place.contains('{'), "{path}: the test needs a value");
        all.extend(methods.as_object().unwrap().keys().map(|it| (it.to_uppercase(), place.clone())));
    }
    all
}

#[test]
fn requests_of_another_tenant_have_no_data_and_no_effect() {
    let site = Site::start(&[], |_| ());
    let (anna, bert) = (&*site.anna, &*site.bert);
    assert_eq!(site.ask(anna, "PUT /v1/resources/table", &json!("a secret of anna")).0, 200);
    let order = json!({ "routine": "keep@1.0", "arguments": [["a secret of anna"]] });
    let (job, _) = site.run(anna, &order);
    let with_key = |token| {
        let (head, answer) =
            site.send(token, "POST /v1/jobs", "idempotency-key: mine\r\n", &order.to_string());
        (status(&head), serde_json::from_str::<Value>(&answer).unwrap()["job"].clone())
    };
    let (first, second) = (with_key(anna), with_key(bert));
    assert!(first.0 == 201 && second.0 == 201 && first.1 != second.1, "{first:?} {second:?}");
    assert_eq!(with_key(anna), (200, first.1.clone()));
    let wait = format!("GET /v1/jobs/{}?wait=60", first.1.as_str().unwrap());
    assert_eq!(site.ask(anna, &wait, &Value::Null).1["state"], "successful");
    let (_, document) = site.ask(bert, "GET /v1/openapi.json", &Value::Null);
    let requests = requests(&document, &job);
    let seen = || {
        let own = requests.iter().filter(|(method, path)| method == "GET" && path != "/v1/openapi.json");
        own.map(|(_, path)| site.ask(anna, &format!("GET {path}"), &Value::Null)).collect::<Vec<_>>()
    };
    let before = seen();
    assert!(before.iter().filter(|(_, body)| body.to_string().contains("a secret of anna")).count() >= 2);
    for (method, path) in &requests {
        let body = if method == "GET" { String::new() } else { json!({ "argument": null }).to_string() };
        let request = format!("{method} {path}");
        let (head, answer) = site.send(bert, &request, "", &body);
        assert!(!answer.contains("a secret of anna"), "{request}: {answer}");
        let is_of_anna = path.contains(&job) || path.ends_with("/table") && method != "PUT";
        assert!(status(&head) == 404 || !is_of_anna, "{request}: {head}");
        if path == "/livez" {
            continue;
        }
        let (head, answer) = site.send("", &request, "", &body);
        assert!(
            status(&head) == 401 && head.contains("www-authenticate: bearer"),
            "{request}: {head} {answer}"
        );
        let (head, answer) = site.send(&site.reader, &request, "", &body);
        assert_eq!(status(&head) == 403, method != "GET", "{request}: {answer}");
        for code in ["401", "403"] {
            let documented = &document["paths"].as_object().unwrap();
            let has = documented.values().filter_map(|it| it.get(method.to_lowercase()));
            assert!(has.clone().filter(|it| it["responses"].get(code).is_none()).count() <= 1, "{request}");
        }
    }
    assert_eq!(seen(), before);
    let wrong = &anna[1..];
    assert_eq!(site.ask(wrong, "GET /v1/resources", &Value::Null).0, 401);
}

#[test]
fn processes_and_files_serve_one_tenant() {
    let site = Site::start(&[], |_| ());
    let (anna, bert) = (&*site.anna, &*site.bert);
    let keep = |token, argument: Value| site.call(token, "keep@1.0", &argument)["value"].clone();
    assert_eq!(keep(anna, json!(["of anna"])), "of anna");
    assert_eq!(keep(anna, json!([])), "of anna", "the process is warm");
    let job = json!({ "routine": "keep@1.0", "arguments": [[]] });
    assert_eq!(site.run(anna, &job).1[0]["value"], "of anna");
    assert_eq!(site.call(anna, "through@1.0", &json!([]))["value"], "of anna");
    assert_eq!(keep(bert, json!([])), Value::Null);
    assert_eq!(keep(anna, json!([])), "of anna");
    assert_eq!(site.run(bert, &job).1[0]["value"], Value::Null);
    assert_eq!(site.call(bert, "through@1.0", &json!([]))["value"], Value::Null);
    let through = json!({ "routine": "through@1.0", "arguments": [[]] });
    assert_eq!(site.run(bert, &through).1[0]["value"], Value::Null);
    assert_eq!(keep(bert, json!(["of bert"])), "of bert");
    assert_ne!(keep(anna, json!([])), "of bert");
    // Files with the same name.
    let put = |token, content| site.ask(token, "PUT /v1/resources/table", &json!(content)).0;
    assert_eq!(put(anna, "of anna"), 200);
    let read = |token| {
        let argument = json!({ "argument": [{ "$resource": "table" }] });
        site.ask(token, "POST /v1/routines/read@1.0/call", &argument)
    };
    assert_eq!((read(anna).1["value"].clone(), read(bert).0), (json!("\"of anna\""), 404));
    assert_eq!(put(bert, "of bert"), 200);
    assert_eq!(
        (&read(anna).1["value"], &read(bert).1["value"]),
        (&json!("\"of anna\""), &json!("\"of bert\""))
    );
}

#[test]
fn file_of_another_tenant_is_not_opened_by_its_path() {
    let site = Site::start(&["--isolation", "process"], |_| ());
    let (anna, bert) = (&*site.anna, &*site.bert);
    assert_eq!(site.ask(anna, "PUT /v1/resources/table", &json!("of anna")).0, 200);
    let path = site.call(anna, "place@1.0", &json!([{ "$resource": "table" }]))["value"].clone();
    assert!(path.as_str().is_some_and(|path| Path::new(path).is_file()), "{path}");
    let read = |token| site.call(token, "read@1.0", &json!([path]));
    let (own, other) = (read(anna), read(bert));
    assert_eq!(own["value"], "\"of anna\"", "{own}");
    let refused = other["error"]["message"].as_str().unwrap_or_default();
    assert!(other.get("value").is_none() && refused.contains("Permission denied"), "{other}");
}

#[test]
fn python_client_sends_its_token_over_tls_or_to_this_machine_only() {
    let site = Site::start(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], |folder| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(folder.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    });
    let url = site.url.replace("127.0.0.1", "localhost");
    assert!(url.starts_with("https://"), "{url}");
    fs::write(site.path("anna.token"), format!("{}\n", site.anna)).unwrap();
    let script = r#"
import os, sys
import routines

url = sys.argv[1]
with routines.connect(url) as r:
    assert r.call("keep@1.0", "over TLS") == "over TLS"
    job = r.map("keep@1.0", [1, 2])
    assert job.values() == [1, 2]
    for form, content in (
        ("csv", b"index,value,error\r\n0,1,\r\n1,2,\r\n"),
        ("ndjson", b'{"index":0,"value":1}\n{"index":1,"value":2}\n'),
    ):
        job.download("results", form)
        with open("results", "rb") as results:
            assert results.read() == content, form
    lists = r.map("keep@1.0", [[1]])
    try:
        lists.download("results", "csv")
    except routines.RequestError as error:
        assert error.status == 400 and "list" in str(error), error
    else:
        raise AssertionError("a list is no row")
del os.environ["ROUTINES_TOKEN_FILE"]
for token, status in (("", 401), ("another-token-of-nobody", 401)):
    os.environ["ROUTINES_TOKEN"] = token
    try:
        routines.connect(url).call("keep@1.0", 1)
    except routines.RequestError as error:
        assert error.status == status, error
    else:
        raise AssertionError("the token is wrong")
for place in ("http://192.0.2.1:8790", "http://gateway.example", "http://localhost.example"):
    try:
        routines.connect(place)
    except ValueError as error:
        assert "https" in str(error), error
    else:
        raise AssertionError(f"{place} gets the token")
for place in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://gateway.example"):
    routines.connect(place)
"#;
    let mut client = Command::new("python3");
    client
        .current_dir(site.folder.path())
        .args(["-c", script, &url])
        .env("SSL_CERT_FILE", site.path("cert.pem"));
    client.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python"));
    client.env("ROUTINES_TOKEN_FILE", site.path("anna.token")).env("PYTHONDONTWRITEBYTECODE", "1");
    output(client);
}

#[test]
fn usage_counts_each_call_once_for_its_tenant() {
    let site = Site::start(&[], |_| ());
    let usage = |token| {
        let (status, answer) = site.ask(token, "GET /v1/usage", &Value::Null);
        assert_eq!(status, 200, "{answer}");
        answer["usage"].as_array().unwrap().clone()
    };
    assert_eq!(usage(&site.anna), [] as [Value; 0]);
    let arguments: Vec<Value> = (0..50).map(|n| json!([n])).chain([json!([1, 2])]).collect();
    site.run(&site.anna, &json!({ "routine": "keep@1.0", "arguments": arguments }));
    site.call(&site.anna, "through@1.0", &json!([]));
    site.call(&site.bert, "keep@1.0", &json!(["x"]));
    let of_anna = usage(&site.anna);
    let (keep, through) = (&of_anna[0], &of_anna[1]);
    for (field, value) in
        [("tenant", json!("anna")), ("calls", json!(51)), ("failed", json!(1)), ("cold", json!(1))]
    {
        assert_eq!(keep[field], value, "{keep}");
    }
    let count = |of: &Value, field: &str| of[field].as_u64().unwrap();
    assert_eq!(count(keep, "in_bytes"), 10 * 3 + 40 * 4 + 5, "{keep}");
    assert!(["wall_us", "peak_memory_bytes", "out_bytes"].iter().all(|it| count(keep, it) > 0), "{keep}");
    assert!(count(keep, "user_us") + count(keep, "system_us") > 0, "{keep}");
    assert!(through["calls"] == 1 && count(through, "wall_us") > 0 && of_anna.len() == 2, "{through}");
    let of_bert = usage(&site.bert);
    assert!(of_bert.len() == 1 && of_bert[0]["calls"] == 1, "{of_bert:?}");
    // Read again, and by another process, after the usage was written.
    let all = usage(&site.operator);
    assert_eq!(all, [&of_anna[..], &of_bert].concat());
    let mut again = command(site.folder.path());
    again.args(["usage", "--json"]);
    let again: Value = serde_json::from_str(&output(again)).unwrap();
    assert_eq!(again["usage"], json!(all));
}

#[test]
fn requests_beyond_a_quota_are_refused_with_the_limit() {
    let quota = "[default]\njobs = 1\nresource_bytes = 30\nrunning = 1\nwaiting = 0\n\
        [tenants.bert]\nresult_bytes = 1\n";
    let site = Site::start(&["--quota", "quota.toml"], |folder| {
        fs::write(folder.join("quota.toml"), quota).unwrap();
    });
    let (anna, bert) = (&*site.anna, &*site.bert);
    let refused = |token, request: &str, body: &Value, limit: &str| {
        let (head, answer) = site.send(token, request, "", &body.to_string());
        assert_eq!(status(&head), 429, "{request}: {answer}");
        assert!(head.contains("retry-after: ") && answer.contains(limit), "{request}: {head} {answer}");
    };
    let put = |token, bytes: usize| site.ask(token, "PUT /v1/resources/table", &json!("x".repeat(bytes))).0;
    // With its quotes.
    assert_eq!((put(anna, 18), put(bert, 100)), (200, 200));
    refused(anna, "PUT /v1/resources/table", &json!("x".repeat(9)), "resource_bytes");
    assert_eq!(put(anna, 8), 200);
    let long = json!({ "routine": "keep@1.0", "arguments": { "range": [0, 100_000_000] } });
    let (code, job) = site.ask(anna, "POST /v1/jobs", &long);
    assert_eq!(code, 201, "{job}");
    let short = json!({ "routine": "keep@1.0", "arguments": [[1]] });
    refused(anna, "POST /v1/jobs", &short, "`jobs`");
    let cancel = format!("POST /v1/jobs/{}/cancel", job["job"].as_str().unwrap());
    assert_eq!(site.ask(anna, &cancel, &Value::Null).0, 200);
    site.run(anna, &short);
    site.run(bert, &short);
    refused(bert, "POST /v1/jobs", &short, "`result_bytes`");
}

#[test]
fn cancelled_call_fails_and_others_continue() {
    let site = Site::start(&[], |_| ());
    let order = json!({ "routine": "waits@1.0", "arguments": [["a"], ["long"], ["b"], ["c"]] });
    let (status, job) = site.ask(&site.anna, "POST /v1/jobs", &order);
    assert_eq!(status, 201, "{job}");
    let job = job["job"].as_str().unwrap();
    let cancel = |token, index: u64| {
        site.ask(token, &format!("POST /v1/jobs/{job}/calls/{index}/cancel"), &Value::Null)
    };
    assert_eq!(cancel(&site.anna, 4).0, 404);
    assert_eq!(cancel(&site.bert, 1).0, 404);
    // One waits, or is in the frame of the running one.
    for index in [3, 1] {
        let (status, state) = cancel(&site.anna, index);
        assert_eq!(status, 200, "{state}");
    }
    let (_, state) = site.ask(&site.anna, &format!("GET /v1/jobs/{job}?wait=60"), &Value::Null);
    assert_eq!((&state["state"], &state["ended"]), (&json!("successful"), &json!(4)), "{state}");
    assert_eq!(state["tally"]["failed"], json!({ "cancelled": 2 }), "{state}");
    let (_, results) = site.ask(&site.anna, &format!("GET /v1/jobs/{job}/results"), &Value::Null);
    let outcomes: Vec<&Value> = results["results"].as_array().unwrap().iter().collect();
    assert_eq!((&outcomes[0]["value"], &outcomes[2]["value"]), (&json!("a"), &json!("b")), "{results}");
    assert!([1, 3].iter().all(|index| outcomes[*index]["error"]["kind"] == "cancelled"), "{results}");
    assert_eq!(cancel(&site.anna, 0).0, 409, "it is over");
}

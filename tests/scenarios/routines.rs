//! Routines in Python, called over REST on node processes that are killed and leave.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{Running, SOON};

use crate::routine_site::{CLIENT, Gateway, Site, client};

const CALLS: u64 = 1_000;

/// Checks that each call has one result, by pages and by the stream.
fn check_results(gateway: &Gateway, job: &str, calls: u64) {
    let expected: Vec<Value> =
        (0..calls).map(|n| json!({ "index": n, "value": { "square": n * n } })).collect();
    assert_eq!(gateway.pages(job), expected);
    assert_eq!(gateway.stream(job), expected);
}

fn is_alive(process: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

fn children(process: u32) -> Vec<String> {
    let tasks = Path::new("/proc").join(process.to_string()).join("task");
    let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
    let texts = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn calls_over_rest_have_one_result_each_although_node_is_killed() {
    let mut site = Site::new();
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    let job = gateway.submit(&json!({ "range": [0, CALLS] }));
    site.wait_for_calls(200);
    let killed = site.cluster.nodes[0].id();
    let runtimes = children(killed);
    assert!(!runtimes.is_empty());
    site.cluster.kill_nodes(&[0]).unwrap();
    let (status, problem) = gateway.get(&format!("/v1/jobs/{job}/results"));
    assert_eq!((status, &problem["status"]), (409, &json!(409)), "it is not over: {problem}");
    let state = gateway.wait(&job, &site.cluster);
    assert_eq!((&state["state"], &state["ended"]), (&json!("successful"), &json!(CALLS)), "{state}");
    check_results(&gateway, &job, CALLS);
    // Only calls of the killed node were repeated.
    let notes = site.notes();
    assert_eq!(notes.len() as u64, CALLS);
    for (index, nodes) in notes.iter().filter(|(_, nodes)| nodes.len() > 1) {
        assert!(
            nodes.len() == 2 && nodes[0] == killed,
            "call {index} was made on {nodes:?}, {killed} was killed"
        );
    }
    let deadline = Instant::now() + SOON;
    while runtimes.iter().any(|process| is_alive(process)) {
        assert!(Instant::now() < deadline, "runtimes outlive their node: {runtimes:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn stopped_node_changes_no_result_when_it_continues() {
    let mut site = Site::new();
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    let job = gateway.submit(&json!({ "range": [0, CALLS] }));
    site.wait_for_calls(200);
    let earlier = site.cluster.name_of(0).unwrap();
    site.cluster.signal_nodes(&[0], "STOP").unwrap();
    assert_eq!(gateway.wait(&job, &site.cluster)["state"], "successful");
    check_results(&gateway, &job, CALLS);
    let segments = site.segments().len();
    site.cluster.signal_nodes(&[0], "CONT").unwrap();
    // It notices that it was considered lost, writes the results that it has, and joins again.
    let deadline = Instant::now() + SOON;
    while site.cluster.name_of(0).unwrap() == earlier {
        assert!(Instant::now() < deadline, "{}", site.cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
    println!("{} segments were written too late", site.segments().len() - segments);
    drop(gateway.running);
    let gateway = Gateway::start(&site.cluster);
    check_results(&gateway, &job, CALLS);
}

#[test]
fn drained_node_and_another_gateway_change_no_result() {
    let mut site = Site::new();
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    let request = json!({ "routine": "square@1.0", "arguments": { "range": [0, CALLS] } });
    let key = "idempotency-key: mine\r\n";
    let (status, first) = gateway.post("/v1/jobs", key, &request);
    assert_eq!(status, 201, "{first}");
    let job = first["job"].as_str().unwrap().to_owned();
    site.wait_for_calls(200);
    let leaves = site.cluster.name_of(0).unwrap();
    assert_eq!(site.cluster.run("taskwork", &["drain", &leaves, "--wait"]).unwrap().code, 0);
    drop(gateway.running);
    let gateway = Gateway::start(&site.cluster);
    let (status, again) = gateway.post("/v1/jobs", key, &request);
    assert_eq!((status, &again["job"]), (200, &first["job"]), "{again}");
    // Fewer calls, and as many with other arguments.
    for range in [[0, 5], [1, CALLS + 1]] {
        let other = json!({ "routine": "square@1.0", "arguments": { "range": range } });
        let (status, problem) = gateway.post("/v1/jobs", key, &other);
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(&job), "{problem}");
    }
    assert_eq!(gateway.wait(&job, &site.cluster)["state"], "successful");
    check_results(&gateway, &job, CALLS);
}

#[test]
fn failures_of_users_and_wrong_requests_have_their_reasons() {
    let mut site = Site::new();
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let job = gateway.submit(&json!([3, -1]));
    let state = gateway.wait(&job, &site.cluster);
    assert_eq!((&state["state"], &state["tally"]["failed"]), (&json!("successful"), &json!({ "user": 1 })));
    let results = gateway.pages(&job);
    assert_eq!(results[0]["value"]["square"], 9);
    let error = &results[1]["error"];
    assert_eq!((&error["kind"], &error["message"]), (&json!("user"), &json!("ValueError: -1 is negative")));
    let trace = error["trace"].as_str().unwrap();
    assert!(trace.contains("module.py") && trace.contains("in run") && !trace.contains("shim.py"), "{trace}");
    let body = |arguments: &str| format!(r#"{{"routine":"square@1.0","arguments":{arguments}}}"#);
    let json = "content-type: application/json\r\n";
    for (request, headers, body, status, reason) in [
        ("POST /v1/jobs", json, body("[NaN]"), 400, "arguments"),
        ("POST /v1/jobs", json, body("[18446744073709551616]"), 400, "2^53"),
        ("POST /v1/jobs", json, body("[1]").replace("square", "cube"), 404, "cube@1.0"),
        ("POST /v1/jobs", json, body("[1]").replace("square@1.0", "a b"), 400, "NAME@VERSION"),
        ("POST /v1/jobs", "content-type: text/plain\r\n", body("[1]"), 415, "application/json"),
        ("GET /v1/jobs/j-0000000999", "", String::new(), 404, "j-0000000999"),
        ("GET /v1/jobs/x", "", String::new(), 404, "x"),
        ("GET /v1/jobs/0/results?from=-1", "", String::new(), 400, "from"),
        ("GET /v2", "", String::new(), 404, "resource"),
        ("PUT /v1/jobs", json, body("[1]"), 405, ""),
    ] {
        let (found, answer) = gateway.ask(request, headers, &body);
        assert!(found == status && answer.contains(reason), "{request} {body}: {found} {answer}");
    }
    // The commands, without the gateway.
    let called = site.cluster.run("routines", &["call", "square@1.0", "[12]"]).unwrap();
    assert_eq!((called.code, &*called.out), (0, "{\"square\":144}\n"), "{}", called.err);
    let failed = site.cluster.run("routines", &["call", "square@1.0", "-5"]).unwrap();
    assert!(failed.code == 1 && failed.err.contains("in run"), "{}", failed.err);
    let mapped = site.cluster.json("routines", &["map", "square@1.0", "--range", "2..4"]).unwrap();
    assert_eq!(mapped["results"][1], json!({ "index": 1, "value": { "square": 9 } }));
    assert_eq!(site.cluster.run("routines", &["map", "cube@1.0", "--range", "2..4"]).unwrap().code, 2);
}

#[test]
fn python_client_calls_maps_and_executes() {
    let mut site = Site::new();
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let script = r#"
import asyncio, sys
import routines

with routines.connect(sys.argv[1]) as r:
    assert r.call("square@1.0", 12) == {"square": 144}
    assert r.call("square@1.0", n=2**60) == {"square": 2**120}
    assert asyncio.run(r.acall("square@1.0", 3)) == {"square": 9}
    job = r.map("square@1.0", range(20), key="a key")
    assert [value["square"] for value in job.values()] == [n * n for n in range(20)]
    assert r.map("square@1.0", range(20), key="a key").id == job.id
    assert r.job(job.id).status()["ended"] == 20
    assert list(job.progress())[-1]["state"] == "successful"
    results = list(r.starmap("square@1.0", [(1,), {"n": -1}]).results())
    assert results[0].value == {"square": 1}
    try:
        results[1].value
    except routines.CallError as error:
        assert error.kind == "user" and "in run" in error.trace and "-1 is negative" in str(error)
    else:
        raise AssertionError("it has failed")
    try:
        r.call("cube@1.0")
    except routines.RequestError as error:
        assert error.status == 404 and "cube@1.0" in str(error)
    else:
        raise AssertionError("there is no such routine")
    assert [found["routine"] for found in r.find("square")] == ["square@1.0"] and not list(r.find(tag="math"))
    assert r.signature("square")["entry"] == "module:run"
    with r.executor() as executor:
        futures = [executor.submit("square@1.0", n) for n in range(-1, 50)]
        assert list(executor.map("square@1.0", [7, 8])) == [{"square": 49}, {"square": 64}]
    assert isinstance(futures[0].exception(), routines.CallError)
    assert [future.result()["square"] for future in futures[1:]] == [n * n for n in range(50)]
"#;
    site.run_client(&[script, &format!("http://{}", gateway.address)]);
}

/// Returns the blocks of a document in a language.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let head = format!("```{language}\n");
    document.split(&head).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Parts of the output of the guide.
const PRINTED: &[&str] = &[
    "pi@1.0 ",
    "total@0.1.0: the signature, the code and 2 examples are correct\n",
    "The sum of two numbers.",
    "\n0.0314",
    "\n0.3141",
    r#"{"index":99,"value":0.03"#,
    "{\"sum\":3.14159265",
    "\n3.14159265",
    "\"mean\":0.314159",
    "{\"by\":{\"steps\":1000},\"count\":10,\"mean\":0.314159",
    r#""state":"successful""#,
    "\n15\n",
    r#"{"best":null,"counts":{"solutions":724}}"#,
    r#"{"index":1,"value":1229}"#,
    r#"["c","3"]"#,
    "jspi@1.0 ",
    "javapi@1.0 ",
    "rpi@1.0 ",
    "octavepi@1.0 ",
    "\n12\n",
    "cpi@1.0 ",
];

#[test]
fn guide_leads_to_results() {
    let document = include_str!("../../docs/routines.md");
    let mut site = Site::new();
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    let folder = site.cluster.folder().join("demo");
    for (name, python, toml) in
        [("pi", 0, 0), ("area", 4, 0), ("queens", 5, 1), ("primes", 6, 0), ("lookup", 7, 0)]
    {
        fs::create_dir_all(folder.join(name)).unwrap();
        let mut toml = blocks(document, "toml")[toml].to_owned();
        let entries = [("area", "area:area"), ("primes", "primes:count"), ("lookup", "lookup:row")];
        if let Some((_, entry)) = entries.iter().find(|it| it.0 == name) {
            toml = toml.replace("\"pi\"", &format!("{name:?}")).replace("pi:run", entry);
        }
        fs::write(folder.join(name).join(format!("{name}.py")), blocks(document, "python")[python]).unwrap();
        fs::write(folder.join(name).join("routine.toml"), toml).unwrap();
    }
    for (file, language) in
        [("cpi.c", "c"), ("pi.mjs", "javascript"), ("Pi.java", "java"), ("pi.R", "r"), ("pi.m", "octave")]
    {
        fs::write(folder.join(file), blocks(document, language)[0]).unwrap();
    }
    fs::write(folder.join("sum.py"), blocks(document, "python")[1]).unwrap();
    let program = taskwork_tests::cluster::program("routines").unwrap();
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let command = |mut command: Command| {
        command.current_dir(&folder).env("PATH", &path);
        command.envs(site.cluster.environment.iter().map(|(name, value)| (name, value)));
        let said = Running::begin(command, site.cluster.folder()).unwrap().end().unwrap();
        assert_eq!(said.code, 0, "{}\n{}\n{}", said.out, said.err, site.cluster.logs());
        said.out
    };
    // Nodes and the gateway run already, and the build is this one. The ids of jobs are those of the page, since the
    // cluster is new. The commands before the cluster run without it.
    let is_run = |line: &&str| {
        ![
            "cargo",
            "export PATH",
            "export ROUTINES",
            "mkdir demo",
            "mkdir pi",
            "routines node",
            "routines gateway",
        ]
        .iter()
        .any(|it| line.starts_with(it))
    };
    let shims = concat!(env!("CARGO_MANIFEST_DIR"), "/../routines/shims");
    let address = |text: &str| {
        let text = text.replace("127.0.0.1:8790", &gateway.address).replace("../routines/shims", shims);
        text.replace("=127.0.0.1:2181", &format!("={}", site.cluster.hosts()))
    };
    let script = blocks(document, "text").concat().lines().filter(is_run).collect::<Vec<_>>().join("\n");
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", &format!("unset TASKWORK_ZK\n{}", address(&script))]);
    shell.env("PYTHONPATH", CLIENT);
    let printed = command(shell);
    for part in PRINTED {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(printed.lines().last().unwrap().starts_with("0.0314"), "by the program in C: {printed}");
    let program =
        blocks(document, "python")[2].replace("connect()", &format!("connect('http://{}')", gateway.address));
    assert!(command(client(&[&program])).starts_with("3.14159265"));
}

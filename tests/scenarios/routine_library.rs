//! The library of routines: signatures, versions, the search, the OpenAPI document, and the commands of authors.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use taskwork_tests::{
    cluster::{CommandOutput, Running, program},
    data::is_long,
};
use tempfile::tempdir;

use crate::routine_site::{Gateway, Site};

/// The maximum duration of a command with many processes, or of an installation.
const TOOL_MAX: Duration = Duration::from_secs(600);

const SIGNATURE: &str = r#"
description = "Divides two numbers."
tags = ["math"]
[[parameter]]
name = "numbers"
schema = { type = "array", items = { type = "integer" }, minItems = 2, maxItems = 2 }
[[parameter]]
name = "places"
schema = { type = "integer", minimum = 0 }
default = 3
[result]
type = "number"
minimum = 0
"#;

const MODULE: &str = r#"
import routines

def run(numbers, places=3):
    return round(numbers[0] / numbers[1], places)

def outer(numbers):
    try:
        return routines.call("quotient", numbers)
    except routines.CallError as error:
        return [error.kind, error.message]
"#;

impl Site {
    fn add_version(&self, name: &str, version: &str, function: &str, signature: &str) {
        let folder = self.cluster.folder().join(format!("{name}-{version}"));
        fs::create_dir(&folder).unwrap();
        let head =
            format!("name = '{name}'\nversion = '{version}'\nruntime = 'python3'\nentry = 'm:{function}'\n");
        fs::write(folder.join("routine.toml"), head + signature).unwrap();
        fs::write(folder.join("m.py"), MODULE).unwrap();
        self.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
    }
}

#[test]
fn wrong_arguments_and_results_are_refused_by_the_signature() {
    let mut site = Site::new();
    site.add_version("quotient", "1.9", "run", "");
    site.add_version("quotient", "1.10", "run", SIGNATURE);
    site.add_version("outer", "1", "outer", "");
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let call = |routine: &str, argument: &Value| {
        gateway.post(&format!("/v1/routines/{routine}/call"), "", &json!({ "argument": argument }))
    };
    // No node is needed to refuse a request, and no job is left.
    let request = json!({ "routine": "quotient", "arguments": [[[1, 2]], { "numbers": [1, "x"] }] });
    let (status, problem) = gateway.post("/v1/jobs", "", &request);
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(status, 400, "{problem}");
    for part in ["quotient@1.10", "argument 1,", "path \"/numbers/1\"", "rule: type"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    let (status, problem) = call("quotient@1.10", &json!([[1, 2], -1]));
    assert!(status == 400 && problem["detail"].as_str().unwrap().contains("path \"/1\""), "{problem}");
    for command in [&["call", "quotient", "[[1]]"][..], &["map", "quotient", "--range", "0..9"]] {
        let refused = site.cluster.run("routines", command).unwrap();
        assert!(refused.code == 2 && refused.err.contains("argument 0,"), "{refused:?}");
    }
    let jobs = site.cluster.json("taskwork", &["jobs"]).unwrap();
    assert_eq!(jobs.as_array().unwrap().len(), 1, "only direct calls: {jobs}");
    // The latest version. Its results are checked on the node.
    let (status, answer) = gateway.call_soon("quotient", &json!([[2, 3], 2]));
    assert_eq!((status, &answer), (200, &json!({ "routine": "quotient@1.10", "index": 0, "value": 0.67 })));
    let (_, answer) = gateway.call_soon("quotient", &json!([[-2, 3]]));
    assert_eq!(answer["error"]["kind"], "invalid", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("rule: minimum"), "{answer}");
    let (_, answer) = gateway.call_soon("outer", &json!([[1]]));
    assert!(
        answer["value"][0] == "invalid" && answer["value"][1].as_str().unwrap().contains("minItems"),
        "{answer}"
    );
    let mapped = site.cluster.json("routines", &["call", "quotient@1.9", "[[-3, 1]]"]).unwrap();
    assert_eq!(mapped["value"], -3.0, "an earlier version is unchanged: {mapped}");
    let job = json!({ "routine": "quotient", "arguments": [[[-1, 1]]] });
    let (_, job) = gateway.post("/v1/jobs", "", &job);
    assert_eq!(job["routine"], "quotient@1.10");
    let state = gateway.wait(job["job"].as_str().unwrap(), &site.cluster);
    assert_eq!(state["tally"]["failed"], json!({ "invalid": 1 }), "{state}");
    check_library(&site, &gateway);
    check_document(&gateway);
}

impl Gateway {
    /// Makes a call when a node is there.
    fn call_soon(&self, routine: &str, argument: &Value) -> (u16, Value) {
        self.post(&format!("/v1/routines/{routine}/call"), "", &json!({ "argument": argument }))
    }
}

/// Checks signatures and the search, by REST and by the command.
fn check_library(site: &Site, gateway: &Gateway) {
    let (_, signature) = gateway.get("/v1/routines/quotient");
    assert_eq!((&signature["routine"], &signature["tags"]), (&json!("quotient@1.10"), &json!(["math"])));
    assert_eq!(signature["parameters"][1]["default"], 3, "{signature}");
    assert_eq!(
        (&signature["parameters"][0]["required"], &signature["result"]["minimum"]),
        (&json!(true), &json!(0))
    );
    let names = |page: &Value| -> Vec<String> {
        let routines = page["routines"].as_array().unwrap().iter();
        routines.map(|routine| routine["routine"].as_str().unwrap().to_owned()).collect()
    };
    let (_, first) = gateway.get("/v1/routines?limit=2");
    assert_eq!(names(&first), ["outer@1", "quotient@1.9"]);
    let (_, second) =
        gateway.get(&format!("/v1/routines?limit=2&cursor={}", first["next"].as_str().unwrap()));
    assert_eq!(
        (names(&second), &second["next"]),
        (vec!["quotient@1.10".into(), "square@1.0".into()], &Value::Null)
    );
    assert_eq!(names(&gateway.get("/v1/routines?q=divides%20TWO&tag=math").1), ["quotient@1.10"]);
    assert_eq!(gateway.get("/v1/routines?page=2").0, 400);
    let found = site.cluster.json("routines", &["find", "numbers"]).unwrap();
    assert_eq!(names(&found), ["quotient@1.10"]);
    let table = site.cluster.run("routines", &["find", "--tag", "math"]).unwrap();
    assert!(
        table.out.contains("quotient@1.10") && table.out.contains("Divides two numbers."),
        "{}",
        table.out
    );
    assert!(!table.out.contains("square"), "{}", table.out);
}

/// Checks that the document, the router and the guide have the same requests.
fn check_document(gateway: &Gateway) {
    let (_, document) = gateway.get("/v1/openapi.json");
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            documented.insert(format!("{} {path}", method.to_uppercase()));
            let place = path.replace("{job}", "j-0000000999").replace("{routine}", "missing@1");
            let place = place.replace("{name}", "missing").replace("{index}", "0");
            let status = match &**method {
                "get" if path == "/livez" => continue,
                "get" => gateway.get(&place).0,
                "post" => gateway.post(&place, "", &json!({ "argument": 1 })).0,
                _ => gateway.ask(&format!("{} {place}", method.to_uppercase()), "", "").0,
            };
            assert!(operation["responses"].get(status.to_string()).is_some(), "{method} {path}: {status}");
            assert_ne!(status, 405, "{method} {path}");
        }
    }
    let guide = include_str!("../../docs/routines.md");
    let cells = guide.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let requests = rows.filter(|request| request.contains(" /")).map(|request| {
        let path = request.split('?').next().unwrap().replace("resources/NAME", "resources/{name}");
        path.replace("NAME@VERSION", "{routine}").replace("/J", "/{job}").replace("/I/", "/{index}/")
    });
    assert_eq!(requests.collect::<BTreeSet<_>>(), documented);
}

/// Runs a command in a folder, without a cluster.
fn run(folder: &Path, name: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(program(name).unwrap());
    command.args(arguments).current_dir(folder).env_remove("ROUTINES_STORE");
    Running::begin(command, folder).unwrap().end_within(TOOL_MAX).unwrap()
}

#[test]
fn check_names_the_place_of_each_defect() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(run(folder, "routines", &["init", "my-sum"]).code, 0);
    let check = || {
        let checked = run(folder, "routines", &["check", "my-sum", "--json"]);
        let json: Value = serde_json::from_str(&checked.out).unwrap();
        assert_eq!(checked.code == 0, json["defects"] == json!([]), "{checked:?}");
        json
    };
    let checked = check();
    assert_eq!((&checked["defects"], &checked["examples"]), (&json!([]), &json!(2)), "{checked}");
    assert_eq!(run(folder, "routines", &["init", "my-sum"]).code, 2, "it exists");
    let (toml, code) = (folder.join("my-sum/routine.toml"), folder.join("my-sum/my_sum_routine.py"));
    for (path, from, to, file, line, message) in [
        (&toml, "type = \"number\" }\ndefault", "type = \"numbr\" }\ndefault", "routine.toml", 15, "schema"),
        (&toml, "result = 5", "result = 6", "routine.toml", 22, "5, not 6"),
        (&toml, "argument = [2, 3]", "argument = [2, \"x\"]", "routine.toml", 22, "rule: type"),
        (&code, "return first", "return 1 / 0 + first", "my_sum_routine.py", 3, "ZeroDivisionError"),
        (&code, "return first", "return str(first) * second #", "routine.toml", 22, "the result is invalid"),
        (&code, "second=1):", "second=1)", "my_sum_routine.py", 1, "SyntaxError"),
        (&code, "def", "import missing_module\ndef", "my_sum_routine.py", 1, "missing_module"),
        (&code, "def run", "def walk", "routine.toml", 1, "run"),
    ] {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
        let checked = check();
        let defect = &checked["defects"][0];
        assert!(defect["file"].as_str().unwrap_or_default().ends_with(file), "{to}: {checked}");
        assert!(defect["message"].as_str().unwrap().contains(message), "{to}: {checked}");
        assert_eq!(defect["line"], line, "{to}: {checked}");
        fs::write(path, text).unwrap();
    }
    assert!(check()["defects"] == json!([]));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../routines/examples");
    for example in ["queens", "knapsack"] {
        let checked = run(folder, "routines", &["check", examples.join(example).to_str().unwrap()]);
        assert_eq!(checked.code, 0, "{checked:?}");
    }
}

/// Returns the path of a file of the crate.
fn of_routines(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../routines").join(path)
}

/// Tests a program that should run routines.
fn conform(folder: &Path, only: &str, program: &[&str]) -> Value {
    let command = [&["conform", "--json", "--only", only, "--"], program].concat();
    let ran = run(folder, "routines", &command);
    let json: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(ran.code, i32::from(json["failed"] != 0), "{json}");
    json
}

/// Returns the names of the cases that have failed.
fn failed_cases(all: &Value) -> Vec<&str> {
    let cases = all["cases"].as_array().unwrap().iter().filter(|case| case["passed"] == false);
    cases.map(|case| case["case"].as_str().unwrap()).collect()
}

#[test]
fn arrays_of_numbers_are_arguments_and_results_of_calls_and_jobs() {
    let mut site = Site::new();
    let folder = site.cluster.folder().join("halves");
    fs::create_dir(&folder).unwrap();
    let text = "name = 'halves'\nversion = '1.0'\nruntime = 'python3'\nentry = 'module:run'\n\
        [result]\ntype = 'array'\nitems = { type = 'number', minimum = 0 }\n";
    fs::write(folder.join("routine.toml"), text).unwrap();
    let module =
        "import array\n\ndef run(values):\n    return array.array('d', [value / 2 for value in values])\n";
    fs::write(folder.join("module.py"), module).unwrap();
    site.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let script = r#"
import sys
from array import array
import routines

with routines.connect(sys.argv[1]) as r:
    assert list(r.call("halves@1.0", array("d", [3, 5]))) == [1.5, 2.5]
    values = r.map("halves@1.0", [array("i", [2]), memoryview(bytes([4, 6]))]).values()
    assert [list(value) for value in values] == [[1], [2, 3]], values
    try:
        r.call("halves@1.0", array("f", [-1]))
    except routines.CallError as error:
        assert error.kind == "invalid" and "minimum" in error.message, error
    else:
        raise AssertionError("the result violates its schema")
"#;
    site.run_client(&[script, &format!("http://{}", gateway.address)]);
}

#[test]
fn conform_passes_for_the_shim_and_names_the_failed_cases_of_broken_ones() {
    let folder = tempdir().unwrap();
    let shim = of_routines("shims/python/shim.py");
    let conform =
        |shim: &Path, only: &str| conform(folder.path(), only, &["python3", "-I", shim.to_str().unwrap()]);
    let all = conform(&shim, "");
    assert_eq!(failed_cases(&all), [""; 0], "{all:#}");
    assert!(all["passed"].as_u64().unwrap() >= 40, "{all}");
    let text = fs::read_to_string(&shim).unwrap();
    for (from, to, only, failed) in [
        ("\"nan\" if math", "\"NaN?\" if math", "value: ", &["value: NaN and infinities"][..]),
        (
            "message[\"calls\"] if kind == \"many\"",
            "message[\"calls\"][1:] if kind == \"many\"",
            "call: many",
            &["call: many in a frame"],
        ),
        (
            "            raise Stopped",
            "            pass",
            "checkpoint: a call stops",
            &["checkpoint: a call stops after its state"],
        ),
        (
            "stops = self.page[0] == PAUSE",
            "stops = self.page[0] != 0",
            "checkpoint: a requested",
            &["checkpoint: a requested state is sent, and the call continues"],
        ),
        (
            "return pickle.loads(restored)",
            "return 1, 1, 0, \"\"",
            "checkpoint: a call continues",
            &["checkpoint: a call continues in another process"],
        ),
        ("part + rest", "rest + part", "search: a part", &["search: a part is split off"]),
        // As if each search was asked for something when nothing was left.
        ("search.search(cx)\n", "search.search(cx); search.search(cx)\n", "search: ", &[]),
        (
            "sys.exit(f\"the host has sent the unknown",
            "print(f\"the host has sent the unknown",
            "message: an",
            &["message: an unknown one is refused"],
        ),
        (
            "if VERSION not in message[\"versions\"]:",
            "if False:",
            "hello: ",
            &["hello: unknown versions are refused"],
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let broken = folder.path().join("broken.py");
        fs::write(&broken, text.replacen(from, to, 1)).unwrap();
        let cases = conform(&broken, only);
        assert_eq!(failed_cases(&cases), failed, "{to}: {cases:#}");
    }
}

/// The tool that makes requests from the OpenAPI document.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// Installs the tool, and returns its path.
fn schemathesis() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(SCHEMATHESIS);
    let tool = place.join("bin/schemathesis");
    if !tool.exists() {
        for words in [
            vec!["python3", "-m", "venv", place.to_str().unwrap()],
            vec![place.join("bin/pip").to_str().unwrap(), "install", "--quiet", SCHEMATHESIS],
        ] {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            let installed =
                Running::begin(command, &std::env::temp_dir()).unwrap().end_within(TOOL_MAX).unwrap();
            assert_eq!(installed.code, 0, "{installed:?}");
        }
    }
    tool
}

#[test]
fn answers_to_generated_requests_are_documented() {
    if !is_long() {
        return;
    }
    let mut site = Site::new();
    site.add_version("quotient", "1", "run", SIGNATURE);
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let job = json!({ "routine": "quotient", "arguments": [[[1, 2]]] });
    let (_, job) = gateway.post("/v1/jobs", "", &job);
    let job = job["job"].as_str().unwrap();
    gateway.wait(job, &site.cluster);
    let expected = "[checks.not_a_server_error]\nexpected-statuses = ['2xx', '3xx', '4xx', 503]\n";
    let existing =
        format!("[parameters]\n'path.routine' = 'quotient@1'\n'path.job' = '{job}'\n'path.index' = 0\n");
    for more in ["", &existing] {
        let settings = site.cluster.folder().join("schemathesis.toml");
        fs::write(&settings, format!("{more}{expected}")).unwrap();
        let mut command = Command::new(schemathesis());
        command.args(["--config-file", settings.to_str().unwrap(), "run", "--no-color", "--seed", "1"]);
        command.args(["--checks", CHECKS, "--max-examples", "30", "--request-timeout", "100"]);
        command.arg(format!("http://{}/v1/openapi.json", gateway.address));
        command.current_dir(site.cluster.folder());
        let ran = Running::begin(command, site.cluster.folder()).unwrap().end_within(TOOL_MAX).unwrap();
        assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    }
}

/// Returns all Rust code in a folder.
fn code(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all += &code(&entry.path());
        } else if entry.path().extension().is_some_and(|it| it == "rs") {
            all += &fs::read_to_string(entry.path()).unwrap();
        }
    }
    all
}

#[test]
fn table_of_requirements_names_existing_tests() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let code = [of_routines("src"), of_routines("tests"), scenarios].map(|folder| code(&folder)).concat();
    let table = include_str!("../../docs/routines-coverage.md");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| R"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for (row, number) in rows.iter().zip(1..) {
        assert!(row.len() == 5 && row[0] == format!("R{number}"), "{row:?}");
        let tests: Vec<&str> = row[4].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{row:?}");
        // What is left out has a reason below the table.
        let reason =
            row[3].rsplit_once('(').map(|(_, number)| format!("\n{}. ", number.trim_end_matches(')')));
        assert!(row[3] == "–" || reason.is_some_and(|reason| table.contains(&reason)), "{row:?}");
        for test in tests {
            assert!(code.contains(&format!("fn {test}(")), "{test}");
        }
    }
    assert_eq!(rows.len(), 34);
}

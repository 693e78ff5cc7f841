//! The JSON of the commands of `taskwork` is as the shipped schema describes it, and has no other fields.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::cluster::{Cluster, SOON};

/// The version of the fields in the outputs.
const VERSION: u64 = 2;

/// The depth of a tree that is not searched completely.
const ENDLESS: &str = "60";

/// The schema of all outputs, which here also refuses fields that it does not describe.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn shipped(cluster: &Cluster) -> Self {
        let said = cluster.run("taskwork", &["schema"]).unwrap();
        assert_eq!(said.code, 0, "{said:?}");
        let mut schema = serde_json::from_str(&said.out).unwrap();
        assert!(jsonschema::meta::is_valid(&schema), "it is a JSON Schema");
        refuse_others(&mut schema);
        Self(schema)
    }

    /// Asserts that an output is as the schema describes it.
    pub(crate) fn check(&self, name: &str, output: &Value) {
        let mut schema = self.0.clone();
        schema["$ref"] = json!(format!("#/$defs/{name}"));
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<_> = validator
            .iter_errors(output)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}\n{output:#}");
    }

    /// Asserts that the output of a command is a list of such objects, and returns it.
    fn check_each(&self, name: &str, output: &Value) {
        let list = output.as_array().unwrap();
        assert!(!list.is_empty(), "{name}");
        for one in list {
            self.check(name, one);
        }
    }
}

/// Makes all described objects refuse further fields, unless they are open.
fn refuse_others(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && !object.contains_key("additionalProperties") {
                object.insert("additionalProperties".to_owned(), json!(false));
            }
            object.values_mut().for_each(refuse_others);
        }
        Value::Array(list) => list.iter_mut().for_each(refuse_others),
        _ => {}
    }
}

/// Returns the values in the lines of an output.
fn lines(output: &str) -> Value {
    output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect()
}

/// Waits until the nodes of a job have reported tasks and who greets whom.
fn wait_for_reports(cluster: &Cluster, id: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        let job = cluster.json("taskwork", &["job", id]).unwrap();
        let rows = job["display"]["tables"][0]["rows"].as_array().map_or(0, Vec::len);
        if job["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2) && rows > 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{job}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn output_of_each_command_is_as_the_schema_describes_it() {
    let mut cluster = Cluster::shared().unwrap();
    let labels = ["--workers", "1", "--label", "price=0.10/h,currency=EUR"];
    cluster.start_nodes("tree", 2, &labels).unwrap();
    let schema = Schema::shipped(&cluster);
    let json = |arguments: &[&str]| {
        let value = cluster.json("taskwork", arguments).unwrap();
        for one in value.as_array().unwrap_or(&vec![value.clone()]) {
            assert_eq!(one["schema"], VERSION, "{arguments:?}: {one}");
        }
        value
    };
    let submit = |arguments: &[&str]| {
        let arguments = [&["submit"], arguments].concat();
        cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned()
    };
    let done = submit(&["3", "--wait"]);
    let running = submit(&[ENDLESS, "--spin", "4000", "--companion", "--weight", "2"]);
    let waiting = submit(&["3", "--require", "gpu=yes"]);
    let [second, cancelled] =
        [["4", "--wait"], ["3", "--require=gpu=yes"]].map(|arguments| submit(&arguments));
    schema.check("cancelled", &json(&["cancel", &cancelled]));
    wait_for_reports(&cluster, &running);

    schema.check("status", &json(&["status"]));
    // A waiting job is a finding, so the exit code is 1.
    schema.check_each("finding", &lines(&cluster.run("taskwork", &["doctor", "--json"]).unwrap().out)[0]);
    schema.check_each("node", &json(&["nodes"]));
    let node = cluster.name_of(0).unwrap();
    schema.check_each("node_details", &json(&["node", &node]));
    let jobs = json(&["jobs"]);
    schema.check_each("job", &jobs);
    let states: Vec<&Value> = jobs.as_array().unwrap().iter().map(|job| &job["state"]).collect();
    assert_eq!(states, ["done", "running", "no_nodes", "done", "cancelled"]);
    assert!(jobs[1]["cost"]["money"]["EUR"].as_f64() > Some(0.0), "{jobs}");
    for job in [&done, &running, &waiting] {
        schema.check("job_details", &json(&["job", job]));
    }
    schema.check_each("event", &lines(&cluster.run("taskwork", &["events", "--json"]).unwrap().out));
    schema.check("result", &cluster.json("taskwork", &["result", &done]).unwrap());
    let waited = cluster.run("taskwork", &["wait", &done, &second, "--json"]).unwrap();
    let results = lines(&waited.out);
    assert_eq!(
        (waited.code, results[0]["job"].as_str(), results[1]["job"].as_str()),
        (0, Some(&*done), Some(&*second))
    );
    schema.check_each("results", &results);
    let failed = cluster.run("taskwork", &["wait", &cancelled, &done, "--json"]).unwrap();
    assert!(failed.code == 1 && failed.err.contains(&format!("job {cancelled} was cancelled")), "{failed:?}");
    assert_eq!(lines(&failed.out)[0]["job"], *done, "the others are still printed");
    schema.check("comparison", &json(&["compare", &done, &running]));
    schema.check("report", &json(&["report", &running]));
    schema.check("view", &json(&["top"]));
    schema.check("sizes", &json(&["whatif", &running, "--observe", "4"]));

    schema.check("share", &json(&["set", &running, "--priority", "1"]));
    schema.check("cordoned", &json(&["cordon", &node]));
    schema.check("cordoned", &json(&["uncordon", &node]));
    schema.check("suspended", &json(&["suspend", &running]));
    schema.check("resumed", &json(&["resume", &running]));
    schema.check("cancelled", &json(&["cancel", &running]));
    // A resumed job gave its nodes new names.
    let nodes = json(&["nodes"]);
    schema.check("drained", &json(&["drain", nodes[0]["node"].as_str().unwrap(), "--wait"]));
    schema.check("forgotten", &json(&["forget", &done]));
}

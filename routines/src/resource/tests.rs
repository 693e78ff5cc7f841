//! Calls of Python routines that read resources.

use serde_json::{Value, json, value::RawValue};

use super::tests_of_names::put;
use crate::{
    batch::Batch,
    call::CallHere,
    host::Host,
    library::LATEST_AGE_MAX,
    order::Order,
    package::Package,
    reduction::Reduce,
    space::Space,
    store::{Results, Store},
    tenant::Tenant,
    testing::{Fixture, fixture, package},
};

const MODULE: &str = r"
import os

def run(path, n):
    with open(path) as file:
        return [file.read(), n, os.path.isabs(path), oct(os.stat(path).st_mode & 0o777)]
";

fn deployed() -> Package {
    let Fixture { folder, store } = fixture();
    let package = package(folder, MODULE, "run", "");
    store.deploy(&package).unwrap();
    package
}

/// Returns an argument as a job records it.
fn argument(name: &str, n: u64) -> String {
    let argument = json!([{ "$resource": name }, n]).to_string();
    fixture().store.refer(argument, &mut std::collections::HashMap::new()).unwrap()
}

#[test]
fn calls_of_a_job_read_resources_as_local_files() {
    const CALLS: u64 = 30;
    let (store, package) = (&fixture().store, deployed());
    put(store, "job-a", "first");
    put(store, "job-b", "second");
    put(store, "job-gone", "third");
    let name = |n: u64| ["job-a", "job-b"][usize::from(n.is_multiple_of(5))];
    let mut arguments: Vec<_> = (0..CALLS).map(|n| argument(name(n), n)).collect();
    arguments.push(argument("job-gone", CALLS));
    // The job has the contents of its submission.
    put(store, "job-a", "later");
    store.delete_resource("job-gone").unwrap();
    let key = format!("{:032x}", rand::random::<u128>());
    let space = Space::List(arguments);
    let order = Order::new(package.digest, key.clone(), space, Reduce::default());
    let report = Batch::job(order, "test".to_owned()).nodes(2).workers(2).run().unwrap();
    assert_eq!(report.output.ended, CALLS + 1);
    let results = Results::open(store.objects.clone(), &Store::job(&key), CALLS + 1).unwrap();
    let lines = results.lines(0, usize::MAX, usize::MAX).unwrap();
    let mut lines = lines.iter().map(|line| serde_json::from_str::<Value>(&line.json).unwrap());
    for n in 0..CALLS {
        let content = if name(n) == "job-a" { "first" } else { "second" };
        assert_eq!(lines.next().unwrap()["value"], json!([content, n, true, "0o444"]), "call {n}");
    }
    let error = &lines.next().unwrap()["error"];
    assert_eq!(error["kind"], "invalid");
    assert!(error["message"].as_str().unwrap().contains("job-gone"), "{error}");
}

#[test]
fn direct_call_reads_a_resource_and_names_a_missing_one() {
    let (store, package) = (&fixture().store, deployed());
    put(store, "direct", "content");
    put(store, "direct-gone", "another content");
    let host = Host::current().unwrap();
    let installed = host.packages.named(store, &package.name(), LATEST_AGE_MAX).unwrap();
    let call = |argument: String| {
        let argument = RawValue::from_string(argument).unwrap();
        let call =
            CallHere::new(host, std::sync::Arc::clone(&installed), argument, 0, None, Tenant::default());
        serde_json::to_value(call.run(&|| false)).unwrap()
    };
    assert_eq!(call(argument("direct", 7))["value"], json!(["content", 7, true, "0o444"]));
    let gone = argument("direct-gone", 7);
    store.delete_resource("direct-gone").unwrap();
    for (argument, name) in [(gone, "direct-gone"), (r#"[{"$resource":"a name"}, 7]"#.to_owned(), "a name")] {
        let failed = call(argument);
        assert_eq!(failed["error"]["kind"], "invalid", "{failed}");
        assert!(failed["error"]["message"].as_str().unwrap().contains(name), "{failed}");
    }
}

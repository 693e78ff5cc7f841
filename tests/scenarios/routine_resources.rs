//! Resources: files for calls of Python routines, on several nodes.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::json;

use crate::routine_site::{Gateway, Site};

const MODULE: &str = r#"
import hashlib, os, time

NODE = os.getppid()

def run(path, n):
    time.sleep(0.02)
    with open(path, "rb") as file:
        content = file.read()
    return [hashlib.sha256(content).hexdigest(), n, NODE, path]
"#;

/// A program with the address of the gateway and the path of a file.
const PROGRAM: &str = r#"
import hashlib, sys, urllib.request
import routines

address, path = sys.argv[1:]
with open(path, "rb") as file:
    first = file.read()
sha = lambda content: hashlib.sha256(content).hexdigest()
with routines.connect(address) as r:
    table = r.put("table", path)
    assert urllib.request.urlopen(address + "/v1/resources/table").read() == first
    job = r.starmap("reads@1.0", [(table, n) for n in range(200)])
    # The job keeps the content of its submission.
    r.put("table", b"second")
    values = job.values()
    assert [value[:2] for value in values] == [[sha(first), n] for n in range(200)], values[0]
    assert len({value[2] for value in values}) == 2, "both nodes have made calls"
    paths = {(value[2], value[3]) for value in values}
    assert len(paths) == 2 and len({path for _, path in paths}) == 2, paths
    assert r.call("reads@1.0", table, 5)[:2] == [sha(b"second"), 5]
    assert r.call("reads@1.0", path=routines.Resource("from.command"), n=6)[:2] == [sha(first), 6]
    missing = routines.Resource("missing")
    for request in (lambda: r.call("reads@1.0", missing, 1), lambda: r.starmap("reads@1.0", [(missing, 1)])):
        try:
            request()
        except routines.RequestError as error:
            assert error.status == 404 and "missing" in str(error), error
        else:
            raise AssertionError("there is no such resource")
    try:
        r.put("a/b", bytes(8 << 20))
    except routines.RequestError as error:
        assert error.status == 400 and "a/b" in str(error), error
    r.delete("table")
    try:
        r.call("reads@1.0", table, 5)
    except routines.RequestError as error:
        assert error.status == 404, error
"#;

const DESCRIPTION: &str = "name = 'reads'\nversion = '1.0'\nruntime = 'python3'\nentry = 'module:run'\n";

/// Deploys the routine, and returns its folder.
fn deploy(site: &Site) -> PathBuf {
    let folder = site.cluster.folder().join("reads");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("routine.toml"), DESCRIPTION).unwrap();
    fs::write(folder.join("module.py"), MODULE).unwrap();
    site.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
    folder
}

#[test]
fn resource_is_copied_from_a_node_when_the_store_has_lost_it() {
    const CALLS: u64 = 200;
    let mut site = Site::new();
    deploy(&site);
    let file = site.cluster.folder().join("table.bin");
    fs::write(&file, vec![7; 20 << 20]).unwrap();
    site.cluster.json("routines", &["put", "table", file.to_str().unwrap()]).unwrap();
    site.start_nodes(1);
    let gateway = Gateway::start(&site.cluster);
    let results = |calls: u64| {
        let arguments: Vec<_> = (0..calls).map(|n| json!([{ "$resource": "table" }, n])).collect();
        let job = json!({ "routine": "reads@1.0", "arguments": arguments });
        let job = gateway.post("/v1/jobs", "", &job).1["job"].as_str().unwrap().to_owned();
        let (_, state) = gateway.get(&format!("/v1/jobs/{job}?wait=60"));
        assert_eq!(state["state"], "successful", "{state}");
        let (_, page) = gateway.get(&format!("/v1/jobs/{job}/results?limit={calls}"));
        page["results"].as_array().unwrap().iter().map(|result| result["value"].clone()).collect::<Vec<_>>()
    };
    let first = results(1);
    // Only the first node has the content.
    fs::remove_dir_all(site.cluster.folder().join("store/resources")).unwrap();
    site.start_nodes(1);
    let all = results(CALLS);
    assert!(all.iter().all(|value| value[0] == first[0][0]), "{all:?}");
    let nodes: BTreeSet<_> = all.iter().filter_map(|value| value[2].as_u64()).collect();
    assert_eq!((all.len() as u64, nodes.len()), (CALLS, 2), "both nodes have made calls");
}

#[test]
fn resource_reaches_calls_on_two_nodes_until_it_is_deleted() {
    let mut site = Site::new();
    let folder = deploy(&site);
    // Larger than two parts.
    let content: Vec<u8> = (0_u32..).flat_map(u32::to_le_bytes).take(20 << 20).collect();
    let file = site.cluster.folder().join("table.bin");
    fs::write(&file, &content).unwrap();
    let put = site.cluster.json("routines", &["put", "from.command", file.to_str().unwrap()]).unwrap();
    assert_eq!((&put["name"], put["bytes"].as_u64()), (&"from.command".into(), Some(20 << 20)));
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    site.run_client(&[PROGRAM, &format!("http://{}", gateway.address), file.to_str().unwrap()]);
    let (status, left) = gateway.get("/v1/resources");
    assert_eq!((status, left["resources"].as_array().unwrap().len()), (200, 1), "{left}");
    assert_eq!(left["resources"][0], put);

    // A repeated request finds its job, although the resource and the latest version have changed.
    let submit = || {
        let job = json!({ "routine": "reads", "arguments": [[{ "$resource": "from.command" }, 1]] });
        let (status, answer) = gateway.post("/v1/jobs", "Idempotency-Key: again\r\n", &job);
        (status, answer["job"].clone())
    };
    let (status, first) = submit();
    assert_eq!(status, 201);
    fs::write(&file, "other").unwrap();
    site.cluster.json("routines", &["put", "from.command", file.to_str().unwrap()]).unwrap();
    fs::write(folder.join("routine.toml"), DESCRIPTION.replace("1.0", "1.1")).unwrap();
    site.cluster.json("routines", &["deploy", folder.to_str().unwrap()]).unwrap();
    assert_eq!(submit(), (200, first));
}

//! Reports of a job on a real ZooKeeper: from the data in the cluster, and from a record.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::{Cluster, CommandOutput, Running, SOON};

/// The maximum duration of a job on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// The event of a record when a second has passed.
const TICK: &str = "\"what\":\"tick\"";

/// A part of a record of a running job.
const RUNNING: &str = "\\\"state\\\":\\\"running\\\"";

/// The event of a record when the whole cluster was read.
const FOUND: &str = "\"what\":\"found\"";

/// Waits until the record in a folder contains a text, and then this many ticks.
fn wait_for_record(dashboard: &mut Running, folder: &Path, text: &str, ticks: usize) {
    let deadline = Instant::now() + SOON;
    loop {
        let files: Vec<PathBuf> = fs::read_dir(folder)
            .map(|files| files.map(|file| file.unwrap().path()).collect())
            .unwrap_or_default();
        let has = |record: String| {
            record.rsplit_once(text).is_some_and(|(_, rest)| rest.matches(TICK).count() >= ticks)
        };
        if files.iter().any(|file| fs::read_to_string(file).is_ok_and(has)) {
            return;
        }
        assert!(!dashboard.has_ended().unwrap() && Instant::now() < deadline, "no {text} in {files:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until two records of a folder contain a text, the second one written by this observer.
fn wait_for_second_record(observer: &mut Running, folder: &Path, text: &str) {
    let deadline = Instant::now() + SOON;
    let contains = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|record| record.contains(text));
    while fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).filter(contains).count() < 2 {
        assert!(!observer.has_ended().unwrap() && Instant::now() < deadline, "there is no second {text}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the data embedded in a page.
pub(crate) fn held(file: &Path) -> Value {
    let page = fs::read_to_string(file).unwrap();
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn report_covers_cluster_data_and_record() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let folder = cluster.folder().join("record");
    let record = folder.to_str().unwrap().to_owned();
    let mut dashboard =
        cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0", "--record", &record]).unwrap();
    wait_for_record(&mut dashboard, &folder, FOUND, 1);
    let gate = cluster.gate().unwrap();
    let job = cluster.begin("tree", &["submit", "18", "--gate", gate.path(), "--wait"]).unwrap();
    for node in 0..2 {
        cluster.wait_for_log(node, "the node takes part").unwrap();
    }
    wait_for_record(&mut dashboard, &folder, RUNNING, 2);
    gate.open().unwrap();
    assert_eq!(job.end().unwrap().code, 0);
    wait_for_record(&mut dashboard, &folder, "\\\"state\\\":\\\"done\\\"", 4);
    drop(dashboard);

    let path = |name: &str| cluster.folder().join(name);
    let run = |arguments: &[&str]| -> CommandOutput { cluster.run("taskwork", arguments).unwrap() };
    let page = path("run.html");
    let now = run(&["report", "0", "-o", page.to_str().unwrap()]);
    assert_eq!(now.code, 0, "{}", now.err);
    assert!(now.out.contains("written: ") && now.err.contains("Nobody has recorded this job"), "{}", now.err);
    let view = &held(&page)["view"];
    let job = &view["snapshot"]["jobs"]["j-0000000000"];
    assert_eq!((&job["about"]["stage"], job["nodes"].as_object().unwrap().len()), (&"done".into(), 2));
    let moments = view["snapshot"]["moments"].as_array().unwrap();
    assert!(moments.iter().any(|moment| moment["what"] == "job_over"), "{moments:?}");
    let again = run(&["report", "0", "-o", page.to_str().unwrap()]);
    assert!(again.code == 2 && again.err.contains("--force"), "{}", again.err);
    let unknown = run(&["report", "77", "-o", "-"]);
    assert!(unknown.code == 5 && unknown.err.contains("taskwork jobs"), "{}", unknown.err);
    assert_eq!(unknown.out, "");

    let recorded = path("recorded.html");
    let then = run(&["report", "0", "--record", &record, "-o", recorded.to_str().unwrap()]);
    assert_eq!(then.code, 0, "{}", then.err);
    assert!(!then.err.contains("Nobody"), "{}", then.err);
    let told = &held(&recorded)["view"]["snapshot"]["jobs"]["j-0000000000"];
    assert_eq!(told["about"]["figures"]["worked"], job["about"]["figures"]["worked"]);

    // A job of the cluster, and the same job of the record.
    let compared = cluster.json("taskwork", &["compare", "0", &format!("{record}:0")]).unwrap();
    assert_eq!(compared["a"]["worked"], compared["b"]["worked"]);
    assert!(compared["b"]["ran_s"].is_f64() && compared["a"]["rate_most"].is_null(), "{compared}");
    let table = run(&["compare", "0", &format!("{record}:0")]);
    assert!(table.code == 0 && table.out.contains("requests to ZooKeeper"), "{}", table.err);
}

#[test]
fn report_is_complete_although_observer_was_killed() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let folder = cluster.folder().join("record");
    let record = folder.to_str().unwrap().to_owned();
    let observe = ["dashboard", "--listen", "127.0.0.1:0", "--record", &record];
    let mut first = cluster.begin("taskwork", &observe).unwrap();
    wait_for_record(&mut first, &folder, FOUND, 1);
    let gate = cluster.gate().unwrap();
    let job = cluster.begin("tree", &["submit", "18", "--gate", gate.path(), "--wait"]).unwrap();
    wait_for_record(&mut first, &folder, RUNNING, 2);
    assert_eq!(cluster.run("taskwork", &["suspend", "0"]).unwrap().code, 0);
    wait_for_record(&mut first, &folder, "\\\"state\\\":\\\"suspended\\\"", 2);
    // By SIGKILL.
    drop(first);

    let mut second = cluster.begin("taskwork", &observe).unwrap();
    wait_for_second_record(&mut second, &folder, FOUND);
    assert_eq!(cluster.run("taskwork", &["resume", "0"]).unwrap().code, 0);
    wait_for_second_record(&mut second, &folder, RUNNING);
    gate.open().unwrap();
    assert_eq!(job.end_within(PATIENCE).unwrap().code, 0);
    wait_for_record(&mut second, &folder, "\\\"state\\\":\\\"done\\\"", 4);
    drop(second);

    let page = cluster.folder().join("run.html");
    let report = ["report", "0", "--record", &record, "-o", page.to_str().unwrap()];
    let written = cluster.run("taskwork", &report).unwrap();
    assert_eq!(written.code, 0, "{}", written.err);
    let view = &held(&page)["view"];
    let job = &view["snapshot"]["jobs"]["j-0000000000"];
    assert_eq!(job["about"]["stage"], "done");
    let now = cluster.json("taskwork", &["job", "0"]).unwrap();
    assert_eq!(job["about"]["figures"]["worked"], now["figures"]["worked"], "{job}");
    let moments = view["snapshot"]["moments"].as_array().unwrap();
    let count = |what: &str| moments.iter().filter(|moment| moment["what"] == what).count();
    // Once by each observer, and the end by the second one.
    assert_eq!((count("job_runs"), count("job_over")), (2, 1), "{moments:?}");
    // The data before and after the kill forms one series.
    let points = job["series"]["points"].as_array().unwrap();
    let course = |name: &str| points.iter().map(|point| point[name].as_u64().unwrap()).collect::<Vec<_>>();
    let (times, worked) = (course("at_ms"), course("worked"));
    assert!(times.is_sorted_by(|a, b| a < b) && worked.is_sorted(), "{points:?}");
    assert!(worked.first() < worked.last(), "{points:?}");
}

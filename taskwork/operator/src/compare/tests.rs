//! Comparisons of recorded jobs, without a cluster.

use std::fs;

use serde_json::json;

use super::*;
use crate::report::tests::{JOB, Recorded, SUBMITTED_MS, held};

const OTHER: &str = "j-0000000002";

/// Returns a job recorded for a minute, and a job recorded without its start.
fn both() -> [Seen; 2] {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    let a = record::read(&recorded.write(&folder.path().join("a.jsonl")), JOB).unwrap();
    let mut recorded = Recorded::new();
    recorded.name = "the other".to_owned();
    recorded.events.clear();
    recorded.job(OTHER, "running");
    recorded.join(OTHER, "n1");
    recorded.see("", taskwork::view::Content::Found);
    for second in 1..=30 {
        recorded.pass(1);
        recorded.report(OTHER, "n1", second * 5, Some(if second < 20 { 39.5 } else { 39.0 }));
    }
    recorded.pass(1);
    let b = record::read(&recorded.write(&folder.path().join("b.jsonl")), OTHER).unwrap();
    [a, b]
}

#[test]
fn job_argument_is_id_or_record_and_id() {
    let of = |record: Option<&str>, job: &str| -> Result<Which, String> {
        Ok(Which { record: record.map(PathBuf::from), job: job.parse().unwrap() })
    };
    assert_eq!(which("2"), of(None, OTHER));
    assert_eq!(which(OTHER), of(None, OTHER));
    assert_eq!(which("records/a.jsonl:2"), of(Some("records/a.jsonl"), OTHER));
    assert_eq!(which("a:b:j-0000000002"), of(Some("a:b"), OTHER));
    for wrong in ["", "a.jsonl", "a.jsonl:", ":2", "a.jsonl:x", "j-2", "-1"] {
        assert!(which(wrong).unwrap_err().contains("FILE:ID"), "{wrong}");
    }
}

#[test]
fn facts_match_recorded_jobs() {
    let both = both();
    let [a, b] = Facts::of(both.each_ref());
    assert_eq!(
        (a.took_s, a.ran_s, a.worked, a.rate, a.state),
        (Some(60.0), Some(60.0), Some(600), Some(10.0), "done")
    );
    assert_eq!((a.rate_most, a.nodes, a.workers_most, a.nodes_lost), (Some(10.0), Some(3), Some(6), Some(1)));
    assert_eq!((a.best, a.bound), (Some(40.0), Some(40.0)), "it is done, and no work was left open");
    assert_eq!(a.share, Some(1.0), "it is done");
    assert_eq!((a.first_solution_s, a.near_its_best_s), (Some(5.0), Some(20.0)));
    assert_eq!(a.near_best_of_both_s, None, "39 is out of its reach");
    assert_eq!((a.searching, a.looking, a.starting), (Some(0.75), Some(0.25), Some(0.0)));
    assert_eq!((a.zookeeper_requests, a.transactions_per_thousand_tasks), (Some(18), Some(500.0)));
    assert_eq!((a.steal_median_s, a.write_p99_s), (None, None), "nothing was measured");
    assert_eq!((b.best, b.state), (Some(39.0), "running"));
    assert_eq!(
        (b.first_solution_s, b.near_its_best_s, b.near_best_of_both_s),
        (None, None, None),
        "the start of this job was not observed"
    );
}

#[test]
fn time_at_work_excludes_suspensions() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    for event in recorded.events.iter_mut().filter(|event| event.path == format!("jobs/{JOB}")) {
        let taskwork::view::Content::Data(bytes) = &mut event.content else { continue };
        let mut record: Value = serde_json::from_slice(bytes).unwrap();
        record["suspended_ms"] = json!(20_000);
        *bytes = record.to_string().into_bytes();
    }
    let seen = record::read(&recorded.write(&folder.path().join("a.jsonl")), JOB).unwrap();
    let [facts, _] = Facts::of([&seen, &seen]);
    // Its start was observed after one second.
    assert_eq!((facts.took_s, facts.ran_s), (Some(60.0), Some(60.0 - 20.0 - 1.0)));
    assert_eq!(serde_json::to_value(&facts).unwrap()["job"], JOB);
}

#[test]
fn cost_of_nodes_never_seen_as_members_is_unknown() {
    let [mut a, mut b] = both();
    assert!(Facts::of([&a, &b]).iter().all(|of| of.node_time_s.is_some()));
    // As in a query of a cluster: only present members are seen.
    let without = |seen: &mut Seen, names: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut recorded = Recorded::new();
        recorded.run(JOB);
        recorded.events.retain(|event| !names.iter().any(|name| event.path == format!("members/{name}")));
        *seen = record::read(&recorded.write(&folder.path().join("a.jsonl")), JOB).unwrap();
    };
    without(&mut a, &["n1", "n2", "n3"]);
    without(&mut b, &["n1"]);
    let [of_a, of_b] = Facts::of([&a, &b]);
    assert_eq!((of_a.node_time_s, of_a.cost), (None, None), "unknown is not 0");
    assert!(of_b.node_time_s.is_some_and(|s| s > 0.0));
    let says = |seen: &Seen, what: &str| seen.remarks.iter().any(|remark| remark.starts_with(what));
    assert!(says(&a, "All of its nodes went before they were seen"), "{:?}", a.remarks);
    assert!(says(&b, "1 of its 3 nodes went before they were seen"), "{:?}", b.remarks);
}

#[test]
fn request_sums_saturate() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    for event in &mut recorded.events {
        if let taskwork::view::Content::Data(content) = &mut event.content
            && event.path.ends_with("figures/n1")
        {
            let mut report: Value = serde_json::from_slice(content).unwrap();
            report["requests"]["reads"] = u64::MAX.into();
            *content = report.to_string().into_bytes();
        }
    }
    let a = record::read(&recorded.write(&folder.path().join("a.jsonl")), JOB).unwrap();
    assert_eq!(Facts::of([&a, &a])[0].zookeeper_requests, Some(u64::MAX));
}

#[test]
fn table_shows_both_jobs_in_columns() {
    let both = both();
    let rows = rows::of(&Facts::of(both.each_ref()));
    let text = rows::text(&rows);
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    for (name, values) in [
        ("job", &[JOB, OTHER][..]),
        ("seen by", &["a.jsonl", "b.jsonl"]),
        ("best", &["40", "39", "0.97"]),
        ("first solution after", &["5.0 s", "-"]),
        ("work done", &["600", "150", "0.25"]),
        ("looking for work", &["25.00 %", "25.00 %", "1.00"]),
    ] {
        let line = line(name);
        let places: Vec<Option<usize>> = values.iter().map(|value| line.find(value)).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{name} in\n{text}");
    }
    assert!(
        !text.contains("NaN") && line("a write takes").is_empty(),
        "rows without any value are omitted:\n{text}"
    );
}

#[test]
fn page_shows_both_jobs_on_one_axis() {
    let both = both();
    let facts = Facts::of(both.each_ref());
    let rows = rows::of(&facts);
    let page = page(&both, &facts, &rows);
    let data = held(&page);
    assert_eq!(data["first"], json!(["compare", ""]));
    let [a, b] = &data["compared"]["jobs"].as_array().unwrap()[..] else { panic!("{data}") };
    assert_eq!((&a["from_ms"], &a["name"]), (&json!(SUBMITTED_MS + 1_000), &json!("a job")));
    assert_eq!(b["from_ms"], b["points"][0]["at_ms"], "from its first point");
    assert_eq!(data["compared"]["rows"].as_array().unwrap().len(), rows.len());
    assert!(page.contains("data.pages.compare ="));
    let of_page = Single { title: "", first: "", more: Some(PAGE), data: &json!({}) }.names_twice();
    assert!(of_page.is_empty(), "names at the top of two modules: {of_page:?}");
}

#[test]
fn cluster_is_needed_only_for_jobs_without_record() {
    use clap::Parser as _;
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        of: Arguments,
    }
    let parse = |line: &[&str]| Line::try_parse_from([&["test"], line].concat()).map(|line| line.of);
    assert!(!parse(&["a.jsonl:1", "b.jsonl:1"]).unwrap().needs_cluster());
    assert!(!parse(&["1", "b.jsonl:1", "--record", "a"]).unwrap().needs_cluster());
    assert!(parse(&["1", "b.jsonl:1"]).unwrap().needs_cluster());
    assert!(parse(&["1"]).is_err() && parse(&["1", "2", "--force"]).is_err());
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("compare.html");
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    recorded.write(&folder.path().join("a.jsonl"));
    let (folder, page) = (folder.path().to_str().unwrap(), page.to_str().unwrap());
    let of = parse(&["1", "1", "--record", folder, "-o", page]).unwrap();
    of.check(false).unwrap();
    of.of_records(false).unwrap();
    assert!(fs::read_to_string(page).unwrap().starts_with("<!doctype html>"));
    assert!(of.check(false).unwrap_err().to_string().contains("--force"));
}

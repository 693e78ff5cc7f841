//! Clusters for tests.

use serde_json::json;
use taskwork::view::{Content, Event, Snapshot, View};

/// Returns a cluster with these znodes.
pub(crate) fn snapshot(znodes: &[(String, String)]) -> Snapshot {
    let mut view = View::default();
    for (path, content) in znodes {
        view.apply(&Event::of(1_000, path.as_str(), Content::Data(content.as_bytes().to_vec())));
    }
    view.apply(&Event::of(1_000, "", Content::Found));
    view.apply(&Event::tick(2_000));
    view.snapshot()
}

/// Returns a member with 4 workers that started at 5 ms. Its labels are a JSON object.
pub(crate) fn member(node: &str, program: &str, labels: &str) -> (String, String) {
    let content = format!(
        r#"{{"format": 2, "node": "{node}", "address": null, "fingerprint": "", "workers": 4,
            "labels": {labels},
            "program": "{program}", "program_version": "1", "started_ms": 5}}"#
    );
    (format!("members/{node}"), content)
}

/// Returns a running job of a program and version that requires labels, a JSON object.
pub(crate) fn job(
    id: &str,
    (program, version): (&str, &str),
    require: &str,
    submitted_ms: u64,
) -> (String, String) {
    let require: serde_json::Value = serde_json::from_str(require).unwrap();
    let record = json!({
        "format": 2, "program": program, "program_version": version, "kind": "t", "name": id, "submitter": "me",
        "state": "running", "attempt": 1, "attempts_max": 3, "require": require, "root": "", "shared_chunks": 0,
        "submitted_ms": submitted_ms, "finished_ms": null, "reason": null, "lost": [],
    });
    (format!("jobs/{id}"), record.to_string())
}

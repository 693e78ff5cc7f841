//! A cluster's members and jobs as JSON objects, for scripts.

use serde_json::json;
use taskwork::client::{JobRecord, Member, Overview, Stage};

/// Returns a member as an object.
pub(super) fn member(overview: &Overview, member: &Member) -> serde_json::Value {
    json!({
        "node": member.node,
        "program": member.program,
        "version": member.program_version,
        "workers": member.workers,
        "memory_bytes": member.memory_bytes,
        "labels": member.labels,
        "address": member.address.map(|address| address.to_string()),
        "started_ms": member.started_ms,
        "leads": overview.leads(&member.node),
        "draining": overview.drains(&member.node),
    })
}

/// Returns a job as an object.
pub(super) fn job(id: &str, stage: Stage, record: Option<&JobRecord>) -> serde_json::Value {
    let Some(record) = record else { return json!({ "job": id, "state": stage.text() }) };
    json!({
        "job": id,
        "state": stage.text(),
        "program": record.program,
        "version": record.program_version,
        "kind": record.kind,
        "name": record.name,
        "submitter": record.submitter,
        "submitted_ms": record.submitted_ms,
        "finished_ms": record.finished_ms,
        "attempt": record.attempt,
        "attempts_max": record.attempts_max,
        "require": record.require,
        "stays_open": record.stays_open,
        "reason": record.reason,
        "lost": record.lost,
    })
}

//! Members and jobs of a cluster as JSON objects, for scripts. States have the names of `/api/view` and the metrics.

use serde_json::json;
use taskwork::client::{
    JobEntry, Overview, Stage,
    records::{JobRecord, Member},
};

/// The version of the fields of members and jobs. It increases if a field changes its meaning or is removed.
pub(super) const SCHEMA: u32 = 1;

/// The stages of jobs.
pub(crate) const STAGES: [Stage; 12] = [
    Stage::Submitting,
    Stage::Abandoned,
    Stage::Running,
    Stage::Queued,
    Stage::Waiting,
    Stage::NoNodes,
    Stage::Suspended,
    Stage::Done,
    Stage::Incomplete,
    Stage::Failed,
    Stage::Cancelled,
    Stage::Unreadable,
];

/// Returns the name of a stage, as in `/api/view`.
pub(crate) fn name_of(stage: Stage) -> String {
    let name = json!(stage);
    name.as_str().unwrap_or(stage.text()).to_owned()
}

pub(super) fn member(overview: &Overview, member: &Member) -> serde_json::Value {
    json!({
        "schema": SCHEMA,
        "node": member.node,
        "host": member.host,
        "pid": member.pid,
        "program": member.program,
        "version": member.program_version,
        "workers": member.workers,
        "memory_bytes": member.memory_bytes,
        "labels": member.labels,
        "address": member.address.map(|address| address.to_string()),
        "started_ms": member.started_ms,
        "leads": overview.leads(&member.node),
        "draining": overview.drains(&member.node),
        "cordoned": overview.is_cordoned(&member.node),
    })
}

pub(super) fn job(overview: &Overview, entry: &JobEntry) -> serde_json::Value {
    let leader = overview.leaders.iter().find(|(led, _)| *led == entry.id).map(|(_, node)| node);
    let mut object = record(&entry.id, entry.stage, entry.record.as_ref());
    (object["missing"], object["leader"]) = (json!(entry.missing), json!(leader));
    object
}

/// Returns the record of a job as an object.
pub(super) fn record(id: &str, stage: Stage, record: Option<&JobRecord>) -> serde_json::Value {
    let Some(record) = record else { return json!({ "schema": SCHEMA, "job": id, "state": stage }) };
    json!({
        "schema": SCHEMA,
        "job": id,
        "state": stage,
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
        "after": record.after,
        "stays_open": record.stays_open,
        "weight": record.share.weight,
        "priority": record.share.priority,
        "exclusive": record.share.exclusive,
        "share_changes": record.share_changes,
        "reason": record.reason,
        "lost": record.lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_identifiers_in_a_versioned_object() {
        let object = record("j-1", Stage::NoNodes, None);
        assert_eq!(object, json!({ "schema": 1, "job": "j-1", "state": "no_nodes" }));
        assert_eq!(record("j-1", Stage::Waiting, None)["state"], "waiting");
    }
}

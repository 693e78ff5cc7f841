//! Members and jobs of a cluster as JSON objects, for scripts. States have the names of `/api/view` and the metrics.
//! `schema.json` describes all outputs, and `docs/json.md` which command prints which of them.

use serde_json::{Value, json};
use taskwork::{
    client::{
        JobEntry, Overview, Stage,
        records::{JobRecord, Member},
    },
    report::{Figures, Outlook},
    view::JobCost,
};

/// The version of the fields. It increases if a field changes its meaning or is removed.
pub(crate) const SCHEMA: u32 = 2;

/// The JSON Schema of all outputs.
pub(crate) const SCHEMA_TEXT: &str = include_str!("schema.json");

/// Adds the version of the fields to an object, or to all objects of a list.
pub(crate) fn versioned(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(versioned).collect(),
        Value::Object(mut object) => {
            object.entry("schema").or_insert(json!(SCHEMA));
            Value::Object(object)
        }
        other => other,
    }
}

/// Returns the work of a node, or of several, without the encodings of the runtime.
pub(super) fn figures(figures: &Figures) -> Value {
    let mut object = json!(figures);
    let outlook = |outlook: Outlook| match outlook {
        Outlook::Nothing => json!({ "kind": "nothing" }),
        Outlook::AtLeast(bound) => json!({ "kind": "at_least", "bound": bound }),
        Outlook::Unknown => json!({ "kind": "unknown" }),
    };
    (object["outlook"], object["left_open"]) = (outlook(figures.outlook), outlook(figures.left_open));
    if let Some(fields) = object.as_object_mut() {
        fields.remove("done_attos");
        fields.remove("steal_times");
        fields.insert("share_done".to_owned(), json!(figures.done_attos as f64 * 1e-18));
    }
    object
}

/// Returns the cost of a job; null if it is not known.
fn cost(cost: Option<&JobCost>) -> Value {
    cost.map_or(Value::Null, |cost| {
        json!({
            "money": cost.spent.money,
            "an_hour": cost.an_hour,
            "node_ms": cost.spent.node_ms,
            "nodes": cost.nodes,
            "unpriced_nodes": cost.unpriced,
        })
    })
}

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

pub(super) fn member(overview: &Overview, member: &Member) -> Value {
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

pub(super) fn job(overview: &Overview, entry: &JobEntry) -> Value {
    let leader = overview.leaders.iter().find(|(led, _)| *led == entry.id).map(|(_, node)| node);
    let mut object = record(&entry.id, entry.stage, entry.record.as_ref());
    (object["missing"], object["leader"]) = (json!(entry.missing), json!(leader));
    object["cost"] = cost(entry.cost.as_ref());
    object
}

/// Returns the record of a job as an object.
pub(super) fn record(id: &str, stage: Stage, record: Option<&JobRecord>) -> Value {
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
    fn every_object_of_an_output_has_the_version() {
        let list = versioned(json!([{ "a": 1 }, { "schema": 1 }]));
        assert_eq!(list, json!([{ "a": 1, "schema": SCHEMA }, { "schema": 1 }]));
        assert_eq!(versioned(json!({}))["schema"], SCHEMA);
        assert_eq!(versioned(json!(7)), 7);
    }

    #[test]
    fn figures_have_no_encodings_of_the_runtime() {
        let mut given = Figures::default();
        (given.done_attos, given.outlook) = (500_000_000_000_000_000, Outlook::AtLeast(3.5));
        let shown = figures(&given);
        assert_eq!(shown["share_done"], 0.5);
        assert_eq!(shown["outlook"], json!({ "kind": "at_least", "bound": 3.5 }));
        assert_eq!(shown["left_open"], json!({ "kind": "nothing" }));
        assert!(shown.get("done_attos").is_none() && shown.get("steal_times").is_none());
    }

    #[test]
    fn states_are_identifiers_in_a_versioned_object() {
        let object = record("j-1", Stage::NoNodes, None);
        assert_eq!(object, json!({ "schema": SCHEMA, "job": "j-1", "state": "no_nodes" }));
        assert_eq!(record("j-1", Stage::Waiting, None)["state"], "waiting");
    }
}

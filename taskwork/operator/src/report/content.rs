//! The data of a report's page: one job, in a bounded size.

use std::{cmp::Reverse, mem};

use serde_json::{Map, Value, json};

use super::seen::Seen;

/// The maximum size of the data of a job, in bytes. With it a page has at most 2 MiB.
const BYTES_MAX: usize = 1_800 << 10;
/// The maximum size of the display of a job, in bytes. If it is exceeded, first the pictures are left out.
const DISPLAY_BYTES_MAX: usize = 256 << 10;
/// The number of events kept of each node if there are too many: its first one, and its last ones.
const EVENTS_KEPT: usize = 8;
/// The figures of a node that are kept if the page would become too large.
const FIGURES_KEPT: [&str; 5] = ["worked", "tasks", "retries", "stolen_tasks", "times"];
/// The maximum length of a text in a page, in characters.
const TEXT_CHARS_MAX: usize = 1_000;

/// Returns the data of a report's page, in the form that `data.js` reads.
pub(super) fn of(seen: &Seen) -> Value {
    let mut remarks = seen.remarks.clone();
    let snapshot = bounded(snapshot(seen, &mut remarks), &seen.id, &mut remarks);
    json!({
        "first": ["job", seen.id],
        "view": {
            "seq": snapshot["seq"],
            "version": env!("CARGO_PKG_VERSION"),
            "cluster": seen.source,
            "now_ms": seen.snapshot.cluster.at_ms,
            "stale_since_ms": null,
            "source": "replay",
            "remarks": remarks,
            "snapshot": snapshot,
        },
        "job": { "id": seen.id, "improvements": seen.improvements, "picture": null },
    })
}

/// Returns the snapshot without the parts that the page does not show.
fn snapshot(seen: &Seen, remarks: &mut Vec<String>) -> Value {
    let mut snapshot = json!(seen.snapshot);
    if let (Some(job), Some(members)) = (seen.job(), snapshot["members"].as_object_mut()) {
        members.retain(|name, _| job.nodes.contains_key(name));
        for member in members.values_mut() {
            remove(&mut member["member"], |name| name == "fingerprint");
        }
    }
    for moment in snapshot["moments"].as_array_mut().into_iter().flatten() {
        if let Some(member) = moment.get_mut("member") {
            remove(member, |name| !["host", "pid"].contains(&name));
        }
    }
    for name in seen.lost_nodes() {
        if let Some(node) = snapshot["jobs"][&seen.id]["nodes"].get_mut(name) {
            node["state"] = json!("lost");
        }
    }
    snapshot["warnings"] = json!({});
    // These are the costs and the workers of all jobs; the job has its own.
    remove(&mut snapshot, |name| ["costs", "workers"].contains(&name));
    let job = &mut snapshot["jobs"][&seen.id];
    remove(&mut job["about"]["record"], |name| ["key", "root", "shared_name", "shared_from"].contains(&name));
    // It is bounded, and pictures cannot be shortened.
    let mut display = job["about"]["display"].take();
    if let Some(pictures) = display.get_mut("pictures").and_then(Value::as_array_mut) {
        // Browsers show no others.
        pictures.retain(|picture| picture["format"] == "svg");
    }
    shorten(&mut job["about"]);
    for part in ["pictures", "tables"] {
        let has_some = display.get(part).and_then(Value::as_array).is_some_and(|part| !part.is_empty());
        if size(&display) > DISPLAY_BYTES_MAX && has_some {
            display[part] = json!([]);
            remarks.push(format!(
                "To limit the size of this file, the {part} of the job's program were left out."
            ));
        }
    }
    job["about"]["display"] = display;
    snapshot
}

/// Removes details of nodes, and then nodes, until the snapshot is small enough; adds a remark about it.
fn bounded(mut snapshot: Value, id: &str, remarks: &mut Vec<String>) -> Value {
    if size(&snapshot) <= BYTES_MAX {
        return snapshot;
    }
    let take = |of: &mut Value| of.as_object_mut().map(mem::take).unwrap_or_default();
    let mut members = take(&mut snapshot["members"]);
    let mut nodes: Vec<Node> = take(&mut snapshot["jobs"][id]["nodes"])
        .into_iter()
        .map(|(name, node)| Node { member: members.remove(&name), name, report: node })
        .collect();
    let room = BYTES_MAX.saturating_sub(size(&snapshot));
    let fits = |nodes: &[Node]| nodes.iter().map(Node::size).sum::<usize>() <= room;
    // The page shows their sums for the job.
    for Node { report: node, .. } in &mut nodes {
        let report = &mut node["report"];
        remove(report, |name| ["latencies", "requests", "members_known", "ledger", "best"].contains(&name));
        remove(&mut report["figures"], |name| !FIGURES_KEPT.contains(&name));
    }
    if !fits(&nodes) {
        for Node { report: node, .. } in &mut nodes {
            cut(&mut node["report"]["timeline"]);
        }
        remarks.push(format!(
            "To limit the size of this file, at most {EVENTS_KEPT} events of each node were kept."
        ));
    }
    if !fits(&nodes) {
        let there = nodes.len();
        // The nodes that did the most work are the most informative.
        nodes.sort_by_key(|Node { report: node, .. }| Reverse(node["report"]["figures"]["worked"].as_u64()));
        let mut left = room;
        let kept = nodes.iter().take_while(|node| {
            let size = node.size();
            let is_room = size <= left;
            left = left.saturating_sub(size);
            is_room
        });
        nodes.truncate(kept.count());
        remarks.push(format!(
            "To limit the size of this file, only the {} of {there} nodes that did the most work were kept.",
            nodes.len()
        ));
    }
    let (mut kept, mut members) = (Map::new(), Map::new());
    for Node { name, report: node, member } in nodes {
        members.extend(member.map(|member| (name.clone(), member)));
        kept.insert(name, node);
    }
    snapshot["jobs"][id]["nodes"] = kept.into();
    snapshot["members"] = members.into();
    snapshot
}

/// A node, and its membership record.
struct Node {
    name: String,
    report: Value,
    member: Option<Value>,
}

impl Node {
    /// Returns its size in the page, with its name and separators.
    fn size(&self) -> usize {
        let member = self.member.as_ref().map_or(0, |member| self.name.len() + size(member) + 4);
        self.name.len() + size(&self.report) + 4 + member
    }
}

/// Keeps only the first and the last events.
fn cut(timeline: &mut Value) {
    if let Some(events) = timeline.as_array_mut() {
        let surplus = events.len().saturating_sub(EVENTS_KEPT);
        if surplus > 0 {
            events.drain(1..=surplus);
        }
    }
}

fn remove(object: &mut Value, is_removed: impl Fn(&str) -> bool) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, _| !is_removed(name));
    }
}

/// Shortens long texts.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the size of a value in a page, where some characters are escaped.
fn size(value: &Value) -> usize {
    let text = value.to_string();
    let longer = text.bytes().filter(|byte| matches!(byte, b'<' | b'>' | b'&')).count();
    text.len() + 5 * longer
}

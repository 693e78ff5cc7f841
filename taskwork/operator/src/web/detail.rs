//! The details of a job as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use taskwork::{
    client::records::EventKind,
    report::{Figures, Histogram, WorkerTimes},
    view::{JobNow, Moment, MomentKind, NodeNow, Point},
};

/// The tolerance between a node's clock and the time of observation, in milliseconds.
const APART_MS: u64 = 5_000;

/// Returns whether an event of the cluster concerns a job.
pub(crate) fn concerns(moment: &Moment, id: &str, job: &JobNow) -> bool {
    let is_outage = matches!(moment.what, MomentKind::ServersAway | MomentKind::ServersBack);
    is_outage || moment.name == id || job.nodes.contains_key(&moment.name)
}

/// Returns the details of a job. Values reported by nodes are null until there is a report.
pub(crate) fn of(seq: u64, id: &str, job: &JobNow, moments: &[Moment]) -> Value {
    let about = &job.about;
    let nodes = job.nodes.iter().map(|(name, node)| {
        json!({
            "node": name,
            "state": node.state,
            "report": node.report,
            "where_time_went": went(node.report.figures.times),
        })
    });
    json!({
        "seq": seq,
        "id": id,
        "job": { "about": about },
        "series": job.series,
        "nodes": nodes.collect::<Vec<_>>(),
        "improvements": improvements(job),
        "moments": moments,
        "steals": about.reported.then(|| steals(job)),
        "zookeeper": about.reported.then(|| json!({
            "requests": about.requests,
            "reads": times(&about.latencies.reads),
            "writes": times(&about.latencies.writes),
            "transactions": about.figures.transactions,
            "retries": about.figures.retries,
            "transactions_per_thousand_tasks": per_thousand_tasks(&about.figures),
        })),
        "where_time_went": went(about.figures.times),
        // Observers have no picture.
        "picture": null,
    })
}

/// Returns the history of a job as CSV, from its details. Unknown values are empty.
pub(super) fn csv(detail: &Value) -> String {
    const NUMBERS: [&str; 5] = ["worked", "share", "best", "bound", "open_tasks"];
    const LAST: [&str; 3] = ["nodes", "workers", "busy"];
    let mut lines = format!("at_ms,{},{}\r\n", LAST.join(","), NUMBERS.join(","));
    let points = detail["series"]["points"].as_array();
    for point in points.into_iter().flatten() {
        let last = LAST.iter().map(|name| &point[name]["last"]);
        let all = [&point["at_ms"]].into_iter().chain(last).chain(NUMBERS.iter().map(|name| &point[name]));
        let cells = all.map(|value| if value.is_number() { value.to_string() } else { String::new() });
        lines += &cells.collect::<Vec<_>>().join(",");
        lines += "\r\n";
    }
    lines
}

/// Returns the activities of workers, in seconds; `None` if no node reports them.
fn went(times: WorkerTimes) -> Option<Value> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    (times.total_ns() > 0).then(|| {
        json!({
            "searching_s": seconds(times.searching_ns),
            "looking_s": seconds(times.looking_ns),
            "starting_s": seconds(times.starting_ns),
            "ending_s": seconds(times.handling_ns),
        })
    })
}

fn times(times: &Histogram) -> Value {
    let quantile = |share| times.quantile(share).map(|time| time.as_secs_f64());
    json!({ "count": times.count(), "median_s": quantile(0.5), "p99_s": quantile(0.99) })
}

fn per_thousand_tasks(figures: &Figures) -> Option<f64> {
    (figures.tasks > 0).then(|| 1_000.0 * figures.transactions as f64 / figures.tasks as f64)
}

/// Returns the numbers of tasks moved between nodes, by giver and receiver, as far as nodes report them.
fn steals(job: &JobNow) -> Value {
    let figures = &job.about.figures;
    let (mut gifts, mut rest) = (Vec::new(), 0_u64);
    for (to, node) in &job.nodes {
        let Some(givers) = &node.report.givers else { continue };
        gifts.extend(
            givers.most.iter().map(|from| json!({ "from": from.node, "to": to, "tasks": from.tasks })),
        );
        rest = rest.saturating_add(givers.rest);
    }
    json!({
        "requests": figures.requests,
        "granted": figures.steals,
        "tasks": figures.stolen_tasks,
        "took": times(&figures.steal_times),
        "gifts": gifts,
        "rest": rest,
    })
}

/// Returns the times of better solutions, each with the bound and the gap at that time, and with its node if only one node reports an improvement at that time.
pub(crate) fn improvements(job: &JobNow) -> Vec<Value> {
    let mut found: Vec<&Point> = Vec::new();
    for point in job.series.points.iter().filter(|point| point.best.is_some()) {
        if found.last().is_none_or(|last| last.best != point.best) {
            found.push(point);
        }
    }
    let mut before_ms = 0;
    let told = found.into_iter().map(|point| {
        let from_ms = point.at_ms.saturating_sub(job.series.step_ms.saturating_add(APART_MS)).max(before_ms);
        before_ms = point.at_ms;
        let node = finder(&job.nodes, from_ms, point.at_ms);
        json!({ "at_ms": point.at_ms, "value": point.best, "bound": point.bound, "gap": point.gap(), "node": node })
    });
    told.collect()
}

/// Returns the node that found a better solution within a period, if it is the only one.
fn finder<N: std::ops::Deref<Target = NodeNow>>(
    nodes: &BTreeMap<String, N>,
    from_ms: u64,
    to_ms: u64,
) -> Option<&str> {
    let mut finders = nodes.iter().filter(|(_, node)| {
        let mut timeline = node.report.timeline.iter();
        timeline.any(|event| event.kind == EventKind::Improved && (from_ms..=to_ms).contains(&event.at_ms))
    });
    let (name, _) = finders.next()?;
    finders.next().is_none().then_some(name)
}

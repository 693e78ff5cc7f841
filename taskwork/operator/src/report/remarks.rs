//! Remarks about missing data in a report: a page that looks complete although it is not would mislead.

use taskwork::view::{JobNow, Moment, MomentKind};

use super::joining::{Observed, Pause};
use crate::table::{lapse, time};

/// The maximum time between submission and first observation for which the start counts as observed, in
/// milliseconds.
const BEGINNING_MS: u64 = 5_000;
/// The shortest period without observation that is reported, in milliseconds: nodes report every two seconds.
const PAUSE_MS: u64 = 3_000;
/// The maximum number of such periods that are listed.
const PAUSES_MAX: usize = 5;

/// Returns the remarks on a job read from a cluster.
pub(super) fn of_cluster(job: &JobNow) -> Vec<String> {
    let mut remarks = vec![
        "Nobody has recorded this job, so there is no history of it: no convergence, nodes or rate of work over time. The \
         report shows the last reports of its nodes, and events by the nodes' own clocks. taskwork \
         dashboard --record DIR records jobs while they run."
            .to_owned(),
    ];
    if job.about.stage.is_open() {
        remarks.push("The job is not over: the figures are those at the time of the query.".to_owned());
    }
    remarks.extend(without_reports(job));
    remarks.extend(without_costs(job));
    remarks
}

/// Returns the remarks on a recorded job.
pub(super) fn of_record(id: &str, job: &JobNow, moments: &[Moment], observed: &Observed) -> Vec<String> {
    let mut remarks = Vec::new();
    let record = job.about.record.as_deref();
    let submitted_ms = record.map(|record| record.submitted_ms);
    let begin_was_seen = moments.iter().any(|moment| moment.what == MomentKind::JobRuns && moment.name == id);
    if let Some((from_ms, submitted_ms)) = observed.from_ms.zip(submitted_ms)
        && !begin_was_seen
        && from_ms > submitted_ms.saturating_add(BEGINNING_MS)
    {
        remarks.push(format!(
            "The job was observed from {} on, {} after its submission. The time before is unknown.",
            time(from_ms),
            lapse(submitted_ms, from_ms)
        ));
    }
    if job.series.points.is_empty() {
        remarks.push("The record does not include the job at work, so there is no history of it.".to_owned());
    }
    let end_ms = record.and_then(|record| record.finished_ms).unwrap_or(u64::MAX);
    let begin_ms = observed.from_ms.max(submitted_ms).unwrap_or_default();
    let within = |pause: &&Pause| {
        let (from_ms, to_ms) = (pause.from_ms.max(begin_ms), pause.to_ms.min(end_ms));
        to_ms > from_ms.saturating_add(PAUSE_MS)
    };
    let pauses: Vec<&Pause> = observed.pauses.iter().filter(within).collect();
    remarks.extend(pauses.iter().take(PAUSES_MAX).map(|pause| {
        let (from, to, long) = (time(pause.from_ms), time(pause.to_ms), lapse(pause.from_ms, pause.to_ms));
        if pause.was_observed {
            format!("ZooKeeper did not answer the observer from {from} to {to} ({long}).")
        } else {
            format!("Nobody observed the cluster from {from} to {to} ({long}).")
        }
    }));
    if let more @ 1.. = pauses.len().saturating_sub(PAUSES_MAX) {
        remarks.push(format!("There are {more} more periods without observation."));
    }
    if job.about.stage.is_open() {
        let at = observed.to_ms.map_or_else(String::new, |at_ms| format!(" at {}", time(at_ms)));
        remarks.push(format!(
            "The record ends{at}, before the end of the job: the figures are those of that time."
        ));
    }
    remarks.extend(observed.cut.iter().map(|name| {
        format!("The last line of {name} is cut off, as when an observer is killed: it was ignored.")
    }));
    remarks.extend(without_reports(job));
    remarks.extend(without_costs(job));
    remarks
}

fn without_reports(job: &JobNow) -> Option<String> {
    let none = job.nodes.is_empty();
    none.then(|| "No node has reported on the job, so its figures are unknown.".to_owned())
}

/// Returns a remark on the nodes of unknown cost.
fn without_costs(job: &JobNow) -> Option<String> {
    let cost = job.about.cost.as_ref().filter(|cost| cost.unseen > 0)?;
    let who = if cost.is_seen() {
        format!("{} of its {} nodes", cost.unseen, cost.nodes)
    } else {
        "All of its nodes".to_owned()
    };
    Some(format!("{who} went before they were seen as members: their time and cost are not in the figures."))
}

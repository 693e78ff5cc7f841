//! Warnings about a cluster and the displayed job.

use std::time::Duration;

use taskwork::view::{JobNow, MemberNow, Snapshot};

use super::{
    state::{Source, State},
    text::{clock, duration, things},
};

/// The share of workers without a task above which a warning appears.
const HUNGRY_SHARE_MAX: f64 = 0.1;
/// The 99th percentile of writes to ZooKeeper above which a warning appears.
const WRITE_MAX: Duration = Duration::from_millis(200);
/// The maximum number of listed names.
const NAMES_MAX: usize = 3;

/// Returns the warnings, the most important ones first.
pub(super) fn warnings(state: &State) -> Vec<String> {
    let (snapshot, now_ms) = (&state.snapshot, state.now_ms());
    let mut found = Vec::new();
    if let Some(since_ms) = snapshot.cluster.silent_since_ms {
        let (since, lasted) = (clock(since_ms, now_ms), lasted(since_ms, now_ms));
        found.push(match state.source {
            Source::Cluster(_) => {
                format!("ZooKeeper has not answered since {since}, for {lasted}: the display is that old")
            }
            Source::Record(_) => format!("ZooKeeper had not answered since {since} when the record ended"),
        });
    }
    if let Some(missing) = state.waits() {
        found.push(format!("{missing}. It will be shown as soon as it exists"));
    }
    if let Some((id, Some(job))) = state.job() {
        of_job(id, job, &mut found);
    }
    of_cluster(snapshot, &mut found);
    found
}

/// Formats the time since an event.
pub(super) fn lasted(since_ms: u64, now_ms: u64) -> String {
    duration(now_ms.saturating_sub(since_ms) as f64 / 1e3)
}

fn of_job(id: &str, job: &JobNow, found: &mut Vec<String>) {
    let about = &job.about;
    found.extend(about.missing.iter().map(|missing| format!("job {id} waits: {missing}")));
    if let Some(reason) = about.record.as_ref().and_then(|record| record.reason.as_ref()) {
        found.push(format!("job {id} is {}: {reason}", about.stage.text()));
    }
    if !about.lost.is_empty() {
        let lost = things(about.lost.len() as u64, "node");
        let names = some(about.lost.iter().map(String::as_str));
        found.push(format!("{lost} lost in this attempt; others continue the work: {names}"));
    }
    if !about.set_aside.is_empty() {
        let tasks = things(about.set_aside.len() as u64, "task");
        found.push(format!(
            "job {id} continues without {tasks} that failed with several nodes: taskwork retry {id}"
        ));
    }
    if let Some(pool) = about.pool
        && f64::from(pool.hungry) > f64::from(pool.workers) * HUNGRY_SHARE_MAX
    {
        let open = about.open_tasks.map(|open| format!(", {} left", things(open, "open task")));
        let workers = things(pool.workers.into(), "worker");
        found.push(format!("{} of {workers} have no task{}", pool.hungry, open.unwrap_or_default()));
    }
    if let Some(slow) = about.latencies.writes.quantile(0.99).filter(|time| *time > WRITE_MAX) {
        let time = duration(slow.as_secs_f64());
        found.push(format!("1 % of the writes to ZooKeeper take {time} or longer"));
    }
}

fn of_cluster(snapshot: &Snapshot, found: &mut Vec<String>) {
    let mut note = |is_meant: fn(&MemberNow) -> bool, state: &str| {
        let meant: Vec<&str> = snapshot
            .members
            .iter()
            .filter(|(_, member)| is_meant(member))
            .map(|(name, _)| name.as_str())
            .collect();
        if !meant.is_empty() {
            let nodes = things(meant.len() as u64, "node");
            found.push(format!("{nodes} {state}: {}", some(meant.into_iter())));
        }
    };
    note(|member| member.draining, "asked to leave");
    note(|member| member.cordoned && !member.draining, "cordoned");
    if !snapshot.warnings.is_empty() {
        let znodes = things(snapshot.warnings.len() as u64, "znode");
        let first = snapshot.warnings.iter().next().map(|(path, why)| format!("{path}: {why}"));
        found.push(format!("{znodes} cannot be read: {}", first.unwrap_or_default()));
    }
}

fn some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names = names;
    let mut listed: Vec<&str> = names.by_ref().take(NAMES_MAX).collect();
    listed.extend(names.next().map(|_| "..."));
    listed.join(", ")
}

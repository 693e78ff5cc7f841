//! The output of `taskwork top` without a terminal: tables, once.

use taskwork::view::{Moment, Snapshot};

use super::{
    draw::{
        job::{age, lines, rate_of},
        panels::{told, zookeeper},
    },
    rows::Row,
    state::{Source, State},
    text::{bytes, clock, duration, exact, fit, maybe, number, percent, rate, whole},
    warnings::warnings,
};
use crate::table::{list, or_none, table};

/// The maximum number of recent events.
const MOMENTS_MAX: usize = 10;
/// The maximum width of a name.
const NAME_MAX: usize = 60;

/// Formats a cluster as tables.
pub(super) fn text(state: &State, is_ascii: bool) -> String {
    let (snapshot, now_ms) = (&state.snapshot, state.now_ms());
    let (what, name) = match &state.source {
        Source::Cluster(path) => ("cluster", path),
        Source::Record(file) => ("record", file),
    };
    let open = snapshot.jobs.values().filter(|job| job.about.stage.is_open()).count();
    let heads = [
        (what, name.clone()),
        ("at", format!("{} UTC", clock(now_ms, 0))),
        ("nodes", whole(snapshot.members.len() as u64)),
        ("jobs", format!("{}, {open} of them open", whole(snapshot.jobs.len() as u64))),
    ];
    let mut text = list(&heads.map(|(name, value)| (name, safe(&value, is_ascii))));
    text += &lined(warnings(state).into_iter().map(|warning| format!("! {warning}")), is_ascii);
    let jobs = jobs(state, is_ascii);
    if !jobs.is_empty() {
        text += "\n";
        text += &table(
            &["JOB", "STATE", "NAME", "#FOR", "#DONE", "#BEST", "#GAP", "#RATE", "#NODES", "#ENDS IN"],
            jobs,
        );
    }
    if state.job().is_some() {
        text += "\n";
        text += &lined(lines(state).into_iter().filter(|line| !line.is_empty()), is_ascii);
        text += &lined(zookeeper(state).into_iter().map(|line| format!("ZooKeeper {line}")), is_ascii);
    }
    if !state.rows.is_empty() {
        text += "\n";
        let columns = [
            "NODE", "STATE", "#BUSY", "#IDLE", "#RATE", "#TASKS", "#STOLEN", "#MEMORY", "#LOAD", "PROGRAM",
            "LABELS",
        ];
        text += &table(&columns, state.rows.iter().map(|row| cells(row, is_ascii)));
    }
    let moments: Vec<&Moment> = snapshot.moments.iter().rev().take(MOMENTS_MAX).collect();
    if !moments.is_empty() {
        text += "\n";
        text += &lined(moments.into_iter().map(|moment| told(moment, snapshot, now_ms)), is_ascii);
    }
    text
}

/// Returns the state of a cluster as JSON, for scripts; if a job was chosen, without the other jobs.
pub(super) fn json(state: &State) -> serde_json::Value {
    let only = state.chosen().map(str::to_owned);
    let mut snapshot: Snapshot = state.snapshot.clone();
    snapshot.jobs.retain(|id, _| only.as_ref().is_none_or(|only| only == id));
    // Plain data always serializes.
    serde_json::to_value(&snapshot).unwrap_or_default()
}

/// Returns the rows of the open jobs, or of the chosen one.
fn jobs(state: &State, is_ascii: bool) -> Vec<Vec<String>> {
    let chosen = state.chosen();
    let is_told = |id: &str, is_open| chosen.map_or(is_open, |chosen| chosen == id);
    let jobs = state.snapshot.jobs.iter().filter(|(id, job)| is_told(id, job.about.stage.is_open()));
    let row = |(id, job): (&String, &taskwork::view::JobNow)| {
        let about = &job.about;
        let name =
            about.record.as_ref().map_or_else(String::new, |record| fit(&record.name, NAME_MAX, is_ascii));
        vec![
            safe(id, is_ascii),
            about.stage.text().to_owned(),
            or_none(&name),
            maybe(age(job, state.now_ms()), duration),
            maybe(about.share, percent),
            maybe(about.best, exact),
            maybe(about.gap, percent),
            rate_of(job),
            about.nodes_at_work.to_string(),
            maybe(about.eta.map(|eta| eta.likely_seconds), duration),
        ]
    };
    jobs.map(row).collect()
}

fn cells(row: &Row, is_ascii: bool) -> Vec<String> {
    vec![
        fit(&row.name, NAME_MAX, is_ascii),
        row.state.text().to_owned(),
        maybe(row.pool, |pool| format!("{}/{}", pool.busy, pool.workers)),
        maybe(row.idle, percent),
        maybe(row.rate, rate),
        maybe(row.tasks, whole),
        maybe(row.stolen, whole),
        maybe(row.memory, bytes),
        maybe(row.load, number),
        maybe(row.program.as_ref(), |program| fit(program, NAME_MAX, is_ascii)),
        or_none(&safe(&row.labels, is_ascii)),
    ]
}

/// Returns a text without characters that could control a terminal.
fn safe(text: &str, is_ascii: bool) -> String {
    fit(text, usize::MAX, is_ascii)
}

fn lined(lines: impl Iterator<Item = String>, is_ascii: bool) -> String {
    lines.map(|line| safe(&line, is_ascii) + "\n").collect()
}

impl State {
    /// Returns the id of the job that the user chose.
    fn chosen(&self) -> Option<&str> {
        match &self.shown {
            super::state::Shown::One(id) => Some(id),
            super::state::Shown::Running => None,
        }
    }
}

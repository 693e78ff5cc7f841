//! Joins several records of a cluster, one for each start of an observer, to one history.

use std::{collections::BTreeSet, mem};

use serde_json::Value;
use taskwork::view::{Content, Event, Moment, Snapshot, View};

/// The maximum number of events of the cluster that are kept.
const MOMENTS_MAX: usize = 5_000;
/// The time after the end of the job for which events of the cluster are kept, in milliseconds: a lost node is detected
/// some ticks later.
const AFTER_MS: u64 = 30_000;

/// A period in which the cluster was not observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    /// Whether an observer ran, but ZooKeeper did not answer it.
    pub(super) was_observed: bool,
}

/// The periods in which a job was observed.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The time from which the whole cluster was known.
    pub(super) from_ms: Option<u64>,
    /// The last tick.
    pub(super) to_ms: Option<u64>,
    pub(super) pauses: Vec<Pause>,
    /// The records with an incomplete last line.
    pub(super) cut: Vec<String>,
}

/// The history of several records.
pub(super) struct Joined {
    pub(super) snapshot: Snapshot,
    pub(super) observed: Observed,
}

/// Joins the records of one job.
pub(super) struct Joining {
    job: String,
    /// The path of the job, and the folder of its nodes' reports.
    kept: [String; 2],
    view: View,
    /// The znodes that exist.
    there: BTreeSet<String>,
    /// The znodes seen by the present run of the observer, until it has read everything.
    seen: Option<BTreeSet<String>>,
    silent_since_ms: Option<u64>,
    over_since_ms: Option<u64>,
    moments: Vec<Moment>,
    observed: Observed,
}

impl Joining {
    pub(super) fn of(job: &str) -> Self {
        Self {
            job: job.to_owned(),
            kept: [format!("jobs/{job}"), format!("jobs/{job}/figures/")],
            view: View::keeping(Some(job.to_owned())),
            there: BTreeSet::new(),
            seen: None,
            silent_since_ms: None,
            over_since_ms: None,
            moments: Vec::new(),
            observed: Observed::default(),
        }
    }

    /// Starts the record of another run of the observer.
    pub(super) fn begin_run(&mut self) {
        if let Some(at_ms) = self.observed.to_ms {
            // The state is uncertain until the run has read everything.
            self.view.apply(&Event::of(at_ms, "", Content::Lost));
            self.seen = Some(BTreeSet::new());
        }
    }

    /// Applies an event.
    pub(super) fn take(&mut self, event: &Event) {
        match &event.content {
            Content::Data(content) => {
                self.on_present(&event.path);
                if event.path == self.kept[0] {
                    self.over_since_ms = is_over(content).then(|| self.over_since_ms.unwrap_or(event.at_ms));
                }
            }
            Content::Children(_) => self.on_present(&event.path),
            Content::Gone => {
                self.there.remove(&event.path);
                if self.is_kept(&event.path) {
                    return;
                }
            }
            Content::Tick => return self.tick(event),
            Content::Lost => {
                self.silent_since_ms.get_or_insert(event.at_ms);
            }
            Content::Found => self.found(event.at_ms),
            _ => {}
        }
        self.view.apply(event);
    }

    fn on_present(&mut self, path: &str) {
        if let Some(seen) = &mut self.seen {
            seen.insert(path.to_owned());
        }
        if !self.there.contains(path) {
            self.there.insert(path.to_owned());
        }
    }

    /// Returns whether a znode is kept after its removal: finished jobs are removed from a cluster.
    fn is_kept(&self, path: &str) -> bool {
        path == self.kept[0] || path.starts_with(&self.kept[1])
    }

    fn found(&mut self, at_ms: u64) {
        // Znodes that this run has not seen were removed in between.
        if let Some(seen) = self.seen.take() {
            let before = mem::take(&mut self.there);
            let gone: Vec<&String> = before.difference(&seen).filter(|path| !self.is_kept(path)).collect();
            for path in gone {
                self.view.apply(&Event::of(at_ms, path.as_str(), Content::Gone));
            }
            self.there = seen;
            let from_ms = self.observed.to_ms.unwrap_or(at_ms);
            self.observed.pauses.push(Pause { from_ms, to_ms: at_ms, was_observed: false });
            self.silent_since_ms = None;
        }
        if let Some(from_ms) = self.silent_since_ms.take() {
            self.observed.pauses.push(Pause { from_ms, to_ms: at_ms, was_observed: true });
        }
        self.observed.from_ms.get_or_insert(at_ms);
    }

    fn tick(&mut self, event: &Event) {
        // Two observers recorded at the same time: a period is shown once.
        if self.observed.to_ms.is_some_and(|shown| event.at_ms < shown) {
            return;
        }
        // A mixture of the end of one record and the start of the next is no state that ever existed.
        if self.seen.is_some() {
            return;
        }
        self.view.apply(event);
        self.observed.to_ms = Some(event.at_ms);
        if self.over_since_ms.is_none_or(|since| event.at_ms <= since.saturating_add(AFTER_MS)) {
            let seq = self.view.seq();
            self.moments.extend(self.view.moments().filter(|moment| moment.seq == seq).cloned());
            let surplus = self.moments.len().saturating_sub(MOMENTS_MAX);
            self.moments.drain(..surplus);
        }
    }

    /// Completes the record of a run; `cut` is its name if its last line is incomplete.
    pub(super) fn end_run(&mut self, cut: Option<String>) {
        self.observed.cut.extend(cut);
        // The run ended before it had read the cluster: the state before it stays.
        self.seen = None;
    }

    /// Returns the last state of the cluster, with the events during the job.
    pub(super) fn end(self) -> Joined {
        let Self { job, view, moments, mut observed, silent_since_ms, .. } = self;
        let mut snapshot = view.snapshot();
        // The report must not reveal other jobs.
        snapshot.jobs.retain(|id, _| *id == job);
        snapshot.moments = moments;
        if let Some((from_ms, to_ms)) = silent_since_ms.zip(observed.to_ms) {
            observed.pauses.push(Pause { from_ms, to_ms, was_observed: true });
        }
        Joined { snapshot, observed }
    }
}

/// Returns whether a job's record is in a final state.
fn is_over(content: &[u8]) -> bool {
    let record: Value = serde_json::from_slice(content).unwrap_or_default();
    matches!(record["state"].as_str(), Some("done" | "incomplete" | "failed" | "cancelled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(at_ms: u64, path: &str, content: Content) -> Event {
        Event::of(at_ms, path, content)
    }

    fn name() -> Content {
        Content::Data(Vec::new())
    }

    #[test]
    fn znodes_missing_after_restart_are_removed() {
        let mut joining = Joining::of("j");
        joining.begin_run();
        for event in [
            of(1, "drain/n1", name()),
            of(1, "jobs/j", name()),
            of(1, "jobs/k", name()),
            of(2, "", Content::Found),
            Event::tick(2),
        ] {
            joining.take(&event);
        }
        joining.end_run(None);
        joining.begin_run();
        joining.take(&Event::tick(900));
        assert_eq!(joining.observed.to_ms, Some(2), "nothing is known yet");
        for event in [of(901, "jobs/k", name()), of(950, "", Content::Found), Event::tick(1_000)] {
            joining.take(&event);
        }
        joining.end_run(Some("b.jsonl".to_owned()));
        assert_eq!(joining.there.iter().collect::<Vec<_>>(), ["jobs/k"]);
        let Joined { snapshot, observed } = joining.end();
        assert_eq!(snapshot.jobs.keys().collect::<Vec<_>>(), ["j"], "a removed job is still reported");
        let pause = Pause { from_ms: 2, to_ms: 950, was_observed: false };
        assert_eq!((observed.pauses, observed.cut), (vec![pause], vec!["b.jsonl".to_owned()]));
        assert_eq!((observed.from_ms, observed.to_ms), (Some(2), Some(1_000)));
    }

    #[test]
    fn periods_without_answer_are_reported() {
        let mut joining = Joining::of("j");
        joining.begin_run();
        for event in [
            of(1, "", Content::Found),
            of(10, "", Content::Lost),
            Event::tick(10),
            of(20, "", Content::Found),
            Event::tick(20),
            of(30, "", Content::Lost),
            Event::tick(40),
        ] {
            joining.take(&event);
        }
        joining.end_run(None);
        let pauses: Vec<(u64, u64)> =
            joining.end().observed.pauses.iter().map(|pause| (pause.from_ms, pause.to_ms)).collect();
        assert_eq!(pauses, [(10, 20), (30, 40)]);
    }
}

//! Reports of recorded jobs, without a cluster.

mod pages;
mod records;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use taskwork::view::{Content, Event, Recorder};

use super::{seen::Seen, *};

pub(crate) const JOB: &str = "j-0000000001";
/// The submission time of the jobs.
pub(crate) const SUBMITTED_MS: u64 = 1_700_000_000_000;

/// A simulated recording of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) events: Vec<Event>,
    pub(crate) at_ms: u64,
    pub(crate) name: String,
    pub(crate) key: String,
}

fn data(record: &Value) -> Content {
    Content::Data(record.to_string().into_bytes())
}

fn entry() -> Content {
    Content::Data(Vec::new())
}

impl Recorded {
    /// Returns a cluster without nodes and jobs, ten seconds before the job is submitted.
    pub(crate) fn new() -> Self {
        let at_ms = SUBMITTED_MS - 10_000;
        let mut recorded =
            Self { events: Vec::new(), at_ms, name: "a job".to_owned(), key: "first".to_owned() };
        recorded.found();
        recorded
    }

    pub(crate) fn see(&mut self, path: impl Into<String>, content: Content) {
        self.events.push(Event::of(self.at_ms, path, content));
    }

    /// Records that everything was read.
    fn found(&mut self) {
        self.see("", Content::Found);
        self.tick();
    }

    fn tick(&mut self) {
        self.events.push(Event::tick(self.at_ms));
    }

    /// Advances the time by some seconds, with a tick each.
    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.at_ms += 1_000;
            self.tick();
        }
    }

    pub(crate) fn job(&mut self, id: &str, state: &str) {
        let finished_ms = (state == "done").then_some(self.at_ms);
        let record = json!({
            "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": self.name,
            "submitter": "somebody", "key": self.key, "state": state, "attempt": 1, "attempts_max": 3, "root": "",
            "shared_chunks": 0, "submitted_ms": SUBMITTED_MS, "finished_ms": finished_ms, "reason": null, "lost": [],
        });
        self.see(format!("jobs/{id}"), data(&record));
        self.see(format!("jobs/{id}/attempts/1/parked"), Content::Children(0));
    }

    /// Adds a member that works on a job.
    pub(crate) fn join(&mut self, id: &str, node: &str) {
        let member = json!({
            "format": 2, "node": node, "address": "127.0.0.1:7", "fingerprint": "f".repeat(64), "workers": 2,
            "labels": { "zone": "a" }, "program": "tree", "program_version": "1", "started_ms": 1,
        });
        self.see(format!("members/{node}"), data(&member));
        self.see(format!("jobs/{id}/attempts/1/outputs/{node}"), entry());
        self.report(id, node, 0, None);
    }

    /// Records a report of a node.
    pub(crate) fn report(&mut self, id: &str, node: &str, worked: u64, best: Option<f64>) {
        let best = best.map(|best| json!({ "value": best, "sense": "min", "name": "incumbent" }));
        let report = json!({
            "format": 2, "attempt": 1, "last": false, "at_ms": self.at_ms,
            "figures": {
                "worked": worked, "tasks": 10, "requests": 4, "steals": 3, "stolen_tasks": 2, "transactions": 5,
                "retries": 1, "done_attos": worked * 1_000_000_000_000_000, "outlook": { "AtLeast": 30.0 },
                "times": { "searching_ns": 3_000_000_000_u64, "looking_ns": 1_000_000_000 },
            },
            "requests": { "reads": 1, "writes": 2, "multis": 3, "failed_multis": 4 },
            "pool": { "workers": 2, "busy": 1, "queued": 3, "waiting": 0, "hungry": 0 },
            "best": best,
            "timeline": [
                { "at_ms": SUBMITTED_MS, "kind": "takes_part", "detail": "" },
                { "at_ms": self.at_ms, "kind": "improved", "detail": "incumbent" },
            ],
        });
        self.see(format!("jobs/{id}/figures/{node}"), data(&report));
    }

    /// Runs a job for a minute on two nodes: a third one joins, one is lost; each second 10 units are done, and the
    /// best solution is 50 after 5 s, 40.2 after 20 s, 40 after 40 s.
    pub(crate) fn run(&mut self, id: &str) {
        self.pass(10);
        self.job(id, "running");
        self.join(id, "n1");
        self.join(id, "n2");
        for second in 1..=60 {
            self.pass(1);
            match second {
                20 => self.join(id, "n3"),
                30 => self.see("members/n2", Content::Gone),
                _ => {}
            }
            let best = match second {
                ..5 => None,
                5..20 => Some(50.0),
                20..40 => Some(40.2),
                _ => Some(40.0),
            };
            self.report(id, "n1", second * 10, best);
        }
        self.job(id, "done");
        self.pass(5);
    }

    /// Writes the record, and starts the next one.
    pub(crate) fn write(&mut self, file: &Path) -> PathBuf {
        let mut recorder = Recorder::new(Vec::new(), u64::MAX);
        for event in self.events.drain(..) {
            recorder.note(&event).unwrap();
        }
        fs::write(file, recorder.finish().unwrap()).unwrap();
        file.to_owned()
    }
}

/// Reads the job from a record.
fn seen(record: &Path) -> Seen {
    record::read(record, JOB).unwrap()
}

fn refused(record: &Path, id: &str) -> String {
    record::read(record, id).map(drop).unwrap_err().to_string()
}

/// Returns the data embedded in a page.
pub(crate) fn held(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

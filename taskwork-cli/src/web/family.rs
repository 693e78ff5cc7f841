//! Metrics before they are written as text.

use taskwork::Histogram;

/// Metrics of one name.
#[derive(Debug)]
pub struct Family {
    /// Without the prefix, and without the suffix of counters.
    pub name: &'static str,
    /// A sentence for people.
    pub help: &'static str,
    /// How its numbers change.
    pub kind: Kind,
    /// The values, by their labels. What is not known has none.
    pub samples: Vec<(Labels, Value)>,
}

/// How the numbers of a metric change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that goes up and down.
    Gauge,
    /// A number that only grows.
    Counter,
    /// Durations by classes.
    Histogram,
}

/// The label with the id of a job. Prometheus gives each target a label `job`, and would rename ours.
pub const JOB: &str = "job_id";

/// What `handling_seconds` are.
pub const HANDLING: &str =
    "Time in which workers had a task and ran the runtime's code: it had ended, or was written.";

/// The labels of a sample, with their values.
pub type Labels = Vec<(&'static str, String)>;

/// The value of a sample.
#[derive(Debug)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Durations.
    Times(Histogram),
}

//! Metrics before formatting.

use taskwork::report::Histogram;

use crate::version::COMMIT;

/// The metrics of one name.
#[derive(Debug)]
pub struct Family {
    /// Without the prefix, and without the suffix of counters.
    pub name: &'static str,
    /// A one-sentence description.
    pub help: &'static str,
    /// The type of the metric.
    pub kind: Kind,
    /// The values with their labels. Unknown values are omitted.
    pub samples: Vec<(Labels, Value)>,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that increases and decreases.
    Gauge,
    /// A number that only increases.
    Counter,
    /// Durations in classes.
    Histogram,
}

/// The label with the id of a job. Prometheus gives each target a label `job`, and would rename ours.
pub const JOB: &str = "job_id";

/// The description of `handling_seconds`.
pub const HANDLING: &str = "Time of workers in the runtime's code to complete or write a task.";

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

/// Returns the version and the commit of the runtime in this process.
pub fn build_info() -> Family {
    let labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("commit", COMMIT.to_owned())];
    let samples = vec![(labels, Value::Number(1.0))];
    let help = "The version of the runtime, and the commit that it was built from. Always 1.";
    Family { name: "build_info", help, kind: Kind::Gauge, samples }
}

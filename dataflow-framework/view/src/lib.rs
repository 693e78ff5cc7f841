//! Views of a workflow: its calls by task and state, their graph, run times, critical path and failures,
//! and explanations of why calls wait.
//!
//! `dataflow-framework` fills them in where the program runs. The program's own command shows them, and so does
//! `taskwork job`, which does not know the program. This crate has no threads, clock or I/O. All data is bounded, and
//! omitted items are counted.

mod summary;
mod calls;
mod diagram;
mod layout;
mod dot;
mod svg;
mod trace;
mod timeline;
mod critical_path;
mod failures;
mod explanation;
mod observation;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use self::{
    calls::{CALLS_MAX, Call, Calls, READS_MAX, State},
    critical_path::{CriticalPath, PathStep},
    diagram::{Arrow, Diagram, Group},
    explanation::{Explanation, Input, Place},
    failures::{FAILURES_MAX, FailedCall},
    observation::Observation,
    summary::{Summary, TaskSummary},
    trace::{Instant, SPANS_MAX, Span, Trace},
};

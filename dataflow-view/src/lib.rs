//! What people see of a workflow: its calls by task and state, their graph, when each ran, and why one waits.
//!
//! `dataflow-framework` fills these in where the program runs; a program's own command shows them, and so does
//! `taskwork job`, which does not know the program. Here is neither a thread nor a clock nor I/O, and everything has a
//! limit: what is beyond it is counted.

mod units;
mod summary;
mod calls;
mod diagram;
mod layout;
mod dot;
mod svg;
mod trace;
mod explanation;
mod observation;

pub use self::{
    calls::{CALLS_MAX, Call, Calls, READS_MAX, State},
    diagram::{Arrow, Diagram, Group},
    explanation::{Explanation, Input, Place},
    observation::Observation,
    summary::{Summary, TaskSummary},
    trace::{Instant, SPANS_MAX, Span, Trace},
};

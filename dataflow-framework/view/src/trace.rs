//! The run times and nodes of calls, as a trace for browsers.
//!
//! The times are those of the program's clock. A run ends when the program receives its outcome, so runs on other nodes
//! appear later by the latency of that message. Durations are measured where the call ran.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The maximum number of runs in a trace. Each takes about 50 bytes.
pub const SPANS_MAX: usize = 50_000;

/// The run times of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The names of the tasks.
    pub tasks: Vec<String>,
    /// The names of the nodes.
    pub nodes: Vec<String>,
    /// The runs, in the order of their completion.
    pub spans: Vec<Span>,
    /// The events of nodes.
    pub instants: Vec<Instant>,
    /// The number of runs that were not recorded because of the limit.
    pub omitted: u64,
}

/// A run of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The number of the call.
    pub call: u64,
    /// The position of its task's name.
    pub task: u16,
    /// The position of its node's name.
    pub node: u16,
    /// The number of the node's worker.
    pub worker: u16,
    /// The time of completion since the start of the program, in microseconds.
    pub end_us: u64,
    /// The time to move its inputs to the node, in microseconds.
    pub transfer_us: u64,
    /// The time that it then waited for a worker, in microseconds.
    pub wait_us: u64,
    /// The run time, in microseconds.
    pub run_us: u64,
    /// Whether it completed successfully.
    pub is_well: bool,
}

/// An event of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instant {
    /// The time since the start of the program, in microseconds.
    pub at_us: u64,
    /// The position of the node's name.
    pub node: u16,
    /// The kind of event.
    pub what: String,
}

impl Trace {
    /// Returns it in the Trace Event Format, for `chrome://tracing` and <https://ui.perfetto.dev>: a process for each
    /// node, in it a thread for each worker, with a slice for each run.
    pub fn chrome(&self) -> Value {
        let mut events = Vec::new();
        for (node, name) in self.nodes.iter().enumerate() {
            events.push(json!({ "ph": "M", "name": "process_name", "pid": node, "args": { "name": name } }));
        }
        let workers: BTreeSet<_> = self.spans.iter().map(|span| (span.node, span.worker)).collect();
        for (node, worker) in workers {
            let name = format!("worker {worker}");
            events.push(
                json!({ "ph": "M", "name": "thread_name", "pid": node, "tid": worker, "args": { "name": name } }),
            );
        }
        events.extend(self.spans.iter().map(|span| self.slice(span)));
        events.extend(self.instants.iter().map(|Instant { at_us, node, what }| {
            let name =
                format!("{}: {what}", self.nodes.get(usize::from(*node)).map_or("a node", String::as_str));
            json!({ "ph": "i", "s": "g", "name": name, "cat": "node", "ts": at_us, "pid": node, "tid": 0 })
        }));
        json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": { "runs_not_recorded": self.omitted } })
    }

    fn slice(&self, span: &Span) -> Value {
        let Span { call, task, node, worker, end_us, transfer_us, wait_us, run_us, is_well } = *span;
        let mut slice = json!({
            "ph": "X",
            "name": self.tasks.get(usize::from(task)).map_or("", String::as_str),
            "cat": "call",
            "ts": end_us.saturating_sub(run_us),
            "dur": run_us,
            "pid": node,
            "tid": worker,
            "args": { "call": call, "transfer_us": transfer_us, "wait_us": wait_us },
        });
        if !is_well {
            slice["cname"] = json!("terrible");
            slice["args"]["failed"] = json!(true);
        }
        slice
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Instant, Span, Trace};

    #[test]
    fn trace_has_row_per_worker_with_its_runs() {
        let span = Span {
            call: 12,
            task: 0,
            node: 1,
            worker: 3,
            end_us: 1_000,
            transfer_us: 40,
            wait_us: 5,
            run_us: 300,
            is_well: true,
        };
        let trace = Trace {
            tasks: vec!["multiply".to_owned()],
            nodes: vec!["n-1".to_owned(), "n-2".to_owned()],
            spans: vec![span, Span { call: 13, is_well: false, ..span }],
            instants: vec![Instant { at_us: 900, node: 1, what: "lost".to_owned() }],
            omitted: 0,
        };
        let chrome = trace.chrome();
        let events = chrome["traceEvents"].as_array().expect("it is a list");
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        assert_eq!(of("M").len(), 3, "two nodes, and one worker that ran something");
        let expected = json!({
            "ph": "X", "name": "multiply", "cat": "call", "ts": 700, "dur": 300, "pid": 1, "tid": 3,
            "args": { "call": 12, "transfer_us": 40, "wait_us": 5 },
        });
        assert_eq!(*of("X")[0], expected);
        assert_eq!(of("X")[1]["args"]["failed"], true);
        assert_eq!((&of("i")[0]["name"], &of("i")[0]["ts"]), (&json!("n-2: lost"), &json!(900)));
    }
}

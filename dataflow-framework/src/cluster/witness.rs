//! The status of the program for observers of the job: the calls by task and state while the program runs,
//! their graph at its end, and answers to queries.

use dataflow_view::{Calls, Observation, Summary, Trace};
use serde_json::{Value, json};
use taskwork::{Load, Sight, Witness};

use super::workflow_node::WorkflowNode;

/// The maximum number of node events in an answer.
const INSTANTS_ANSWERED_MAX: usize = 500;

/// The maximum number of runs in an answer, which bounds its size: those that ended last.
const SPANS_ANSWERED_MAX: usize = 2_000;

/// Returns the status of a running program.
pub(super) fn of_running(generation: u64, summary: &Summary) -> Sight {
    Sight { rank: generation, content: json!({ "workflow": { "summary": summary } }) }
}

/// Returns the status of a program that has ended.
pub(super) fn of_ended(generation: u64, Observation { summary, calls, .. }: &Observation) -> Sight {
    let graph = calls.as_ref().map(Calls::diagram);
    Sight { rank: generation, content: json!({ "workflow": { "summary": summary, "graph": graph } }) }
}

impl Witness for WorkflowNode {
    fn sight(&self) -> Option<Sight> {
        self.shows()
    }

    fn answer(&self, question: &Value) -> Option<Value> {
        let (engine, _) = self.engine()?;
        if let Some(call) = question["task"].as_u64() {
            return Some(json!({ "task": engine.explain(call) }));
        }
        match question.as_str()? {
            "graph" => Some(match engine.observation().calls {
                Some(calls) => json!({ "graph": calls.diagram() }),
                None => json!({ "not_recorded": "--graph" }),
            }),
            "trace" => Some(match engine.observation().trace {
                Some(trace) => json!({ "trace": latest(trace) }),
                None => json!({ "not_recorded": "--trace" }),
            }),
            _ => None,
        }
    }

    fn load(&self) -> Load {
        self.queue.load()
    }
}

/// Keeps only the runs that ended last.
fn latest(mut trace: Trace) -> Trace {
    let too_many = trace.spans.len().saturating_sub(SPANS_ANSWERED_MAX);
    trace.spans.drain(..too_many);
    trace.omitted += too_many as u64;
    let too_many = trace.instants.len().saturating_sub(INSTANTS_ANSWERED_MAX);
    trace.instants.drain(..too_many);
    trace
}

//! The status of the program for observers of the job: the calls by task and state while the program runs,
//! their graph at its end, and documents on request.

use dataflow_view::{Observation, Summary, Trace};
use serde_json::json;
use taskwork::{
    companion::{JobStatus, Load, StatusProvider},
    display::{Document, Format, JobDisplay, Offer},
};

use super::workflow_node::WorkflowNode;

/// The maximum number of node events in an answer.
const INSTANTS_ANSWERED_MAX: usize = 500;

/// The maximum number of runs in an answer, which bounds its size: those that ended last.
const SPANS_ANSWERED_MAX: usize = 2_000;

/// Returns the status of a running program.
pub(super) fn of_running(generation: u64, summary: &Summary) -> JobStatus {
    let offers = [
        Offer::new("call", "why a call waits, or how it completed; calls are numbered from 0")
            .argument("NUMBER"),
        Offer::new("graph.svg", "the graph of the calls, for browsers"),
        Offer::new("graph.dot", "the graph of the calls, for Graphviz"),
        Offer::new("timeline.svg", "the timeline of the workers; needs submit --trace"),
        Offer::new("critical-path", "the longest chain of dependent calls; needs submit --trace"),
        Offer::new("trace.json", "the latest runs of calls, for ui.perfetto.dev; needs submit --trace"),
    ];
    JobStatus { rank: generation, display: offers.into_iter().fold(summary.display(), JobDisplay::document) }
}

/// Returns the status of a program that has ended.
pub(super) fn of_ended(generation: u64, observation: &Observation) -> JobStatus {
    let Observation { summary, calls, trace } = observation;
    let path = observation.critical_path();
    let display = path.iter().fold(summary.display(), |display, path| path.add_to(display));
    let timeline = trace.iter().map(Trace::timeline_picture);
    let pictures = timeline.chain(calls.iter().flat_map(|calls| calls.diagram().pictures()));
    JobStatus { rank: generation, display: pictures.fold(display, JobDisplay::picture) }
}

impl StatusProvider for WorkflowNode {
    fn status(&self) -> Option<JobStatus> {
        self.shows()
    }

    fn document(&self, name: &str, argument: Option<&str>) -> Option<Result<Document, String>> {
        let (engine, _) = self.engine()?;
        let recorded = |option: &str| format!("it must be requested at the submission, by {option}");
        let diagram =
            || engine.observation().calls.map(|calls| calls.diagram()).ok_or_else(|| recorded("--graph"));
        let trace = || engine.observation().trace.ok_or_else(|| recorded("--trace"));
        Some(match name {
            "call" => match argument.and_then(|argument| argument.parse().ok()) {
                None => Err("--about takes the number of a call, such as 12".to_owned()),
                Some(call) => {
                    let explanation = engine.explain(call);
                    Ok(Document::new(Format::Text, explanation.to_string()).with_data(json!(explanation)))
                }
            },
            "graph.svg" => diagram().map(|diagram| Document::new(Format::Svg, diagram.svg())),
            "graph.dot" => {
                diagram().map(|diagram| Document::new(Format::Dot, diagram.dot()).with_data(json!(diagram)))
            }
            "trace.json" => trace().map(|trace| Document::json(latest(trace).chrome())),
            "timeline.svg" => trace().map(|trace| Document::new(Format::Svg, trace.timeline())),
            "critical-path" => {
                let path = engine.observation().critical_path();
                let reason = || recorded("--trace") + "; after 200,000 calls or 50,000 runs it is unknown";
                path.ok_or_else(reason)
                    .map(|path| Document::new(Format::Text, path.table().to_string()).with_data(json!(path)))
            }
            _ => Err("there is no such document".to_owned()),
        })
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

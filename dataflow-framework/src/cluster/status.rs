//! The status of the program for observers of the job: the calls by task and state while the program runs,
//! their graph at its end, and documents on request.

use dataflow_view::{Diagram, Observation, Summary, Trace};
use serde_json::json;
use taskwork::{
    companion::{JobStatus, Load, StatusProvider},
    display::{Document, Format, JobDisplay, Offer, WorkAhead},
};

use super::workflow_node::WorkflowNode;

/// The maximum number of node events in an answer.
const INSTANTS_ANSWERED_MAX: usize = 500;

/// The maximum number of runs in an answer, which bounds its size: those that ended last.
const SPANS_ANSWERED_MAX: usize = 2_000;

/// Returns the status of a running program.
pub(super) fn of_running(generation: u64, summary: &Summary, ahead: WorkAhead) -> JobStatus {
    let offers = [
        Offer::new("call", "why a call waits, or how it completed; calls are numbered from 0")
            .argument("NUMBER"),
        Offer::new("graph.svg", "the graph of the calls").shown(),
        Offer::new("graph.dot", "the graph of the calls, for Graphviz"),
        Offer::new("timeline.svg", "the timeline of the workers").shown(),
        Offer::new("critical-path", "the longest chain of dependent calls"),
        Offer::new("trace.json", "the latest runs of calls, for ui.perfetto.dev"),
    ];
    let display = summary.display().ahead(ahead);
    JobStatus { rank: generation, display: offers.into_iter().fold(display, JobDisplay::document) }
}

/// Returns the status of a program that has ended.
pub(super) fn of_ended(generation: u64, observation: &Observation) -> JobStatus {
    let path = observation.critical_path();
    let display = path.iter().fold(observation.summary.display(), |display, path| path.add_to(display));
    let timeline = observation.timeline_picture().into_iter();
    let pictures = timeline.chain(observation.diagram().into_iter().flat_map(Diagram::pictures));
    JobStatus { rank: generation, display: pictures.fold(display, JobDisplay::picture) }
}

impl StatusProvider for WorkflowNode {
    fn status(&self) -> Option<JobStatus> {
        self.shows()
    }

    fn document(&self, name: &str, argument: Option<&str>) -> Option<Result<Document, String>> {
        let (engine, _) = self.engine()?;
        let recorded = |option: &str| format!("it must be requested at the submission, by {option}");
        let diagram = || engine.observation().diagram().ok_or_else(|| recorded("--graph"));
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
            "timeline.svg" => {
                let timeline = engine.observation().timeline().ok_or_else(|| recorded("--trace"));
                timeline.map(|timeline| Document::new(Format::Svg, timeline))
            }
            "critical-path" => {
                let path = engine.observation().critical_path();
                let reason = || {
                    "it is unknown after 5,000 runs, with submit --trace after 50,000, and after 200,000 calls".to_owned()
                };
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

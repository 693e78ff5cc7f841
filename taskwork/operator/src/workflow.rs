//! `taskwork job ID` with `--task`, `--graph` or `--trace`: the calls of a workflow.
//!
//! While the job runs, the node of the program answers. Afterwards, the graph is the last one that the node published.

use std::{path::PathBuf, time::Duration};

use dataflow_view::{Diagram, Explanation, Trace};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use taskwork::{JobId, client::JobDetails};
use taskwork_cli::{Failure, write_graph, write_trace};

use super::Desk;

/// The maximum time to wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The views of a workflow.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only explain why this call of a workflow waits, or how it completed. Calls are numbered from 0 in the order in
    /// which the program makes them; imported data counts, too.
    #[arg(long, value_name = "NUMBER")]
    task: Option<u64>,
    /// Only write the graph of a workflow's calls to this file: as SVG if its name ends with .svg, otherwise as DOT
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Only write the run times of a workflow's most recently completed calls to this file. The job must have been
    /// submitted with --trace and still run
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl Arguments {
    pub(super) fn is_given(&self) -> bool {
        self.task.is_some() || self.graph.is_some() || self.trace.is_some()
    }
}

pub(super) async fn run(desk: &Desk, id: &JobId, arguments: &Arguments) -> Result<(), Failure> {
    let job = desk.client.job(id).await?;
    if job.sight().is_none() {
        let over = job.record.state.is_over();
        let more = if over { "" } else { ", or has not started yet: try again in some seconds" };
        return Err(Failure::failed(format!("job {id} is no workflow{more}")));
    }
    if let Some(call) = arguments.task {
        let explanation: Explanation = answered(desk, id, json!({ "task": call }), "task").await?;
        desk.say(|| json!(explanation), || explanation.to_string());
    }
    if let Some(path) = &arguments.graph {
        let diagram = graph(desk, id, &job).await?;
        write_graph(path, &diagram)?;
        desk.say(|| json!(diagram), || format!("{} calls in {}", diagram.calls(), path.display()));
    }
    if let Some(path) = &arguments.trace {
        let trace: Trace = answered(desk, id, json!("trace"), "trace").await?;
        write_trace(path, &trace)?;
        desk.say(
            || json!({ "runs": trace.spans.len(), "earlier": trace.omitted }),
            || {
                format!(
                    "{} runs in {}, {} earlier ones are not",
                    trace.spans.len(),
                    path.display(),
                    trace.omitted
                )
            },
        );
    }
    Ok(())
}

/// Returns the graph of a job's calls: the present one, or the last one of a finished job.
async fn graph(desk: &Desk, id: &JobId, job: &JobDetails) -> Result<Diagram, Failure> {
    if !job.record.state.is_over() {
        return answered(desk, id, json!("graph"), "graph").await;
    }
    job.sight().as_ref().and_then(Diagram::shown).ok_or_else(|| {
        Failure::failed(format!(
            "the node on which the program of job {id} ran has left no graph: it was lost"
        ))
    })
}

/// Queries the node of the program.
async fn answered<T: DeserializeOwned>(
    desk: &Desk,
    id: &JobId,
    question: Value,
    part: &str,
) -> Result<T, Failure> {
    let mut answer = desk.client.ask_about(id, question, ANSWER_TIMEOUT).await?;
    if let Some(option) = answer["not_recorded"].as_str() {
        return Err(Failure::usage(format!(
            "job {id} records no {part}: this must be requested at its submission, by {option}"
        )));
    }
    T::deserialize(answer[part].take())
        .map_err(|error| Failure::failed(format!("the answer about job {id} cannot be parsed: {error}")))
}

//! The options for observing a program: its graph, its trace, its tasks.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use clap::Args;
use dataflow_view::{Observation, Summary};
use taskwork::Progress;
use taskwork_cli::{Calls, Failure, Shown, Telling, check_outputs, write_graph, write_trace};

use crate::Observe;

/// The requested observations of a program.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Looking {
    /// Write the graph of the calls into this file at the end: as SVG if its name ends with .svg, otherwise as
    /// DOT. Large graphs are grouped by task and level. The folder must exist.
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Write a trace into this file: when and where each call ran. View it at ui.perfetto.dev or in the tracing
    /// page of Chrome
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print a table of the tasks at the end, to standard error: calls, times, failures, bytes moved; with
    /// --json also as `tasks` of the result, if that is an object
    #[arg(long)]
    summary: bool,
    /// Show each task in the line of progress
    #[arg(long)]
    by_task: bool,
}

impl Looking {
    /// Returns the data to record.
    pub(super) fn observe(&self) -> Observe {
        Observe { graph: self.graph.is_some(), trace: self.trace.is_some() }
    }

    /// Rejects options that need calls to run in parallel with the program.
    pub(super) fn refuse_sequential(&self) -> Result<(), Failure> {
        if self.graph.is_some() || self.trace.is_some() || self.summary {
            return Err(Failure::usage(
                "a sequential run records nothing: leave --sequential out, or --graph, --trace and --summary",
            ));
        }
        Ok(())
    }

    /// Checks that the files can be written at the end.
    pub(super) fn check(&self) -> Result<(), Failure> {
        check_outputs(&[], &[("--graph", self.graph.as_deref()), ("--trace", self.trace.as_deref())])
    }

    /// Returns the formatter of the line of progress and the columns of the log.
    pub(super) fn telling(&self) -> Telling {
        let of = if self.by_task { Summary::line_by_task } else { Summary::line };
        Telling::new(move |progress| line(progress, of)).calls(|progress| {
            let summary = progress.sight.as_ref().and_then(Summary::shown);
            summary.as_ref().map(calls)
        })
    }

    /// Writes the files, and prints the table.
    pub(super) fn write(&self, Observation { summary, calls, trace }: &Observation) -> Result<(), Failure> {
        if let (Some(path), Some(calls)) = (&self.graph, calls) {
            write_graph(path, &calls.diagram())?;
        }
        if let (Some(path), Some(trace)) = (&self.trace, trace) {
            write_trace(path, trace)?;
        }
        if self.summary {
            // A closed standard error must not lose the result.
            let _ = io::stderr().write_all(summary.table().as_bytes());
        }
        Ok(())
    }

    /// Adds the tasks to the result for scripts.
    pub(super) fn add(&self, observation: &Observation, shown: &mut Shown) {
        if let (true, Some(object)) = (self.summary, shown.json.as_object_mut()) {
            object.insert("tasks".to_owned(), observation.summary.json());
        }
    }
}

/// Returns the calls for the columns of the log.
pub(super) fn calls(summary: &Summary) -> Calls {
    let total = summary.total();
    let mut calls = Calls::default();
    (calls.made, calls.ended, calls.running) = (total.calls(), total.ended, total.running);
    (calls.waiting, calls.failed) = (total.waiting + total.ready, total.failed);
    calls
}

/// Formats a line of progress from the observations of the program's node.
fn line(progress: &Progress, of: fn(&Summary) -> String) -> String {
    let summary = progress.sight.as_ref().and_then(Summary::shown);
    let seconds = progress.elapsed.as_secs();
    let elapsed = format!("{}:{:02}", seconds / 60, seconds % 60);
    summary.map_or_else(
        || format!("the program is starting; {elapsed}"),
        |summary| format!("{}; {elapsed}", of(&summary)),
    )
}

//! The options for observing a program: its graph, its trace, its tasks.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use dataflow_view::{Diagram, Observation, Summary};
use taskwork::{
    Progress,
    display::{Cell, Unit},
};
use taskwork_cli::{Failure, LogColumn, ProgressDisplay, Shown, check_outputs, write_output};

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
    pub(super) fn display(&self) -> ProgressDisplay {
        let of = if self.by_task { Summary::line_by_task } else { Summary::line };
        let columns = [("calls", 8), ("ended", 8), ("running", 8), ("waiting", 8), ("failed", 7)];
        let columns = columns.map(|(name, width)| LogColumn::new(name, Unit::Count, width));
        ProgressDisplay::new(move |progress| line(progress, of)).without_work().columns(
            columns.to_vec(),
            |progress| {
                let summary = progress.display.as_ref().and_then(Summary::of_display);
                summary.map_or_else(Vec::new, |summary| log_values(&summary))
            },
        )
    }

    /// Writes the files, and prints the table.
    pub(super) fn write(&self, observation: &Observation) -> Result<(), Failure> {
        let Observation { summary, trace, .. } = observation;
        if let (Some(path), Some(diagram)) = (&self.graph, observation.diagram()) {
            write_graph(path, &diagram)?;
        }
        if let (Some(path), Some(trace)) = (&self.trace, trace) {
            write_output(path, &trace.chrome().to_string())?;
        }
        if self.summary {
            // A closed standard error must not lose the result.
            let _ = io::stderr().write_all(summary.table().to_string().as_bytes());
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

/// Returns the values of the columns of the log.
pub(super) fn log_values(summary: &Summary) -> Vec<Option<Cell>> {
    let total = summary.total();
    let waiting = total.waiting + total.ready;
    [total.calls(), total.ended, total.running, waiting, total.failed]
        .map(|calls| Some(calls.into()))
        .to_vec()
}

/// Writes the graph of the calls: as SVG if the name of the file ends with `.svg`, otherwise as DOT.
fn write_graph(path: &Path, diagram: &Diagram) -> Result<(), Failure> {
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    write_output(path, &if is_svg { diagram.svg() } else { diagram.dot() })
}

/// Formats a line of progress from the observations of the program's node.
fn line(progress: &Progress, of: fn(&Summary) -> String) -> String {
    let summary = progress.display.as_ref().and_then(Summary::of_display);
    let seconds = progress.elapsed.as_secs();
    let elapsed = format!("{}:{:02}", seconds / 60, seconds % 60);
    summary.map_or_else(
        || format!("the program is starting; {elapsed}"),
        |summary| format!("{}; {elapsed}", of(&summary)),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn graph_format_depends_on_file_extension() {
        let folder = tempfile::tempdir().unwrap();
        for (name, begins) in [("a.svg", "<svg "), ("a.SVG", "<svg "), ("a.dot", "digraph"), ("a", "digraph")]
        {
            let path = folder.path().join(name);
            write_graph(&path, &Diagram::default()).unwrap();
            assert!(fs::read_to_string(&path).unwrap().starts_with(begins), "{name}");
        }
        let failure = write_graph(&folder.path().join("no/a.svg"), &Diagram::default()).unwrap_err();
        assert!(failure.to_string().contains("no/a.svg cannot be written"), "{failure}");
    }
}

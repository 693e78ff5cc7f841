//! Output files with views of a workflow: its graph as DOT or SVG, its trace.

use std::path::Path;

use dataflow_view::{Diagram, Trace};

use crate::{Failure, outputs::write_output};

/// Writes the graph of a workflow's calls: as SVG if the name of the file ends with `.svg`, otherwise as DOT.
///
/// # Errors
/// If the file cannot be written.
pub fn write_graph(path: &Path, diagram: &Diagram) -> Result<(), Failure> {
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    write_output(path, &if is_svg { diagram.svg() } else { diagram.dot() })
}

/// Writes the trace of a workflow's calls, for `chrome://tracing` and <https://ui.perfetto.dev>.
///
/// # Errors
/// If the file cannot be written.
pub fn write_trace(path: &Path, trace: &Trace) -> Result<(), Failure> {
    write_output(path, &trace.chrome().to_string())
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

//! The progress display that a program defines for its jobs.

use std::fmt;

use taskwork::Progress;

use super::{columns::Columns, numbers};
use crate::{prepared::Observe, watch};

/// The display of a running job: the progress line, and the columns of the log.
pub struct Telling {
    pub(crate) line: Read<String>,
    /// Also called with the progress.
    pub(crate) observe: Option<Observe>,
    unit: &'static str,
    reader: Reader,
}

/// The source of the program's own columns.
enum Reader {
    Nothing,
    Search(Read<Quality>),
    Calls(Read<Option<Calls>>),
}

/// Derives a value from the progress.
type Read<T> = Box<dyn Fn(&Progress) -> T + Send>;

/// The quality of the best solution of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quality {
    /// The cost of the best solution so far.
    pub best: Option<String>,
    /// A bound that no solution improves on.
    pub bound: Option<String>,
    /// The distance between them, as a share of the cost.
    pub gap: Option<f64>,
}

impl Quality {
    /// Creates it from the text of the cost, and a bound in the same unit.
    pub fn new(best: Option<&str>, bound: Option<f64>, gap: Option<f64>) -> Self {
        let best = best.map(numbers::word);
        let bound = bound.filter(|bound| bound.is_finite()).map(numbers::number);
        Self { best, bound, gap: gap.filter(|gap| !gap.is_nan()) }
    }
}

/// The numbers of a workflow's calls by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// All calls made by the program.
    pub made: u64,
    /// The completed calls.
    pub ended: u64,
    /// The running calls.
    pub running: u64,
    /// The calls that wait for data or for a worker.
    pub waiting: u64,
    /// The failed calls.
    pub failed: u64,
}

/// The values of the program's own columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Own {
    #[default]
    Nothing,
    Search(Quality),
    Calls(Option<Calls>),
}

impl Telling {
    /// Creates a display with the columns common to all jobs. `line` formats the progress line.
    pub fn new(line: impl Fn(&Progress) -> String + Send + 'static) -> Self {
        Self { line: Box::new(line), observe: None, unit: "units", reader: Reader::Nothing }
    }

    /// Sets the name of the unit of work: one word, such as `states`.
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Adds the columns of a search for the best solution.
    #[must_use]
    pub fn search(mut self, quality: impl Fn(&Progress) -> Quality + Send + 'static) -> Self {
        self.reader = Reader::Search(Box::new(quality));
        self
    }

    /// Adds the columns of a workflow; `calls` returns `None` until its state is known.
    #[must_use]
    pub fn calls(mut self, calls: impl Fn(&Progress) -> Option<Calls> + Send + 'static) -> Self {
        self.reader = Reader::Calls(Box::new(calls));
        self
    }

    pub(super) fn columns(&self) -> Columns {
        match self.reader {
            Reader::Nothing => Columns::work(self.unit),
            Reader::Search(_) => Columns::search(self.unit),
            Reader::Calls(_) => Columns::calls(),
        }
    }

    pub(super) fn own(&self, progress: &Progress) -> Own {
        match &self.reader {
            Reader::Nothing => Own::Nothing,
            Reader::Search(quality) => Own::Search(quality(progress)),
            Reader::Calls(calls) => Own::Calls(calls(progress)),
        }
    }

    /// Returns the values if they belong to its columns, or else empty ones.
    pub(super) fn fitting(&self, known: Own) -> Own {
        match (&self.reader, known) {
            (Reader::Nothing, _) => Own::Nothing,
            (Reader::Search(_), Own::Search(quality)) => Own::Search(quality),
            (Reader::Search(_), _) => Own::Search(Quality::default()),
            (Reader::Calls(_), Own::Calls(calls)) => Own::Calls(calls),
            (Reader::Calls(_), _) => Own::Calls(None),
        }
    }
}

impl Default for Telling {
    /// Returns the display of a job without its own columns.
    fn default() -> Self {
        Self::new(watch::line_of)
    }
}

impl fmt::Debug for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").field("unit", &self.unit).finish_non_exhaustive()
    }
}

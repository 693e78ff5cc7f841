//! What a program tells of its jobs while they run.

use std::fmt;

use taskwork::Progress;

use super::{columns::Columns, numbers};
use crate::{prepared::Observe, watch};

/// How people are told of a program's job while it runs: in one line that changes, and in the columns of the log.
pub struct Telling {
    pub(crate) line: Read<String>,
    /// Also called with the progress.
    pub(crate) observe: Option<Observe>,
    unit: &'static str,
    reader: Reader,
}

/// How the columns of its own are read.
enum Reader {
    Nothing,
    Search(Read<Quality>),
    Calls(Read<Option<Calls>>),
}

/// Reads something from the progress.
type Read<T> = Box<dyn Fn(&Progress) -> T + Send>;

/// How good the best solution of a search is.
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
    /// Creates it from the text of a cost and a bound in the same unit.
    pub fn new(best: Option<&str>, bound: Option<f64>, gap: Option<f64>) -> Self {
        let best = best.map(numbers::word);
        let bound = bound.filter(|bound| bound.is_finite()).map(numbers::number);
        Self { best, bound, gap: gap.filter(|gap| !gap.is_nan()) }
    }
}

/// What has become of the calls of a workflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// All that the program has made.
    pub made: u64,
    /// Those that have ended.
    pub ended: u64,
    /// Those that run.
    pub running: u64,
    /// Those that wait for data, or for a worker.
    pub waiting: u64,
    /// Those that have failed.
    pub failed: u64,
}

/// What is in the columns of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Own {
    #[default]
    Nothing,
    Search(Quality),
    Calls(Option<Calls>),
}

impl Telling {
    /// Creates one whose columns are those of every job. `line` formats the progress line.
    pub fn new(line: impl Fn(&Progress) -> String + Send + 'static) -> Self {
        Self { line: Box::new(line), observe: None, unit: "units", reader: Reader::Nothing }
    }

    /// Sets what the units of work are: one word, such as `states`.
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

    /// Adds the columns of a workflow; `calls` returns `None` as long as nothing is known.
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

    /// Returns what is in its columns if that is known, and that nothing is otherwise.
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
    /// Returns one that tells of any job what the runtime knows.
    fn default() -> Self {
        Self::new(watch::line_of)
    }
}

impl fmt::Debug for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telling").field("unit", &self.unit).finish_non_exhaustive()
    }
}

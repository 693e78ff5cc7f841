//! The progress display that a program defines for its jobs.

use std::fmt;

use taskwork::{Progress, display::Cell};

use super::columns::{Columns, LogColumn};
use crate::{prepared::Observe, watch};

/// The display of a running job: the progress line, and the columns of the log.
pub struct ProgressDisplay {
    pub(crate) line: Read<String>,
    /// Also called with the progress.
    pub(crate) observe: Option<Observe>,
    work: Option<&'static str>,
    columns: Vec<LogColumn>,
    values: Read<Vec<Option<Cell>>>,
}

/// Derives a value from the progress.
type Read<T> = Box<dyn Fn(&Progress) -> T + Send>;

impl ProgressDisplay {
    /// Creates a display with the columns common to all jobs. `line` formats the progress line.
    pub fn new(line: impl Fn(&Progress) -> String + Send + 'static) -> Self {
        Self {
            line: Box::new(line),
            observe: None,
            work: Some("units"),
            columns: Vec::new(),
            values: Box::new(|_| Vec::new()),
        }
    }

    /// Sets the name of the unit of work: one word, such as `states`.
    #[must_use]
    pub fn unit(self, unit: &'static str) -> Self {
        Self { work: Some(unit), ..self }
    }

    /// Leaves out the columns about work, open tasks and steals.
    #[must_use]
    pub fn without_work(self) -> Self {
        Self { work: None, ..self }
    }

    /// Adds columns. `values` returns the value of each one, or `None` if it is unknown.
    #[must_use]
    pub fn columns(
        self,
        columns: Vec<LogColumn>,
        values: impl Fn(&Progress) -> Vec<Option<Cell>> + Send + 'static,
    ) -> Self {
        Self { columns, values: Box::new(values), ..self }
    }

    pub(super) fn log_columns(&self) -> Columns {
        Columns::new(self.work, self.columns.clone())
    }

    pub(super) fn values(&self, progress: &Progress) -> Vec<Option<Cell>> {
        (self.values)(progress)
    }
}

impl Default for ProgressDisplay {
    /// Returns the display of a job without its own columns.
    fn default() -> Self {
        Self::new(watch::line_of)
    }
}

impl fmt::Debug for ProgressDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressDisplay").field("columns", &self.columns).finish_non_exhaustive()
    }
}

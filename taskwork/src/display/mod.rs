//! The display of a job as data: values, tables, pictures and documents that a framework describes.
//!
//! The companion of a job provides a [`JobDisplay`] ([`StatusProvider`](crate::companion::StatusProvider)).
//! `taskwork job`, `taskwork top`, the dashboard and reports show it without code about the framework.
//!
//! ```
//! use taskwork::display::{Column, Field, JobDisplay, Row, Table, Unit};
//!
//! let columns = vec![Column::new("step", "step", Unit::Text), Column::new("time_s", "time", Unit::Seconds)];
//! let table = Table::new("steps", "Steps", columns)
//!     .row(Row::new().with("step", "read").with("time_s", 0.25))
//!     .row(Row::new().with("step", "sort"));
//! assert_eq!(table.to_string(), "STEP    TIME\nread  250 ms\nsort       -\n");
//! let display = JobDisplay::new().value(Field::new("steps", "steps", Unit::Count, 2_u64)).table(table);
//! assert_eq!(display.values[0].text(), "2");
//! ```
//!
//! A display comes from another process, perhaps of another version, so [`JobDisplay::read`] skips unknown parts and
//! bounds the rest. Names have 1 to 64 letters, digits, `.`, `_` and `-`, and do not start with `.` or `-`: readers skip
//! items with other names, and cells without a column. Its texts may contain any characters except control characters.

mod ahead;
mod document;
mod merging;
mod reading;
mod svg;
mod text;
mod units;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

pub(crate) use self::document::{answer_of, document_of, request_of, requested};
pub(crate) use self::merging::merged;
pub use self::{
    ahead::{WorkAhead, WorkDemand},
    document::{Document, Format},
    svg::xml_escaped,
    units::{Unit, count, number},
};

/// The version of the format. It changes if readers of the previous one would misunderstand a display.
pub const VERSION: u64 = 1;

/// The description of a job by its framework.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobDisplay {
    /// The version of its format.
    pub version: u64,
    /// Single values.
    pub values: Vec<Field>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// The documents that the running job creates on request.
    pub documents: Vec<Offer>,
    /// The work ahead of the job, which determines the number of its machines; `None` if its framework does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<WorkAhead>,
}

/// A named value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Field {
    /// Its name, for scripts.
    pub name: String,
    /// Its name for users.
    pub label: String,
    /// The unit of the value.
    pub unit: Unit,
    /// The value; `None` if it is unknown.
    pub value: Option<Cell>,
    /// Whether the value is one of the present, such as a number of running calls: it ends with its node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub current: bool,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Table {
    /// Its name, for scripts.
    pub name: String,
    /// Its title for users.
    pub label: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The sums over the rows, if that is useful.
    pub total: Option<Row>,
    /// The number of rows that were left out.
    pub omitted: u64,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Column {
    /// Its name, which is the key of its cells.
    pub name: String,
    /// Its title for users.
    pub label: String,
    /// The unit of its cells.
    pub unit: Unit,
    /// Whether text leaves the column out if all its cells are 0 or unknown.
    pub rare: bool,
}

/// A row of a table: its cells by the names of their columns. Missing cells are unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Row(BTreeMap<String, Cell>);

/// The content of a value or a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A text of one line.
    Text(String),
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Picture {
    /// Its name, such as `tree.svg`.
    pub name: String,
    /// Its title for users.
    pub label: String,
    /// The language of the content: SVG or DOT.
    pub format: Format,
    /// The content.
    pub content: String,
}

/// A document that the running job creates on request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Offer {
    /// Its name, such as `trace.json`.
    pub name: String,
    /// Its title for users.
    pub label: String,
    /// A word for the argument of the request, such as `NUMBER`; `None` if it has none.
    pub argument: Option<String>,
    /// Whether pages request it without a click, and again at intervals.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
}

impl JobDisplay {
    /// Creates an empty display.
    pub fn new() -> Self {
        Self {
            version: VERSION,
            values: Vec::new(),
            tables: Vec::new(),
            pictures: Vec::new(),
            documents: Vec::new(),
            ahead: None,
        }
    }

    /// Adds a value.
    #[must_use]
    pub fn value(mut self, value: Field) -> Self {
        self.values.push(value);
        self
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        self.tables.push(table);
        self
    }

    /// Adds a picture.
    #[must_use]
    pub fn picture(mut self, picture: Picture) -> Self {
        self.pictures.push(picture);
        self
    }

    /// Adds a document that the job creates on request.
    #[must_use]
    pub fn document(mut self, document: Offer) -> Self {
        self.documents.push(document);
        self
    }

    /// Sets the work ahead of the job.
    #[must_use]
    pub fn ahead(self, ahead: WorkAhead) -> Self {
        Self { ahead: Some(ahead), ..self }
    }

    /// Returns the value of a name, if it is a whole number.
    pub fn count_of(&self, name: &str) -> Option<u64> {
        match self.values.iter().find(|value| value.name == name)?.value.as_ref()? {
            Cell::Count(count) => Some(*count),
            Cell::Number(_) | Cell::Text(_) => None,
        }
    }
}

impl Default for JobDisplay {
    fn default() -> Self {
        Self::new()
    }
}

impl Field {
    /// Creates a value.
    pub fn new(name: &str, label: &str, unit: Unit, value: impl Into<Cell>) -> Self {
        let (name, label) = (name.to_owned(), label.to_owned());
        Self { name, label, unit, value: Some(value.into()), current: false }
    }

    /// Marks the value as one of the present, which is not counted for nodes that have gone.
    #[must_use]
    pub fn current(self) -> Self {
        Self { current: true, ..self }
    }

    /// Formats the value with its unit.
    pub fn text(&self) -> String {
        self.unit.format(self.value.as_ref())
    }
}

impl Table {
    /// Creates a table without rows.
    pub fn new(name: &str, label: &str, columns: Vec<Column>) -> Self {
        let (name, label) = (name.to_owned(), label.to_owned());
        Self { name, label, columns, rows: Vec::new(), total: None, omitted: 0 }
    }

    /// Adds a row.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// Sets the sums over the rows.
    #[must_use]
    pub fn total(self, total: Row) -> Self {
        Self { total: Some(total), ..self }
    }
}

impl Column {
    /// Creates a column.
    pub fn new(name: &str, label: &str, unit: Unit) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), unit, rare: false }
    }

    /// Makes text leave the column out if all its cells are 0 or unknown.
    #[must_use]
    pub fn rare(self) -> Self {
        Self { rare: true, ..self }
    }
}

impl Row {
    /// Creates a row without cells.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the cell of a column.
    #[must_use]
    pub fn with(mut self, column: &str, cell: impl Into<Cell>) -> Self {
        self.0.insert(column.to_owned(), cell.into());
        self
    }

    /// Returns the cell of a column.
    pub fn get(&self, column: &str) -> Option<&Cell> {
        self.0.get(column)
    }
}

impl Picture {
    /// Creates a picture in SVG. Only shapes and texts are shown: a picture with other elements, such as scripts, styles
    /// and images, with comments, or with links to other documents is left out.
    pub fn svg(name: &str, label: &str, content: String) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), format: Format::Svg, content }
    }

    /// Creates a graph in DOT, the language of Graphviz.
    pub fn dot(name: &str, label: &str, content: String) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), format: Format::Dot, content }
    }
}

impl Offer {
    /// Offers a document.
    pub fn new(name: &str, label: &str) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), argument: None, shown: false }
    }

    /// Adds the argument of the request.
    #[must_use]
    pub fn argument(self, argument: &str) -> Self {
        Self { argument: Some(argument.to_owned()), ..self }
    }

    /// Makes pages show the document without a click, and request it again at intervals of some seconds. It must have no
    /// argument.
    #[must_use]
    pub fn shown(self) -> Self {
        Self { shown: true, ..self }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

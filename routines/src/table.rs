//! The results of a job as a table in CSV (RFC 4180): scalars, or objects of scalars with a column for each name.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use crate::store::{Line, PART, PART_BYTES, Results, ResultsError};

/// The maximum number of columns of objects.
const COLUMNS_MAX: usize = 1_000;

/// The columns of a table, in addition to the index and the error.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The names in objects, in the order of their first appearance.
    names: Vec<String>,
    has_scalars: bool,
}

/// A result that is no row, for this reason, or that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("result {index} {why}, so the results are no table: download them as ndjson")]
    NotFlat { index: u64, why: String },
    #[error(transparent)]
    Results(#[from] ResultsError),
}

#[derive(Deserialize)]
struct Parsed {
    #[serde(default)]
    value: Value,
    error: Option<ParsedError>,
}

#[derive(Deserialize)]
struct ParsedError {
    kind: String,
    message: String,
}

impl Table {
    /// Reads all results for their columns.
    ///
    /// # Errors
    /// If the results are neither all scalars nor all objects of scalars, or cannot be read.
    pub(crate) fn of(results: &Results) -> Result<Self, TableError> {
        let (mut table, mut from) = (Self::default(), 0);
        loop {
            let lines = results.lines(from, PART, PART_BYTES)?;
            let Some(last) = lines.last() else { return Ok(table) };
            from = last.index + 1;
            for Line { index, json } in &lines {
                table.add(json).map_err(|why| TableError::NotFlat { index: *index, why })?;
            }
        }
    }

    fn add(&mut self, json: &str) -> Result<(), String> {
        let Parsed { value, error } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if error.is_some() {
            return Ok(());
        }
        if cell(&value).is_some() {
            self.has_scalars = true;
        } else {
            let fields = value.as_object().ok_or("is a list or an array")?;
            for (name, field) in fields {
                cell(field).ok_or_else(|| format!("has no scalar in {name:?}"))?;
                if !self.names.contains(name) {
                    self.names.push(name.clone());
                }
            }
        }
        if self.has_scalars && !self.names.is_empty() {
            return Err("is of another kind than earlier ones: one is a scalar, and one an object".to_owned());
        }
        if self.names.len() > COLUMNS_MAX {
            return Err(format!("is an object, and the objects have more than {COLUMNS_MAX} names"));
        }
        Ok(())
    }

    /// Returns the first row.
    pub(crate) fn head(&self) -> String {
        let columns = if self.names.is_empty() { &["value".to_owned()][..] } else { &self.names };
        let names = ["index"].into_iter().chain(columns.iter().map(String::as_str)).chain(["error"]);
        row(names)
    }

    /// Returns the row of a result.
    pub(crate) fn row(&self, Line { index, json }: &Line) -> String {
        let parsed: Parsed = serde_json::from_str(json).unwrap_or(Parsed { value: Value::Null, error: None });
        let values = if self.names.is_empty() {
            vec![cell(&parsed.value).unwrap_or_default()]
        } else {
            self.names.iter().map(|name| cell(&parsed.value[name]).unwrap_or_default()).collect()
        };
        let error = parsed.error.map(|error| format!("{}: {}", error.kind, error.message));
        let cells = [index.to_string()].into_iter().chain(values).chain([error.unwrap_or_default()]);
        row(cells)
    }
}

/// Returns a scalar as text; `None` if the value is none.
fn cell(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) if fields.len() == 1 => {
            // Large integers, NaN and infinities.
            let special = fields.get("$i").or_else(|| fields.get("$f"))?;
            special.as_str().map(str::to_owned)
        }
        Value::Object(_) | Value::Array(_) => None,
    }
}

fn row(cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut row = String::new();
    for (place, cell) in cells.into_iter().enumerate() {
        let (cell, comma) = (cell.as_ref(), if place > 0 { "," } else { "" });
        let written = if cell.contains(['"', ',', '\n', '\r']) {
            write!(row, "{comma}\"{}\"", cell.replace('"', "\"\""))
        } else {
            write!(row, "{comma}{cell}")
        };
        written.expect("texts can be written");
    }
    row + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[&str]) -> Result<String, String> {
        let mut table = Table::default();
        lines.iter().try_for_each(|json| table.add(json))?;
        let rows = (0..).zip(lines).map(|(index, json)| table.row(&Line { index, json: (*json).to_owned() }));
        Ok(rows.fold(table.head(), |all, row| all + &row))
    }

    #[test]
    fn scalars_and_objects_of_scalars_are_rows() {
        let failed = r#"{"index":1,"error":{"kind":"user","message":"no, \"1\"","trace":""}}"#;
        let scalars = [r#"{"index":0,"value":1.5}"#, failed, r#"{"index":2,"value":{"$f":"nan"}}"#];
        assert_eq!(
            table(&scalars).unwrap(),
            "index,value,error\r\n0,1.5,\r\n1,,\"user: no, \"\"1\"\"\"\r\n2,nan,\r\n"
        );
        let objects =
            [r#"{"index":0,"value":{"b":"x\ny","a":true}}"#, r#"{"index":1,"value":{"c":{"$i":"9"}}}"#];
        assert_eq!(table(&objects).unwrap(), "index,a,b,c,error\r\n0,true,\"x\ny\",,\r\n1,,,9,\r\n");
        for (lines, says) in [
            (&[r#"{"index":0,"value":[1]}"#][..], "list"),
            (&[r#"{"index":0,"value":{"a":[]}}"#], "\"a\""),
            (&[r#"{"index":0,"value":1}"#, r#"{"index":1,"value":{"a":1}}"#], "another kind"),
        ] {
            let refused = table(lines).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }
}

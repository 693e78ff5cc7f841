//! The results of a job as a table in CSV (RFC 4180): scalars, or objects of scalars with a column for each name.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::{self, Write as _},
};

use serde::{
    Deserialize,
    de::{Deserializer, Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::store::{Line, PART, PART_BYTES, Results, ResultsError};

/// The maximum number of columns of objects.
const COLUMNS_MAX: usize = 1_000;

/// The maximum length of the names of all columns, in bytes.
const NAMES_BYTES_MAX: usize = 256 << 10;

/// The columns of a table, in addition to the index and the error.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The names in objects, in the order of their first appearance.
    names: Vec<String>,
    known: HashSet<String>,
    names_bytes: usize,
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
struct Parsed<'a> {
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    error: Option<ParsedError>,
}

#[derive(Deserialize)]
struct ParsedError {
    kind: String,
    message: String,
}

/// Large integers, NaN and infinities.
#[derive(Deserialize)]
enum Special {
    #[serde(rename = "$i")]
    Integer(String),
    #[serde(rename = "$f")]
    Float(String),
}

/// The fields of an object, which has at most [`COLUMNS_MAX`].
#[derive(Default)]
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields::default();
                while let Some((name, field)) = map.next_entry()? {
                    fields.0.insert(name, field);
                    if fields.0.len() > COLUMNS_MAX {
                        return Err(A::Error::custom("too many fields"));
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Reader)
    }
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
        let value = value.map_or("null", RawValue::get);
        if value.starts_with('[') {
            return Err("is a list".to_owned());
        }
        if cell(value).is_some() {
            self.has_scalars = true;
        } else {
            // The value is JSON, so it can only have too many fields.
            let Fields(fields) = serde_json::from_str(value).map_err(|_| too_wide())?;
            for (name, field) in fields {
                if !self.known.contains(&name) {
                    self.names_bytes += name.len();
                    if self.names.len() >= COLUMNS_MAX || self.names_bytes > NAMES_BYTES_MAX {
                        return Err(too_wide());
                    }
                    self.known.insert(name.clone());
                    self.names.push(name.clone());
                }
                cell(field.get()).ok_or_else(|| format!("has no scalar in {name:?}"))?;
            }
        }
        if self.has_scalars && !self.names.is_empty() {
            return Err("is of another kind than earlier ones: one is a scalar, and one an object".to_owned());
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
        let parsed: Parsed = serde_json::from_str(json).unwrap_or(Parsed { value: None, error: None });
        let value = parsed.value.map_or("null", RawValue::get);
        let values = if self.names.is_empty() {
            vec![cell(value).unwrap_or_default()]
        } else {
            let Fields(fields) = serde_json::from_str(value).unwrap_or_default();
            let field = |name| fields.get(name).and_then(|field| cell(field.get())).unwrap_or_default();
            self.names.iter().map(field).collect()
        };
        let error = parsed.error.map(|error| format!("{}: {}", error.kind, error.message));
        let cells = [index.to_string()].into_iter().chain(values).chain([error.unwrap_or_default()]);
        row(cells)
    }
}

fn too_wide() -> String {
    format!(
        "is an object, and the objects have more than {COLUMNS_MAX} names or {NAMES_BYTES_MAX} bytes of names"
    )
}

/// Returns a scalar in JSON as text; `None` if the value is none.
fn cell(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'[' => None,
        b'{' => match serde_json::from_str(json).ok()? {
            Special::Integer(text) | Special::Float(text) => Some(text),
        },
        b'"' => serde_json::from_str(json).ok(),
        _ if json == "null" => Some(String::new()),
        _ => Some(json.to_owned()),
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

    #[test]
    fn objects_with_too_many_or_too_long_names_are_refused() {
        let object = |names: std::ops::Range<usize>, length: usize| {
            let fields: Vec<_> = names.map(|name| format!("\"{}{name}\":1", "x".repeat(length))).collect();
            format!(r#"{{"index":0,"value":{{{}}}}}"#, fields.join(","))
        };
        assert!(table(&[&object(0..COLUMNS_MAX, 4)]).is_ok());
        for lines in [
            [object(0..COLUMNS_MAX + 1, 4), object(0..1, 4)],
            [object(0..COLUMNS_MAX, 4), object(COLUMNS_MAX..COLUMNS_MAX + 1, 4)],
            [object(0..1, NAMES_BYTES_MAX), object(1..2, 4)],
        ] {
            let refused = table(&lines.each_ref().map(|line| &**line)).unwrap_err();
            assert!(refused.contains("1000 names"), "{refused}");
        }
    }
}

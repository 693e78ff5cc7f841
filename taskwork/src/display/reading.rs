//! Reading a display of another process: unknown parts are skipped, and everything is bounded.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    Cell, Column, Field, Format, JobDisplay, Offer, Picture, Row, Table, Unit, VERSION, WorkAhead,
    svg::is_inert,
};

/// The maximum number of each kind of item. Further ones are skipped.
pub(super) const VALUES_MAX: usize = 64;
pub(super) const TABLES_MAX: usize = 16;
const COLUMNS_MAX: usize = 32;
pub(super) const ROWS_MAX: usize = 1_000;
pub(super) const PICTURES_MAX: usize = 8;
pub(super) const DOCUMENTS_MAX: usize = 32;

/// The maximum length of a name, a label and a cell, in characters. Longer names are invalid, and other texts truncated.
const NAME_CHARS_MAX: usize = 64;
const LABEL_CHARS_MAX: usize = 100;
const CELL_CHARS_MAX: usize = 300;

/// The maximum size of a picture, in bytes. A larger one is skipped.
const PICTURE_BYTES_MAX: usize = 256 << 10;

impl JobDisplay {
    /// Reads a display. Items that are invalid, or of a kind or unit that this version does not know, are skipped.
    /// Returns `None` if the content is no display; one in another version is replaced by a note.
    pub fn read(content: &Value) -> Option<Self> {
        let version = content["version"].as_u64()?;
        if version != VERSION {
            let note = format!("is in version {version}, and this program reads version {VERSION}");
            return Some(Self::new().value(Field::new("display", "display", Unit::Text, note.as_str())));
        }
        Some(Self {
            version,
            values: items(&content["values"], VALUES_MAX, Field::read),
            tables: items(&content["tables"], TABLES_MAX, Table::read),
            pictures: items(&content["pictures"], PICTURES_MAX, Picture::read),
            documents: items(&content["documents"], DOCUMENTS_MAX, Offer::read),
            ahead: WorkAhead::read(&content["ahead"]),
        })
    }
}

impl<'de> Deserialize<'de> for JobDisplay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let content = Value::deserialize(deserializer)?;
        Ok(Self::read(&content).unwrap_or_default())
    }
}

impl Field {
    fn read(item: &Value) -> Option<Self> {
        let (name, label) = names(item)?;
        let unit = unit(item)?;
        let current = item["current"] == true;
        Some(Self { name, label, unit, value: Cell::read(&item["value"], unit), current })
    }
}

impl Table {
    fn read(item: &Value) -> Option<Self> {
        let (name, label) = names(item)?;
        let columns = items(&item["columns"], COLUMNS_MAX, Column::read);
        if columns.is_empty() {
            return None;
        }
        let row = |item: &Value| Row::read(item, &columns);
        let rows = items(&item["rows"], ROWS_MAX, row);
        let given = item["rows"].as_array().map_or(0, Vec::len);
        let omitted = item["omitted"].as_u64().unwrap_or(0).saturating_add((given - rows.len()) as u64);
        let total = row(&item["total"]);
        Some(Self { name, label, columns, rows, total, omitted })
    }
}

impl Column {
    fn read(item: &Value) -> Option<Self> {
        let (name, label) = names(item)?;
        Some(Self { name, label, unit: unit(item)?, rare: item["rare"] == true })
    }
}

impl Row {
    /// Reads the cells of known columns.
    fn read(item: &Value, columns: &[Column]) -> Option<Self> {
        let item = item.as_object()?;
        let cell =
            |column: &Column| Some((column.name.clone(), Cell::read(item.get(&column.name)?, column.unit)?));
        Some(Self(columns.iter().filter_map(cell).collect()))
    }
}

impl Cell {
    /// Reads a value; `None` if its type does not fit its unit.
    fn read(value: &Value, unit: Unit) -> Option<Self> {
        match (value, unit) {
            (Value::String(content), Unit::Text) => Some(Self::Text(text(content, CELL_CHARS_MAX))),
            (_, Unit::Text) => None,
            _ => value.as_u64().map(Self::Count).or_else(|| value.as_f64().map(Self::Number)),
        }
    }
}

impl Picture {
    fn read(item: &Value) -> Option<Self> {
        let (name, label) = names(item)?;
        let format = Format::named(item["format"].as_str()?)?;
        let content = item["content"].as_str().filter(|content| content.len() <= PICTURE_BYTES_MAX)?;
        let is_shown = match format {
            Format::Svg => is_inert(content),
            Format::Dot => true,
            Format::Text | Format::Json => false,
        };
        is_shown.then(|| Self { name, label, format, content: content.to_owned() })
    }
}

impl Offer {
    fn read(item: &Value) -> Option<Self> {
        let (name, label) = names(item)?;
        let argument = item["argument"].as_str().map(|argument| text(argument, LABEL_CHARS_MAX));
        let shown = item["shown"] == true && argument.is_none();
        Some(Self { name, label, argument, shown })
    }
}

fn items<T>(list: &Value, max: usize, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    list.as_array().into_iter().flatten().filter_map(read).take(max).collect()
}

/// Reads the name and the label of an item.
fn names(item: &Value) -> Option<(String, String)> {
    let name = item["name"].as_str().filter(|name| is_name(name))?;
    let label = item["label"].as_str().unwrap_or(name);
    Some((name.to_owned(), text(label, LABEL_CHARS_MAX)))
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_short = (1..=NAME_CHARS_MAX).contains(&name.len());
    is_short && name.bytes().all(is_allowed) && !name.starts_with(['.', '-'])
}

fn unit(item: &Value) -> Option<Unit> {
    Unit::named(item["unit"].as_str()?)
}

/// Returns a text of one line without control characters.
fn text(content: &str, chars_max: usize) -> String {
    content.chars().take(chars_max).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

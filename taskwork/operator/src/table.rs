//! Tables, times and counts for human readers.

use std::time::{Duration, UNIX_EPOCH};

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{BinaryBytes, HumanCount};
use taskwork_cli::printable;

/// Formats a table without lines. Columns with names that start with `#` are numeric. Cells are sanitized: no control
/// characters, no line breaks.
pub(super) fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(columns.iter().map(|name| Cell::new(name.trim_start_matches('#'))));
    for row in rows {
        table.add_row(row.iter().map(|cell| printable::line(cell)));
    }
    for (column, name) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        if name.starts_with('#') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// Formats names and values, one pair per line. Values are sanitized like the cells of a table.
pub(super) fn list(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines: Vec<String> =
        rows.iter().map(|(name, value)| format!("{name:<width$}  {}", printable::line(value))).collect();
    lines.join("\n") + "\n"
}

/// Formats milliseconds since 1970 as a time of day, UTC.
pub(crate) fn time(ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(ms.min(YEAR_9999_MS));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The last time that can be formatted.
const YEAR_9999_MS: u64 = 253_402_300_799_000;

/// Formats the duration between two times; 0 if the clocks disagree about their order.
pub(super) fn lapse(from_ms: u64, to_ms: u64) -> String {
    let ms = to_ms.saturating_sub(from_ms);
    let lapse = Duration::from_millis(if ms < 10_000 { ms } else { ms / 1000 * 1000 });
    humantime::format_duration(lapse).to_string()
}

/// Formats a number with separators between thousands.
pub(super) fn count(n: u64) -> String {
    HumanCount(n).to_string()
}

/// Formats a number of bytes, or a placeholder for 0.
pub(super) fn bytes(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { BinaryBytes(n).to_string() }
}

/// Returns the text, or a placeholder if it is empty.
pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_sanitized_in_tables_and_lists() {
        let hostile = "\u{1b}[2J\u{202e}a\nb";
        for text in [table(&["NAME"], [vec![hostile.to_owned()]]), list(&[("name", hostile.to_owned())])] {
            assert!(text.trim_end().ends_with("?[2J?a b"), "{text:?}");
        }
    }
}

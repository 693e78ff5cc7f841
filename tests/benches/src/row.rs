//! Figures with their targets, and a table of them.

use std::fmt;

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::measure::Sample;

/// The target of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The figure must not be smaller.
    AtLeast(f64),
    /// The figure must not be larger.
    AtMost(f64),
    /// For information; there is no target.
    Told,
}

/// A figure with its target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The measured quantity.
    pub what: String,
    /// Its unit; empty for ratios.
    pub unit: &'static str,
    /// The target.
    pub target: Target,
    /// The measurements.
    pub sample: Sample,
}

impl Row {
    /// Creates a figure.
    pub fn new(what: impl Into<String>, unit: &'static str, target: Target, sample: Sample) -> Self {
        Self { what: what.into(), unit, target, sample }
    }

    /// Returns whether the target is reached; `None` if there is none.
    pub fn is_reached(&self) -> Option<bool> {
        match self.target {
            Target::AtLeast(least) => Some(self.sample.median >= least),
            Target::AtMost(most) => Some(self.sample.median <= most),
            Target::Told => None,
        }
    }

    fn cells(&self) -> [String; 5] {
        let target = match self.target {
            Target::AtLeast(least) => format!("≥ {}", digits(least)),
            Target::AtMost(most) => format!("≤ {}", digits(most)),
            Target::Told => String::new(),
        };
        let Sample { median, least, most, .. } = self.sample;
        let reached = match self.is_reached() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let median = format!("{} {}", digits(median), self.unit);
        let range = format!("{} to {}", digits(least), digits(most));
        [self.what.clone(), target, median.trim_end().to_owned(), range, reached.to_owned()]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, target, median, range, reached] = self.cells();
        write!(f, "{what}: {median} ({range})")?;
        if target.is_empty() { Ok(()) } else { write!(f, ", target {target}: {reached}") }
    }
}

/// Formats figures for human readers.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(["what", "target", "median", "least to most", "reached"]);
    for row in rows {
        table.add_row(row.cells());
    }
    table
}
/// Formats a value with about three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.0995 => format!("{value:.4}"),
        size if size < 9.995 => format!("{value:.3}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_target_is_reported_loudly() {
        let row = |target| Row::new("speed", "", target, Sample::of([0.96]));
        assert_eq!(row(Target::AtLeast(0.97)).is_reached(), Some(false));
        assert_eq!(row(Target::AtMost(0.97)).is_reached(), Some(true));
        assert_eq!(row(Target::Told).is_reached(), None);
        let table = table(&[row(Target::AtLeast(0.97))]).to_string();
        assert!(table.contains("≥ 0.970") && table.contains("| NO"), "{table}");
    }
}

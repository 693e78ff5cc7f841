//! Formatting of numbers for the log: one word each.

use std::time::Duration;

use taskwork::display::{Cell, Unit, number};

/// The text for an unknown value, or one that does not apply.
pub(super) const UNKNOWN: &str = "-";

/// Formats a time in seconds.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// Formats a share in per cent.
pub(super) fn per_cent(share: f64, decimals: usize) -> String {
    let per_cent = 100.0 * share;
    match per_cent {
        _ if per_cent.is_nan() => UNKNOWN.to_owned(),
        _ if per_cent.is_infinite() => "inf".to_owned(),
        _ if per_cent >= 1e6 => format!("{per_cent:.0e}"),
        _ if per_cent >= 1e3 => format!("{per_cent:.0}"),
        _ => format!("{per_cent:.decimals$}"),
    }
}

/// Formats a value of a framework.
pub(super) fn cell_text(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Text(text) => word(text),
        Cell::Count(share) if unit == Unit::Share => per_cent(*share as f64, 2),
        Cell::Count(count) => count.to_string(),
        Cell::Number(share) if unit == Unit::Share => per_cent(*share, 2),
        Cell::Number(value) => number(*value),
    }
}

/// Joins the words of a text, to fit into a column.
fn word(text: &str) -> String {
    let word: String = text.split_whitespace().collect::<Vec<_>>().join("_");
    if word.is_empty() { UNKNOWN.to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_short_and_never_nan() {
        for (share, shown) in [
            (0.0, "0.00"),
            (0.12345, "12.35"),
            (99.0, "9900"),
            (1e9, "1e11"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(per_cent(share, 2), shown);
        }
    }

    #[test]
    fn cost_of_several_words_is_one_column() {
        for (given, shown) in [("12 EUR\n", "12_EUR"), (" ", "-")] {
            assert_eq!(cell_text(&given.into(), Unit::Text), shown);
        }
        assert_eq!(cell_text(&18_706.5.into(), Unit::Number), "18706.5");
        assert_eq!(cell_text(&0.5.into(), Unit::Share), "50.00");
    }
}

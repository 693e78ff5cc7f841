//! Formatting of numbers for the log: one word each.

use std::time::Duration;

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

/// Formats a cost or a bound.
pub(super) fn number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        UNKNOWN.to_owned()
    } else if number.fract() == 0.0 && size < 1e15 {
        // Without the sign of -0.
        format!("{:.0}", number + 0.0)
    } else if (1e-3..1e9).contains(&size) {
        let text = format!("{number:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{number:.4e}")
    }
}

/// Joins the words of a text, to fit into a column.
pub(super) fn word(text: &str) -> String {
    let word: String = text.split_whitespace().collect::<Vec<_>>().join("_");
    if word.is_empty() { UNKNOWN.to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_nan() {
        for (given, shown) in [
            (18_707.0, "18707"),
            (-0.0, "0"),
            (-3.0, "-3"),
            (18_706.123_456, "18706.1235"),
            (0.5, "0.5"),
            (1e-9, "1.0000e-9"),
            (1e300, "1.0000e300"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(number(given), shown);
        }
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
        assert_eq!(word("12 EUR\n"), "12_EUR");
        assert_eq!(word(" "), "-");
    }
}

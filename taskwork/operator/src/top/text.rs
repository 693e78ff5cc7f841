//! Formatting for display: numbers, times and names.
//!
//! Names come from znodes and may contain anything: see [`printable`](taskwork_cli::printable).

use std::time::Duration;

use ratatui::text::Span;
use taskwork_cli::printable::{REPLACEMENT, character};

use crate::table::{count, time};

/// The text for an unknown value.
pub(super) const UNKNOWN: &str = "-";
/// The number of characters of a name that are considered.
const CHARS_MAX: usize = 1_000;
/// The maximum number of marks, such as accents, on a letter.
const MARKS_MAX: usize = 2;
/// Returns a text that fits into a width, in columns, with printable characters only. A truncated text ends with an
/// ellipsis.
pub(super) fn fit(text: &str, width: usize, is_ascii: bool) -> String {
    let (mut fitted, mut used, mut marks): (Vec<char>, usize, usize) = (Vec::new(), 0, 0);
    let mut rest = text.chars();
    for c in rest.by_ref().take(CHARS_MAX) {
        let Some(c) = printable(c, is_ascii) else { continue };
        let wide = width_of(c);
        marks = if wide == 0 { marks + 1 } else { 0 };
        if marks > MARKS_MAX {
            continue;
        }
        if used + wide > width {
            return cut(fitted, used, width, is_ascii);
        }
        fitted.push(c);
        used += wide;
    }
    if rest.next().is_some() { cut(fitted, used, width, is_ascii) } else { fitted.into_iter().collect() }
}

/// Truncates a text, and appends an ellipsis.
fn cut(mut fitted: Vec<char>, mut used: usize, width: usize, is_ascii: bool) -> String {
    if width == 0 {
        return String::new();
    }
    while used >= width
        && let Some(last) = fitted.pop()
    {
        used -= width_of(last);
    }
    fitted.push(if is_ascii { '~' } else { '…' });
    fitted.into_iter().collect()
}

/// Returns the width of a text, in columns.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

fn width_of(c: char) -> usize {
    if c.is_ascii() { 1 } else { width(c.encode_utf8(&mut [0; 4])) }
}

/// Returns the displayed form of a character; `None` if it only changes the appearance of others.
fn printable(c: char, is_ascii: bool) -> Option<char> {
    character(c).map(|c| if is_ascii && !c.is_ascii() { REPLACEMENT } else { c })
}

/// Formats a value, or [`UNKNOWN`].
pub(super) fn maybe<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), format)
}

/// Formats a number with three significant digits, or all of a whole number below a million.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "below a million, and not negative"
)]
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let is_whole = value.fract() == 0.0;
    match size {
        _ if is_whole && size < 1e6 => format!("{sign}{}", count(size as u64)),
        _ if !(1e-3..1e15).contains(&size) => format!("{value:.2e}"),
        _ if size >= 1e12 => format!("{} T", short(value / 1e12)),
        _ if size >= 1e9 => format!("{} G", short(value / 1e9)),
        _ if size >= 999_999.5 => format!("{} M", short(value / 1e6)),
        _ if size >= 999.5 => format!("{sign}{}", count(size.round() as u64)),
        _ => short(value),
    }
}

/// Formats a whole number like [`number`].
pub(super) fn whole(value: u64) -> String {
    number(value as f64)
}

/// Formats a rate of work.
pub(super) fn rate(value: f64) -> String {
    let number = number(value);
    if number == UNKNOWN { number } else { format!("{number}/s") }
}

/// Formats a number of less than 1,000 with three significant digits.
fn short(value: f64) -> String {
    let size = value.abs();
    let decimals: usize = match size {
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.099_95 => 3,
        _ if size >= 0.009_995 => 4,
        _ => 5,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats the value of a solution with enough digits for comparisons.
pub(super) fn exact(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        UNKNOWN.to_owned()
    } else if value.fract() == 0.0 && size < 1e15 {
        // Without the sign of -0.
        format!("{:.0}", value + 0.0)
    } else if (1e-3..1e9).contains(&size) {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.4e}")
    }
}

/// Formats a share. Shares below 1 are never rounded up to 100 %.
pub(crate) fn percent(share: f64) -> String {
    let value = 100.0 * share;
    match value {
        _ if !value.is_finite() => UNKNOWN.to_owned(),
        _ if share < 1.0 && value >= 99.95 => "> 99.9 %".to_owned(),
        _ if value == 0.0 => "0 %".to_owned(),
        _ if value >= 1e6 => format!("{value:.0e} %"),
        _ if value >= 99.95 => format!("{value:.0} %"),
        _ if value < 1.0 => format!("{value:.2} %"),
        _ => format!("{value:.1} %"),
    }
}

/// Formats a time in seconds by its two largest units.
pub(super) fn duration(seconds: f64) -> String {
    let spent = Duration::try_from_secs_f64(seconds);
    let Ok(spent) = spent else { return UNKNOWN.to_owned() };
    let (s, seconds) = (spent.saturating_add(Duration::from_millis(500)).as_secs(), spent.as_secs_f64());
    match seconds {
        0.0 => "0 s".to_owned(),
        _ if seconds < 0.000_995 => format!("{} us", short(seconds * 1e6)),
        _ if seconds < 0.995 => format!("{} ms", short(seconds * 1e3)),
        _ if seconds < 9.95 => format!("{} s", short((seconds * 10.0).round() / 10.0)),
        _ if s < 60 => format!("{s} s"),
        _ if s < 3_600 => units(s / 60, "min", s % 60, "s"),
        _ if s < 86_400 => units(s / 3_600, "h", s % 3_600 / 60, "min"),
        _ if s < 365 * 86_400 => units(s / 86_400, "d", s % 86_400 / 3_600, "h"),
        _ => format!("{} years", number((s / (365 * 86_400)) as f64)),
    }
}

fn units(large: u64, of: &str, small: u64, of_small: &str) -> String {
    if small == 0 { format!("{large} {of}") } else { format!("{large} {of} {small} {of_small}") }
}

/// Formats a number of bytes.
pub(super) fn bytes(value: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{} {name}", short(value as f64 / unit as f64)),
        None => format!("{value} B"),
    }
}

/// Formats a count with its noun.
pub(crate) fn things(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a time of day in UTC, with the date unless it is today.
pub(super) fn clock(at_ms: u64, now_ms: u64) -> String {
    let (at, now) = (time(at_ms), time(now_ms));
    let (day, hour) = (at.get(..10), at.get(11..19));
    match (day, hour) {
        (Some(day), Some(hour)) if now.get(..10) == Some(day) => hour.to_owned(),
        (Some(day), Some(hour)) => format!("{day} {hour}"),
        _ => UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_are_replaced() {
        let hostile =
            "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\rgone\n\u{202e}txt\u{200b}\u{200d}\u{feff}\u{e0041}";
        for is_ascii in [false, true] {
            let shown = fit(hostile, 200, is_ascii);
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
            assert!(
                !shown.contains(['\u{202e}', '\u{200b}', '\u{200d}', '\u{feff}', '\u{e0041}']),
                "{shown:?}"
            );
            assert!(shown.contains("owned") && shown.contains("txt"), "{shown:?}");
        }
        assert!(fit("Zoë 旅 😀", 200, true).is_ascii());
    }

    #[test]
    fn names_in_all_scripts_are_kept() {
        for name in ["Zoë", "Zoe\u{308}", "旅行商人", "тур", "a \"b\" 'c' \\d", "😀", "हिन्दी"]
        {
            assert_eq!(fit(name, 80, false), name);
        }
    }

    #[test]
    fn fitted_text_never_exceeds_width() {
        let long = "x".repeat(10_240);
        let marks = format!("a{}", "\u{301}".repeat(10_240));
        for text in ["abcdef", "旅行商人", "Zoe\u{308}", long.as_str(), marks.as_str(), ""] {
            for columns in 0..12 {
                let shown = fit(text, columns, false);
                assert!(width(&shown) <= columns, "{shown:?} in {columns}");
            }
        }
        assert_eq!((fit("abcdef", 4, false).as_str(), fit("abcdef", 4, true).as_str()), ("abc…", "abc~"));
        assert_eq!(fit("旅行商人", 4, false), "旅…");
        assert!(fit(&marks, 40, false).chars().count() < 10);
    }

    #[test]
    fn numbers_are_short_and_never_nan() {
        for (given, shown) in [
            (0.0, "0"),
            (999_999.0, "999,999"),
            (1_234_567.0, "1.23 M"),
            (999_999.7, "1 M"),
            (12_345.6, "12,346"),
            (0.123_456, "0.123"),
            (-2.5, "-2.5"),
            (100.0, "100"),
            (1e-9, "1.00e-9"),
            (1e300, "1.00e300"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(number(given), shown);
        }
        assert_eq!(
            (exact(-0.0).as_str(), exact(18_706.123_456).as_str(), exact(f64::NAN).as_str()),
            ("0", "18706.1235", "-")
        );
        assert_eq!((rate(f64::NAN).as_str(), rate(1_500.0).as_str()), ("-", "1,500/s"));
    }

    #[test]
    fn share_below_one_is_never_shown_as_all() {
        for (share, shown) in [
            (0.0, "0 %"),
            (0.001, "0.10 %"),
            (0.12345, "12.3 %"),
            (0.999_99, "> 99.9 %"),
            (1.0, "100 %"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(percent(share), shown);
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, shown) in [
            (0.0, "0 s"),
            (0.000_012, "12 us"),
            (0.0071, "7.1 ms"),
            (2.04, "2 s"),
            (59.9, "1 min"),
            (3_725.0, "1 h 2 min"),
            (200_000.0, "2 d 7 h"),
            (1e12, "31,709 years"),
            (f64::INFINITY, "-"),
            (f64::NAN, "-"),
            (-1.0, "-"),
            (1e300, "-"),
        ] {
            assert_eq!(duration(seconds), shown);
        }
    }

    #[test]
    fn date_is_shown_unless_it_is_today() {
        let day = 86_400_000;
        assert_eq!(
            (clock(day + 1_000, day).as_str(), clock(1_000, day).as_str()),
            ("00:00:01", "1970-01-01 00:00:01")
        );
        assert!(clock(u64::MAX, 0).starts_with("9999"));
    }
}

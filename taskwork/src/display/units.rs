//! Formatting of numbers with units.

use serde::Serialize;

use super::Cell;

/// The unit of a value, by which it is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// A text.
    Text,
    /// A number of things.
    Count,
    /// A number without a unit.
    Number,
    /// A share of a whole, from 0 to 1, which is formatted in per cent.
    Share,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// The text of an unknown value.
const UNKNOWN: &str = "-";

impl Unit {
    /// Returns the unit of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Text, Self::Count, Self::Number, Self::Share, Self::Seconds, Self::Bytes];
        all.into_iter().find(|unit| serde_json::to_value(unit).is_ok_and(|own| own == name))
    }

    /// Formats a value; `None` is unknown.
    pub fn format(self, value: Option<&Cell>) -> String {
        let as_number = match value {
            None => return UNKNOWN.to_owned(),
            Some(Cell::Text(text)) => return text.clone(),
            Some(Cell::Count(whole)) if matches!(self, Self::Text | Self::Count | Self::Number) => {
                return count(*whole);
            }
            Some(Cell::Count(whole)) => *whole as f64,
            Some(Cell::Number(number)) if !number.is_finite() => return UNKNOWN.to_owned(),
            Some(Cell::Number(number)) => *number,
        };
        match self {
            Self::Text | Self::Count | Self::Number => number(as_number),
            Self::Share => format!("{:.1} %", 100.0 * as_number),
            Self::Seconds => time(as_number),
            Self::Bytes => bytes(as_number),
        }
    }
}

/// Formats a number with separators between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number as one short word, without separators.
pub fn number(number: f64) -> String {
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

/// Formats a duration in seconds by its first three digits.
fn time(seconds: f64) -> String {
    let steps = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    scaled(seconds, &steps).unwrap_or_else(|| format!("{:.0} ns", seconds * 1e9))
}

/// Formats a number of bytes.
fn bytes(bytes: f64) -> String {
    let steps = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let steps = steps.map(|(bits, name)| ((1_u64 << bits) as f64, name));
    scaled(bytes, &steps).unwrap_or_else(|| format!("{bytes:.0} B"))
}

fn scaled(number: f64, steps: &[(f64, &str)]) -> Option<String> {
    // Durations in seconds are not exact multiples of small steps.
    let (step, unit) = steps.iter().find(|(step, _)| number.abs() >= step * (1.0 - 1e-12))?;
    let scaled = number / step;
    if scaled.abs() >= 1e15 {
        return Some(format!("{scaled:.4e} {unit}"));
    }
    let digits = match scaled.abs() {
        scaled if scaled < 10.0 => 2,
        scaled if scaled < 100.0 => 1,
        _ => 0,
    };
    Some(format!("{scaled:.digits$} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_unit() {
        assert_eq!(
            [0, 999, 1_000, 24_510, 1_234_567].map(count),
            ["0", "999", "1,000", "24,510", "1,234,567"]
        );
        assert_eq!([7e-9, 1.5e-6, 0.04, 125.0].map(time), ["7 ns", "1.50 µs", "40.0 ms", "125 s"]);
        let sizes = [0, 1_023, 1 << 20, 300 << 30].map(|size: u64| Unit::Bytes.format(Some(&size.into())));
        assert_eq!(sizes, ["0 B", "1023 B", "1.00 MiB", "300 GiB"]);
        assert_eq!(Unit::Share.format(Some(&0.256.into())), "25.6 %");
        assert_eq!(Unit::Seconds.format(None), "-");
        let seconds = [-2.5, f64::NAN, 1e308].map(|number| Unit::Seconds.format(Some(&Cell::Number(number))));
        assert_eq!(seconds, ["-2.50 s", "-", "1.0000e308 s"]);
    }

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
    }

    #[test]
    fn units_are_found_by_their_names() {
        assert_eq!((Unit::named("seconds"), Unit::named("furlongs")), (Some(Unit::Seconds), None));
    }
}

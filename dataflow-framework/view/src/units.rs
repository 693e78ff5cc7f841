//! Formatting of numbers.

/// Formats a number with separators between thousands.
pub(crate) fn count(number: u64) -> String {
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

/// Formats a duration in nanoseconds by its first three digits.
pub(crate) fn time(ns: u64) -> String {
    let steps = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    scaled(ns, &steps).unwrap_or_else(|| format!("{ns} ns"))
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    let steps = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    scaled(bytes, &steps).unwrap_or_else(|| format!("{bytes} B"))
}

fn scaled(number: u64, steps: &[(u64, &str)]) -> Option<String> {
    let (step, unit) = steps.iter().find(|(step, _)| number >= *step)?;
    let scaled = number as f64 / *step as f64;
    let digits = match scaled {
        scaled if scaled < 10.0 => 2,
        scaled if scaled < 100.0 => 1,
        _ => 0,
    };
    Some(format!("{scaled:.digits$} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, time};

    #[test]
    fn numbers_have_three_digits_and_unit() {
        assert_eq!(
            [0, 999, 1_000, 24_510, 1_234_567].map(count),
            ["0", "999", "1,000", "24,510", "1,234,567"]
        );
        assert_eq!(
            [7, 1_500, 40_000_000, 125_000_000_000].map(time),
            ["7 ns", "1.50 µs", "40.0 ms", "125 s"]
        );
        assert_eq!([0, 1_023, 1 << 20, 300 << 30].map(bytes), ["0 B", "1023 B", "1.00 MiB", "300 GiB"]);
    }
}

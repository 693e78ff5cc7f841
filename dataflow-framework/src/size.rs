//! Numbers of bytes as text with a unit.

/// Parses a number of bytes, such as `4GiB` or `500 MB`.
///
/// # Errors
/// If it is not a number of bytes, or 0.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("", 1),
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ];
    let wrong = || format!("{text:?} is not a number of bytes such as 4GiB");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let bytes = match number.split_once('.') {
        None => number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit)),
        Some((whole, part)) if part.len() <= 6 => {
            let scale = 10_u64.pow(u32::try_from(part.len()).unwrap_or_default());
            let digits: Option<u64> = format!("{whole}{part}").parse().ok();
            digits.and_then(|digits| digits.checked_mul(*unit)).map(|bytes| bytes / scale)
        }
        Some(_) => None,
    };
    bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Formats a number of bytes with a unit.
pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, shown};

    #[test]
    fn byte_counts_are_parsed_and_formatted_with_units() {
        for (text, expected) in
            [("1", 1), ("4GiB", 4 << 30), ("500 MB", 500_000_000), ("1.5kib", 1_536), ("0.25 tib", 1 << 38)]
        {
            assert_eq!(parse(text), Ok(expected));
        }
        for text in ["", "0", "GiB", "-1", "4 Gi", "1e9", "99999999999TiB", "1.2.3MB", "0.0000001GiB"] {
            assert_eq!(parse(text), Err(format!("{text:?} is not a number of bytes such as 4GiB")));
        }
        assert_eq!([999, 1 << 20, 1_600_000].map(shown), ["999 bytes", "1.0 MiB", "1.5 MiB"]);
    }
}

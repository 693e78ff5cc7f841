//! Values of arguments and results: JSON that every language reads alike.

use thiserror::Error;

/// The maximum number of nested arrays and objects in a value.
const DEPTH_MAX: usize = 100;

/// The largest integer up to which all integers are exact in a double.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The reasons for which JSON is not a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum ValueError {
    #[error("it is nested more than {DEPTH_MAX} deep")]
    Deep,
    #[error(
        "the integer {number} is larger than 2^53, beyond which languages round: write {{\"$i\":\"{number}\"}}"
    )]
    Integer { number: String },
    #[error("the number {number} is larger than any double: write {{\"$f\":\"inf\"}} for an infinity")]
    Float { number: String },
    #[error("a string has half of a surrogate pair, which is no character")]
    Surrogate,
}

/// Checks a text that is valid JSON.
pub(crate) fn check_value(json: &str) -> Result<(), ValueError> {
    check_nested(json, 0)
}

/// Checks a text that is valid JSON, and becomes a part of a value in which it is so deep.
pub(crate) fn check_nested(json: &str, mut depth: usize) -> Result<(), ValueError> {
    let (bytes, mut at) = (json.as_bytes(), 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = check_string(bytes, at + 1)?,
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(ValueError::Deep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                check_number(&json[at..at + length])?;
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn check_number(number: &str) -> Result<(), ValueError> {
    let value: f64 = number.parse().unwrap_or(f64::INFINITY);
    let number = || number.chars().take(400).collect();
    if !value.is_finite() {
        return Err(ValueError::Float { number: number() });
    }
    let number: String = number();
    let is_exact = value.abs() < INTEGER_MAX || number.trim_start_matches('-') == "9007199254740992";
    if !is_exact && !number.contains(['.', 'e', 'E']) {
        return Err(ValueError::Integer { number });
    }
    Ok(())
}

/// Checks the string that starts here, after its quotation mark. Returns the place of its end.
fn check_string(bytes: &[u8], mut at: usize) -> Result<usize, ValueError> {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(at),
            b'\\' if bytes.get(at + 1) == Some(&b'u') => {
                let unit = |at: usize| {
                    let escape = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
                    u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()
                };
                at += match unit(at) {
                    Some(0xd800..=0xdbff) => {
                        let low = unit(at + 6).filter(|low| (0xdc00..=0xdfff).contains(low));
                        low.map(|_| 12).ok_or(ValueError::Surrogate)?
                    }
                    Some(0xdc00..=0xdfff) => return Err(ValueError::Surrogate),
                    _ => 6,
                };
            }
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_values_are_accepted() {
        for json in [
            "null",
            "-1.5e300",
            "[9007199254740992,-9007199254740992]",
            "1e22",
            r#"{"a":[1,"ä","\ud83d\ude00","\\ud800"]}"#,
            "[]",
        ] {
            assert_eq!(check_value(json), Ok(()), "{json}");
        }
        let nested = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
        assert_eq!(check_value(&nested), Ok(()));
    }

    #[test]
    fn values_that_languages_read_differently_are_refused() {
        let integer = |number: &str| ValueError::Integer { number: number.to_owned() };
        assert_eq!(check_value("18446744073709551616"), Err(integer("18446744073709551616")));
        assert_eq!(check_value("[-9007199254740993]"), Err(integer("-9007199254740993")));
        assert!(matches!(check_value("1e999"), Err(ValueError::Float { .. })));
        for json in [r#""\ud800""#, r#""\udc00\ud800""#, r#"["\ud800\u0041"]"#, r#""\ud83dx""#] {
            assert_eq!(check_value(json), Err(ValueError::Surrogate), "{json}");
        }
        assert_eq!(check_value(&"[".repeat(DEPTH_MAX + 1)), Err(ValueError::Deep));
    }
}

//! Compares two builds of a release, bit by bit.

use anyhow::{Result, bail};

use super::files::{File, Files};

/// The maximum number of listed differences.
const TOLD_MAX: usize = 20;

/// Compares the results of two builds.
///
/// # Errors
/// The files that differ, and the positions.
pub(crate) fn same(first: &Files, second: &Files) -> Result<()> {
    let differences = differences(first, second);
    if differences.is_empty() {
        return Ok(());
    }
    let told = differences[..differences.len().min(TOLD_MAX)].join("\n    ");
    let more = differences.len().saturating_sub(TOLD_MAX);
    let more = if more == 0 { String::new() } else { format!("\n    and {more} more") };
    bail!("the same source gave two different results in two folders:\n    {told}{more}")
}

fn differences(first: &Files, second: &Files) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, one) in first.iter() {
        match second.get(name) {
            None => differences.push(format!("{name}: in the first build only")),
            Some(other) => differences.extend(difference(one, other).map(|what| format!("{name}: {what}"))),
        }
    }
    let missing = second.iter().filter(|(name, _)| first.get(name).is_none());
    differences.extend(missing.map(|(name, _)| format!("{name}: in the second build only")));
    differences
}

fn difference(one: &File, other: &File) -> Option<String> {
    if one.kind != other.kind {
        return Some("a program in one of them only".to_owned());
    }
    if one.bytes == other.bytes {
        return None;
    }
    let same = one.bytes.iter().zip(&other.bytes).take_while(|(one, other)| one == other).count();
    let (one, other) = (one.bytes.len(), other.bytes.len());
    Some(format!("{one} and {other} bytes, which differ from byte {same} on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(contents: &[(&str, &str)]) -> Files {
        let mut files = Files::default();
        for (name, text) in contents {
            files.add(name, *text).unwrap();
        }
        files
    }

    #[test]
    fn equal_builds_are_equal() {
        let one = files(&[("a", "1"), ("b", "2")]);
        same(&one, &files(&[("b", "2"), ("a", "1")])).unwrap();
    }

    #[test]
    fn every_difference_is_listed_with_position() {
        let first = files(&[("a", "same"), ("b", "here 1"), ("c", "only")]);
        let mut second = files(&[("a", "same"), ("b", "here 22"), ("d", "only")]);
        second.add_program("e", "").unwrap();
        let error = same(&first, &second).unwrap_err().to_string();
        for line in [
            "\n    b: 6 and 7 bytes, which differ from byte 5 on",
            "\n    c: in the first build only",
            "\n    d: in the second build only",
        ] {
            assert!(error.contains(line), "{error}");
        }
        assert!(!error.contains("\n    a:") && !error.contains("more"), "{error}");
    }

    #[test]
    fn permission_change_is_a_difference_and_list_is_bounded() {
        let mut program = Files::default();
        program.add_program("a", "1").unwrap();
        assert!(same(&files(&[("a", "1")]), &program).unwrap_err().to_string().contains("a program in one"));
        let mut many = Files::default();
        for number in 0..TOLD_MAX + 3 {
            many.add(&number.to_string(), "").unwrap();
        }
        assert!(same(&many, &Files::default()).unwrap_err().to_string().ends_with("\n    and 3 more"));
    }
}

//! Patterns: texts with variables in braces, and names of files with `*`.

use std::{collections::BTreeMap, fs, io, path::Path};

/// The values of all variables.
pub(crate) type Variables = BTreeMap<String, Vec<String>>;

/// The maximum number of combinations of values.
pub(crate) const COMBINATIONS_MAX: usize = 100_000;

/// The values of some variables.
pub(crate) type Binding<'a> = BTreeMap<&'a str, &'a str>;

/// A part of a pattern: a text, or the name of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Variable(&'a str),
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Divides a pattern. `${name}` belongs to the shell.
fn parts(pattern: &str) -> Vec<Part<'_>> {
    let (mut parts, mut text_start, mut from) = (Vec::new(), 0, 0);
    while let Some(open) = pattern[from..].find('{').map(|at| from + at) {
        from = open + 1;
        let Some(close) = pattern[from..].find('}').map(|at| from + at) else { break };
        let name = &pattern[from..close];
        if is_name(name) && !pattern[..open].ends_with('$') {
            parts.extend([Part::Text(&pattern[text_start..open]), Part::Variable(name)]);
            (text_start, from) = (close + 1, close + 1);
        }
    }
    parts.push(Part::Text(&pattern[text_start..]));
    parts
}

/// Returns the names of the variables of a pattern.
pub(crate) fn names(pattern: &str) -> Vec<&str> {
    let parts = parts(pattern).into_iter();
    let names = parts.filter_map(|part| match part {
        Part::Variable(name) => Some(name),
        Part::Text(_) => None,
    });
    names.collect()
}

/// Replaces the variables that have values.
pub(crate) fn fill<'a>(pattern: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut filled = String::new();
    for part in parts(pattern) {
        match part {
            Part::Text(text) => filled += text,
            Part::Variable(name) => match value(name) {
                Some(value) => filled += value,
                None => filled.extend(["{", name, "}"]),
            },
        }
    }
    filled
}

/// Returns all combinations of the values of some variables, the last one varying fastest; `None` if there are too many.
pub(crate) fn combinations<'a>(names: &[&'a str], variables: &'a Variables) -> Option<Vec<Binding<'a>>> {
    let mut all = vec![Binding::new()];
    for name in names {
        let values = variables.get(*name)?;
        if all.len() * values.len() > COMBINATIONS_MAX {
            return None;
        }
        let with = |one: &Binding<'a>, value: &'a str| {
            one.iter().map(|(n, v)| (*n, *v)).chain([(*name, value)]).collect()
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    Some(all)
}

/// Divides a pattern of names into its folder and the texts before and after the `*`.
fn divided(pattern: &str) -> Option<(&str, &str, &str)> {
    let (folder, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
    let (before, after) = name.split_once('*').filter(|(_, after)| !after.contains('*'))?;
    Some((folder, before, after))
}

/// Returns the text for which the `*` stands in a name.
fn middle<'a>(name: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let middle = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    middle.filter(|middle| !middle.is_empty() && !name.starts_with('.'))
}

/// Returns whether the pattern of a variable would match a file.
pub(crate) fn is_match(pattern: &str, path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    divided(pattern.strip_prefix("./").unwrap_or(pattern)).is_some_and(|(parent, before, after)| {
        Path::new(parent) == Path::new(folder) && middle(name, before, after).is_some()
    })
}

/// Returns the sorted texts in place of the `*` in the names of matching files. Ignores folders, and files with a leading
/// dot.
pub(crate) fn matches(folder: &Path, pattern: &str) -> io::Result<Vec<String>> {
    let Some((parent, before, after)) = divided(pattern) else {
        let text = "a pattern has one `*`, in the name of the file, such as \"samples/*.fq\"";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(parent))? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(middle) = middle(&name.to_string_lossy(), before, after).map(str::to_owned) else {
            continue;
        };
        let invalid =
            |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", name.display()));
        let metadata = fs::metadata(entry.path());
        if metadata.map_err(|error| invalid(format!("{error}; repair or remove the link")))?.is_file() {
            if name.to_str().is_none() {
                return Err(invalid("the name is not UTF-8: rename the file".to_owned()));
            }
            found.push(middle);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_variables_are_replaced_and_other_braces_stay() {
        let pattern = "{s}/{s}.x ${s} {print $1} {other} {";
        let filled = fill(pattern, |name| (name == "s").then_some("one"));
        assert_eq!(filled, "one/one.x ${s} {print $1} {other} {");
        assert_eq!(names(pattern), ["s", "s", "other"]);
    }

    #[test]
    fn star_matches_names_of_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.fq", "a.fq", ".c.fq", ".fq", "a.fastq"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("d.fq")).unwrap();
        assert_eq!(matches(folder.path(), "*.fq").unwrap(), ["a", "b"]);
    }

    #[cfg(unix)]
    #[test]
    fn matching_names_without_a_readable_file_are_errors() {
        use std::os::unix::{ffi::OsStrExt as _, fs::symlink};

        let folder = tempfile::tempdir().unwrap();
        symlink("nothing", folder.path().join("a.fq")).unwrap();
        assert_eq!(matches(folder.path(), "*.txt").unwrap(), [""; 0]);
        let error = matches(folder.path(), "*.fq").unwrap_err().to_string();
        assert!(error.contains("a.fq: No such file"), "{error}");
        fs::remove_file(folder.path().join("a.fq")).unwrap();
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff.fq")), "").unwrap();
        let error = matches(folder.path(), "*.fq").unwrap_err().to_string();
        assert!(error.contains("the name is not UTF-8: rename"), "{error}");
    }
}

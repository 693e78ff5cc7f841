//! Output files of a command, and checks of their names before the work starts.

use std::{fs, path::Path};

use taskwork::lowlevel::OutputFile;

use crate::Failure;

/// Checks that files can be written later: each output, named by its option, is in an existing folder, and is neither a
/// folder, nor one of the inputs, nor another output. No folder is created.
///
/// # Errors
/// A usage error with the option and the file.
pub fn check_outputs(inputs: &[&Path], outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let outputs: Vec<(&str, &Path)> =
        outputs.iter().filter_map(|(option, path)| path.map(|path| (*option, path))).collect();
    for (place, &(option, path)) in outputs.iter().enumerate() {
        let refused = |why: String| Err(Failure::usage(format!("{option} {}: {why}", path.display())));
        if path.is_dir() {
            return refused("it is a folder; expected the name of a file".to_owned());
        }
        let folder = folder_of(path);
        if !folder.is_dir() {
            return refused(format!("there is no folder {}: create it first", folder.display()));
        }
        if inputs.iter().any(|input| is_same_file(input, path)) {
            return refused("it is an input, which would be replaced".to_owned());
        }
        if let Some((other, _)) = outputs[..place].iter().find(|(_, other)| is_same_file(other, path)) {
            return refused(format!("{other} writes the same file"));
        }
    }
    Ok(())
}

/// Writes a text to a file that the user named. See [`OutputFile`] for links, devices and modes.
///
/// # Errors
/// If the file cannot be written.
pub fn write_output(path: &Path, text: &str) -> Result<(), Failure> {
    OutputFile::new(path)
        .write(|to| to.write_all(text.as_bytes()))
        .map_err(|error| Failure::usage(format!("{} cannot be written: {error}", path.display())))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns whether two paths refer to the same file, also through links. Devices such as `/dev/null` may be repeated.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && has_same_id(&a, &b),
        (Err(_), Err(_)) => {
            let place =
                |path: &Path| Some((fs::canonicalize(folder_of(path)).ok()?, path.file_name()?.to_owned()));
            place(a).is_some_and(|a| place(b) == Some(a))
        }
        _ => false,
    }
}

#[cfg(unix)]
fn has_same_id(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn has_same_id(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_replaces_a_file_or_has_no_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("input"), "").unwrap();
        std::os::unix::fs::symlink(at("input"), at("soft")).unwrap();
        fs::hard_link(at("input"), at("hard")).unwrap();
        fs::create_dir(at("deep")).unwrap();
        let check = |a: &str, b: &str| {
            let (input, a, b) = (at("input"), at(a), at(b));
            check_outputs(&[&input], &[("--a", Some(&a)), ("--b", Some(&b)), ("--c", None)])
                .map_err(|refused| refused.to_string())
        };
        assert_eq!(check("one", "two"), Ok(()));
        for name in ["input", "soft", "hard", "deep/../input"] {
            let refused = check("one", name).unwrap_err();
            assert!(refused.starts_with("--b ") && refused.contains("is an input"), "{name}: {refused}");
        }
        assert!(check("one", "deep/../one").unwrap_err().contains("--a writes the same file"));
        assert!(check("deep", "two").unwrap_err().contains("is a folder"));
        assert!(check("no/one", "two").unwrap_err().contains("there is no folder"));
        let null = Path::new("/dev/null");
        assert!(check_outputs(&[null], &[("--a", Some(null)), ("--b", Some(null))]).is_ok());
    }
}

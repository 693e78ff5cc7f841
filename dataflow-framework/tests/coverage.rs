//! `docs/workflows-coverage.md`: each row names existing tests, or gives the reason why there is none.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The folders that are searched for tests.
const FOLDERS: [&str; 10] = [
    "dataflow-examples",
    "dataflow-framework",
    "dataflow-macros",
    "dataflow-view",
    "taskwork/src",
    "taskwork/tests",
    "taskwork-cli/src",
    "taskwork-operator/src",
    "tests",
    "zk/src",
];

/// The number of rows in the first table.
const ROWS: usize = 48;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the names of all functions with a test attribute.
fn tests() -> io::Result<BTreeSet<String>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root().join(folder), &mut files)?;
    }
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file)?;
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let function = ["fn ", "async fn "].iter().find_map(|begin| line.strip_prefix(begin));
            if let Some(function) = function {
                if is_test {
                    names.extend(function.split('(').next().map(str::to_owned));
                }
                is_test = false;
            } else {
                is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            }
        }
    }
    Ok(names)
}

/// Returns the cells of the rows of both tables.
fn rows() -> io::Result<Vec<Vec<String>>> {
    let text = fs::read_to_string(root().join("docs/workflows-coverage.md"))?;
    let rows = text.lines().filter(|line| line.starts_with('|') && !line.starts_with("|--"));
    let cells = |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let rows = rows.map(cells).filter(|cells: &Vec<String>| cells.last().is_some_and(|last| last != "tests"));
    Ok(rows.collect())
}

#[test]
fn coverage_row_names_existing_tests_or_reason() -> io::Result<()> {
    let tests = tests()?;
    assert!(tests.len() > 300, "the tests are found: {}", tests.len());
    for row in rows()? {
        let (named, here) = (&row[row.len() - 1], &row[row.len() - 2]);
        let names: Vec<_> = named.split('`').skip(1).step_by(2).collect();
        for name in &names {
            assert!(tests.contains(*name), "there is no test {name}, named in {row:?}");
        }
        let is_explained = ["ot yet", "not ours"].iter().any(|why| here.contains(why));
        assert!(!names.is_empty() || is_explained, "the row has neither a test nor a reason: {row:?}");
    }
    Ok(())
}

#[test]
fn coverage_rows_are_numbered_without_gaps() -> io::Result<()> {
    let numbers: Vec<usize> = rows()?.iter().filter_map(|row| row[0].parse().ok()).collect();
    assert!(numbers.into_iter().eq(1..=ROWS));
    Ok(())
}

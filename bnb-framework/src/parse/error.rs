//! Errors in input files.

use std::fmt;

/// An error in an input file: the whole message, with the file and, if it concerns a place, the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    file: String,
    /// The line, from 1; `None` if the error concerns the file as a whole.
    line: Option<usize>,
    what: String,
}

/// The maximum length of a word that is quoted in full, in characters.
const QUOTED_CHARS_MAX: usize = 40;

impl ReadError {
    /// Creates an error about a file as a whole.
    pub fn of_file(file: &str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, what: what.into() }
    }

    /// Creates an error about a line, counted from 1, from the found and the expected text.
    pub fn at(file: &str, line: usize, found: &str, expected: &str) -> Self {
        let what = format!("found {found}; expected {expected}");
        Self { file: file.to_owned(), line: Some(line), what }
    }
}

/// Returns a word in quotes, shortened if it is long.
pub(super) fn quoted(word: &str) -> String {
    let short: String = word.chars().take(QUOTED_CHARS_MAX).collect();
    let more = if short.len() < word.len() { "…" } else { "" };
    format!("{short:?}{more}")
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, what } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: {what}"),
            None => write!(f, "{file}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

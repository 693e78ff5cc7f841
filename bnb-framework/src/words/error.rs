//! What is wrong with a file.

use std::fmt;

/// What is wrong with a file: the whole message, with the file and, where it has a place, the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    file: String,
    /// From 1; `None` if it is about the file as a whole.
    line: Option<usize>,
    what: String,
}

/// How long a word may be to be quoted whole, in characters.
const QUOTED_CHARS_MAX: usize = 40;

impl ReadError {
    /// What is wrong with a file as a whole.
    pub fn of_file(file: &str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, what: what.into() }
    }

    /// What stands on a line, counted from 1, and what should.
    pub fn at(file: &str, line: usize, found: &str, expected: &str) -> Self {
        let what = format!("found {found}; expected {expected}");
        Self { file: file.to_owned(), line: Some(line), what }
    }
}

/// A word in quotes, but never endless.
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

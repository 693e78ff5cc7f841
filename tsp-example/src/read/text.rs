//! The text of a file, line by line and word by word, each with its line number.

use std::path::Path;

use bnb_framework::parse;

use super::ReadError;

pub(super) struct Text {
    pub(super) file: String,
    content: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) line: usize,
    pub(super) word: &'a str,
}

impl Text {
    /// Reads a file of at most `bytes_max` bytes.
    pub(super) fn of(file: &Path, bytes_max: u64) -> Result<Self, ReadError> {
        let content = parse::text_of(file, bytes_max)?;
        Ok(Self { file: file.display().to_string(), content })
    }

    pub(super) fn new(file: &str, bytes: &[u8]) -> Result<Self, ReadError> {
        let content = parse::text_from(file, bytes, u64::MAX)?;
        Ok(Self { file: file.to_owned(), content })
    }

    /// Returns the lines that are not blank, trimmed, numbered from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> + Clone {
        let lines = parse::lines(&self.content).map(|(number, line)| (number, line.trim()));
        lines.filter(|(_, line)| !line.is_empty())
    }

    pub(super) fn last_line(&self) -> usize {
        parse::lines(self.content.trim_end()).count().max(1)
    }

    pub(super) fn error(
        &self,
        line: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> ReadError {
        ReadError::Content { file: self.file.clone(), line, found: found.into(), expected: expected.into() }
    }

    /// Parses a word as a whole number.
    pub(super) fn whole(&self, word: Word<'_>, expected: &str) -> Result<u64, ReadError> {
        word.word.parse().map_err(|_| self.error(word.line, quote(word.word), expected))
    }

    /// Parses a word as a finite number.
    pub(super) fn finite(&self, word: Word<'_>, expected: &str) -> Result<f64, ReadError> {
        // FORTRAN writes exponents with a D.
        let text = word.word.replace(['d', 'D'], "e");
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(self.error(word.line, quote(word.word), expected)),
        }
    }
}

/// Returns a text in quotes, shortened if it is long.
pub(super) fn quote(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 40;
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{start:?}…")
}

//! Reading the files of instances: words and numbers, and what to say when they are not as expected.
//!
//! Most formats of instances are numbers in a certain order, with white space between. [`Words`] gives them one by one, and whatever is wrong
//! is said with the file, the line, what was found, and what was expected.
//!
//! ```
//! use bnb_framework::words::{ReadError, Words};
//!
//! /// A capacity, then pairs of a value and a weight.
//! fn parse(text: &str) -> Result<(u64, Vec<(u64, u64)>), ReadError> {
//!     let mut words = Words::new("items.txt", text);
//!     let capacity = words.number("a capacity")?;
//!     let mut items = Vec::new();
//!     while !words.is_at_end() {
//!         items.push((words.number("a value")?, words.number("a weight")?));
//!     }
//!     Ok((capacity, items))
//! }
//!
//! assert_eq!(parse("50\n60 10\n100 20").unwrap(), (50, vec![(60, 10), (100, 20)]));
//! let error = parse("50\n60 10\n100 heavy").unwrap_err();
//! assert_eq!(error.to_string(), "items.txt:3: found \"heavy\"; expected a weight");
//! ```

use std::{fmt, fs, ops::RangeInclusive, path::Path, str::FromStr};

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    file: String,
    /// From 1; `None` if the file could not be read at all.
    line: Option<usize>,
    found: String,
    expected: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, found, expected } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: found {found}; expected {expected}"),
            None => write!(f, "{file}: {found}; expected {expected}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// How long a word may be to be quoted whole, in characters.
const QUOTED_CHARS_MAX: usize = 40;

/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The text of a file. What is no UTF-8 in it, in a comment say, is replaced.
///
/// # Errors
/// If it cannot be read, or is larger than [`FILE_BYTES_MAX`].
pub fn text_of(file: &Path) -> Result<String, ReadError> {
    let wrong = |found: String| ReadError {
        file: file.display().to_string(),
        line: None,
        found,
        expected: "a file that can be read".to_owned(),
    };
    let size = fs::metadata(file).map_err(|error| wrong(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(wrong(format!("{size} bytes, more than {FILE_BYTES_MAX}")));
    }
    let bytes = fs::read(file).map_err(|error| wrong(error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The words of a text, one after another.
#[derive(Debug, Clone)]
pub struct Words<'a> {
    file: &'a str,
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    line: usize,
    /// What is left of the line.
    rest: std::str::SplitWhitespace<'a>,
    lines_in_all: usize,
}

impl<'a> Words<'a> {
    /// The words of a text; `file` is what to call it.
    pub fn new(file: &'a str, text: &'a str) -> Self {
        // A mark at the beginning, which some editors write, is no word.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rest = "".split_whitespace();
        Self { file, lines: text.lines().enumerate(), line: 0, rest, lines_in_all: text.lines().count() }
    }

    /// The next word.
    fn next(&mut self) -> Option<&'a str> {
        loop {
            if let Some(word) = self.rest.next() {
                return Some(word);
            }
            let (line, text) = self.lines.next()?;
            self.line = line + 1;
            self.rest = text.split_whitespace();
        }
    }

    /// The next word, whatever it is.
    ///
    /// # Errors
    /// If there is none.
    pub fn word(&mut self, expected: &str) -> Result<&'a str, ReadError> {
        self.next().ok_or_else(|| self.missing(expected))
    }

    /// The next word, as a number or whatever is read from a single word.
    ///
    /// # Errors
    /// If there is none, or it is something else.
    pub fn number<T: FromStr>(&mut self, expected: &str) -> Result<T, ReadError> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| self.wrong(word, expected))
    }

    /// The next word, as a number within a range.
    ///
    /// # Errors
    /// If there is none, or it is something else.
    pub fn number_in<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        what: &str,
        range: RangeInclusive<T>,
    ) -> Result<T, ReadError> {
        let expected = format!("{what} from {} to {}", range.start(), range.end());
        let word = self.word(&expected)?;
        let number = word.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(word, &expected))
    }

    /// The next word of the line that the last one was on.
    ///
    /// # Errors
    /// If there is none.
    pub fn word_here(&mut self, expected: &str) -> Result<&'a str, ReadError> {
        let word = self.rest.next();
        word.ok_or_else(|| ReadError { found: "the end of the line".to_owned(), ..self.wrong("", expected) })
    }

    /// The next word of this line, as a number within a range.
    ///
    /// # Errors
    /// If there is none, or it is something else.
    pub fn number_here<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        what: &str,
        range: RangeInclusive<T>,
    ) -> Result<T, ReadError> {
        let expected = format!("{what} from {} to {}", range.start(), range.end());
        let word = self.word_here(&expected)?;
        let number = word.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(word, &expected))
    }

    /// Whether there are no words left.
    pub fn is_at_end(&self) -> bool {
        self.clone().next().is_none()
    }

    /// The next word, without taking it.
    pub fn peek(&self) -> Option<&'a str> {
        self.clone().next()
    }

    /// Passes over the rest of the line that the last word was on.
    pub fn skip_line(&mut self) {
        self.rest = "".split_whitespace();
    }

    /// Says that nothing is to follow.
    ///
    /// # Errors
    /// If something does.
    pub fn end(&mut self) -> Result<(), ReadError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(self.wrong(word, "the end of the file")),
        }
    }

    /// What is wrong with the word that was taken last.
    pub fn wrong(&self, found: &str, expected: &str) -> ReadError {
        let short: String = found.chars().take(QUOTED_CHARS_MAX).collect();
        let more = if short.len() < found.len() { "…" } else { "" };
        ReadError {
            file: self.file.to_owned(),
            line: Some(self.line),
            found: format!("{short:?}{more}"),
            expected: expected.to_owned(),
        }
    }

    /// That the file ends where something was expected.
    pub fn missing(&self, expected: &str) -> ReadError {
        ReadError {
            file: self.file.to_owned(),
            line: Some(self.lines_in_all.max(1)),
            found: "the end of the file".to_owned(),
            expected: expected.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let mut words = Words::new("f", "\u{feff}1 2\r\n\n\tthree");
        assert_eq!(words.number::<u8>("a number"), Ok(1));
        assert_eq!(words.number_in("a number", 2..=3), Ok(2));
        let wrong = words.number_in("a number", 4..=5).unwrap_err();
        assert_eq!(wrong.to_string(), "f:3: found \"three\"; expected a number from 4 to 5");
        let wrong = words.word("four").unwrap_err();
        assert_eq!(wrong.to_string(), "f:3: found the end of the file; expected four");
        assert_eq!(words.end(), Ok(()));
    }

    #[test]
    fn long_words_are_cut() {
        let long = "ü".repeat(100);
        let wrong = Words::new("f", &long).number::<u8>("a number").unwrap_err().to_string();
        assert!(wrong.contains("…") && wrong.chars().count() < 100, "{wrong}");
    }
}

//! Reading instance files: words and numbers, with precise messages about unexpected input.
//!
//! Most instance formats are numbers in a certain order, separated by white space. [`Words`] returns them one
//! by one; its errors contain the file, the line, the found and the expected text.
//!
//! ```
//! use bnb_framework::parse::{ReadError, Words};
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

//!
//! Every reader of instances accepts the same line ends and marks, because it divides its text with [`lines`]:
//! lines end with a line feed, a carriage return, or both; a byte order mark at the start and DOS end marks
//! (Ctrl-Z) at the end are not part of the text. [`text_of`] accepts regular files of limited size only.

mod error;
mod file;
mod lines;

use std::{fmt, ops::RangeInclusive, str::FromStr};

use self::error::quoted;
pub use self::{
    error::ReadError,
    file::{FILE_BYTES_MAX, text_from, text_of},
    lines::{Lines, lines},
};

/// The words of a text, one after another.
#[derive(Debug, Clone)]
pub struct Words<'a> {
    file: &'a str,
    lines: Lines<'a>,
    line: usize,
    /// The rest of the line.
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    /// Creates a reader of a text; `file` is its name in messages.
    pub fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, lines: lines(text), line: 0, rest: "".split_whitespace() }
    }

    fn next(&mut self) -> Option<&'a str> {
        loop {
            if let Some(word) = self.rest.next() {
                return Some(word);
            }
            let (line, text) = self.lines.next()?;
            self.line = line;
            self.rest = text.split_whitespace();
        }
    }

    /// Returns the next word.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn word(&mut self, expected: &str) -> Result<&'a str, ReadError> {
        self.next().ok_or_else(|| self.missing(expected))
    }

    /// Returns the next word, as a number or anything else that is parsed from a single word.
    ///
    /// # Errors
    /// Fails if there is none, or it is something else.
    pub fn number<T: FromStr>(&mut self, expected: &str) -> Result<T, ReadError> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| self.wrong(word, expected))
    }

    /// Returns the next word, as a number within a range.
    ///
    /// # Errors
    /// Fails if there is none, or it is something else.
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

    /// Returns the next word on the line of the last one.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn word_here(&mut self, expected: &str) -> Result<&'a str, ReadError> {
        self.rest.next().ok_or_else(|| self.at(self.line, "the end of the line", expected))
    }

    /// Returns the next word on this line, as a number within a range.
    ///
    /// # Errors
    /// Fails if there is none, or it is something else.
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

    /// Returns whether no words are left.
    pub fn is_at_end(&self) -> bool {
        self.clone().next().is_none()
    }

    /// Returns the number of words that are left, or one more than a maximum if there are more.
    pub fn count_until(&self, max: usize) -> usize {
        let mut rest = self.clone();
        std::iter::from_fn(|| rest.next()).take(max.saturating_add(1)).count()
    }

    /// Returns the next word without taking it.
    pub fn peek(&self) -> Option<&'a str> {
        self.clone().next()
    }

    /// Returns the next word on the line of the last one, without taking it.
    pub fn peek_here(&self) -> Option<&'a str> {
        self.rest.clone().next()
    }

    /// Returns the number of words after the last one on its line.
    pub fn count_here(&self) -> usize {
        self.rest.clone().count()
    }

    /// Returns the line number of the last word, from 1; 0 before the first.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Skips the rest of the line of the last word.
    pub fn skip_line(&mut self) {
        self.rest = "".split_whitespace();
    }

    /// Checks that no words are left.
    ///
    /// # Errors
    /// Fails if there are any.
    pub fn end(&mut self) -> Result<(), ReadError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(self.wrong(word, "the end of the file")),
        }
    }

    /// Checks that no words are left on the line of the last word. `expected` continues the error message
    /// with the content expected on separate lines.
    ///
    /// # Errors
    /// Fails if there are any.
    pub fn end_here(&mut self, expected: &str) -> Result<(), ReadError> {
        match self.rest.next() {
            None => Ok(()),
            Some(word) => {
                let separator = if expected.starts_with(char::is_alphanumeric) { ", then " } else { "" };
                Err(self.wrong(word, &format!("the end of the line{separator}{expected}")))
            }
        }
    }

    /// Returns an error about the last word taken.
    pub fn wrong(&self, found: &str, expected: &str) -> ReadError {
        self.at(self.line, &quoted(found), expected)
    }

    /// Returns an error about a line. `found` is a description, and is not quoted.
    pub fn at(&self, line: usize, found: &str, expected: &str) -> ReadError {
        ReadError::at(self.file, line, found, expected)
    }

    /// Returns an error for a file that ends where something was expected.
    pub fn missing(&self, expected: &str) -> ReadError {
        let lines = self.line + self.lines.clone().count();
        self.at(lines.max(1), "the end of the file", expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_line_of_wrong_word() {
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
    fn line_with_surplus_words_is_refused() {
        let mut words = Words::new("f", "1\n2 3 4\n\n");
        assert_eq!((words.line(), words.number::<u8>("one"), words.end_here("")), (0, Ok(1), Ok(())));
        assert_eq!(
            (words.peek_here(), words.number::<u8>("two"), words.peek_here()),
            (None, Ok(2), Some("3"))
        );
        let wrong = words.end_here(", and three").unwrap_err();
        assert_eq!(wrong.to_string(), "f:2: found \"3\"; expected the end of the line, and three");
        assert_eq!((words.number_here("four", 4..=4), words.line()), (Ok(4), 2));
        assert_eq!(words.missing("five").to_string(), "f:3: found the end of the file; expected five");
    }

    #[test]
    fn expected_word_after_the_end_of_a_line_is_separated() {
        let mut words = Words::new("f", "1 2");
        assert_eq!(words.number::<u8>("one"), Ok(1));
        let wrong = words.end_here("three").unwrap_err();
        assert_eq!(wrong.to_string(), "f:1: found \"2\"; expected the end of the line, then three");
    }

    #[test]
    fn long_words_are_cut() {
        let long = "ü".repeat(100);
        let wrong = Words::new("f", &long).number::<u8>("a number").unwrap_err().to_string();
        assert!(wrong.contains("…") && wrong.chars().count() < 100, "{wrong}");
    }
}

//! The lines of a text, whichever system it comes from.

/// Returns the lines of a text with their numbers, from 1.
///
/// A line ends with a line feed, a carriage return, or a carriage return and a line feed. A byte order mark at
/// the start is skipped, and so are DOS end marks (Ctrl-Z) at the end.
///
/// ```
/// use bnb_framework::parse::lines;
///
/// let found: Vec<_> = lines("one\rtwo\r\nthree\n\x1a").collect();
/// assert_eq!(found, [(1, "one"), (2, "two"), (3, "three")]);
/// ```
pub fn lines(text: &str) -> Lines<'_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let content = text.trim_end_matches(|c: char| c.is_whitespace() || c == END_MARK);
    let end = text[content.len()..].find(END_MARK).map_or(text.len(), |place| content.len() + place);
    Lines { rest: &text[..end], number: 0 }
}

/// The DOS end mark, Ctrl-Z.
const END_MARK: char = '\x1a';

/// The lines of a text: see [`lines`].
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let is_end = |&byte: &u8| byte == b'\n' || byte == b'\r';
        let length = self.rest.bytes().position(|byte| is_end(&byte)).unwrap_or(self.rest.len());
        let (line, end) = self.rest.split_at(length);
        let ends_in_both = end.starts_with("\r\n");
        self.rest = end.get(if ends_in_both { 2 } else { 1 }..).unwrap_or_default();
        self.number += 1;
        Some((self.number, line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::lines;

    fn all(text: &str) -> Vec<&str> {
        lines(text).map(|(_, line)| line).collect()
    }

    #[test]
    fn line_ends_of_all_systems_are_accepted() {
        for text in ["a\n\nb\n", "a\r\n\r\nb\r\n", "a\r\rb\r", "a\n\nb", "\u{feff}a\n\nb"] {
            assert_eq!(all(text), ["a", "", "b"], "{text:?}");
        }
        assert!(all("").is_empty() && all("\u{feff}").is_empty());
    }

    #[test]
    fn dos_end_marks_are_skipped_at_the_end_only() {
        for text in ["a\nb\x1a", "a\nb\n\x1a", "a\r\nb\r\n\x1a\r\n", "a\nb\n\x1a\x1a\x1a \n\x1a"] {
            assert_eq!(all(text), ["a", "b"], "{text:?}");
        }
        assert!(all("\x1a").is_empty());
        assert_eq!(all("a\x1ab\nc"), ["a\x1ab", "c"]);
        assert_eq!(all("a\n\x1a\nb\n"), ["a", "\x1a", "b"]);
    }

    proptest! {
        #[test]
        fn lines_without_carriage_returns_match_the_standard_library(text in "[ab\n]{0,30}") {
            prop_assert_eq!(all(&text), text.lines().collect::<Vec<_>>());
        }
    }
}

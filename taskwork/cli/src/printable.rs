//! Sanitizes names, reasons and labels from znodes and files, which may contain anything, for display.
//!
//! Terminals interpret some characters as commands, and others change the order or the width of the text around them:
//! all of these are replaced or removed.

/// Replaces a character that must not be displayed.
pub const REPLACEMENT: char = '?';

/// Returns the displayed form of a character; `None` if it only changes the appearance of others.
pub fn character(c: char) -> Option<char> {
    match c {
        ' '..='~' => Some(c),
        // Variation selectors: terminals disagree about the width of the result.
        '\u{fe00}'..='\u{fe0f}' => None,
        _ if c.is_whitespace() => Some(' '),
        _ if shows_itself(c) => Some(c),
        _ => Some(REPLACEMENT),
    }
}

/// Returns whether a non-ASCII character is printable, or a mark on a printable one. Control characters, including
/// those of text direction, characters without width and unassigned ones are not.
fn shows_itself(c: char) -> bool {
    // A mark is escaped only at the start of a text.
    let text = String::from_iter(['a', c]);
    text.escape_debug().nth(2).is_none()
}

/// Sanitizes a text to one line.
pub fn line(text: &str) -> String {
    text.chars().filter_map(character).collect()
}

/// Sanitizes a text, and keeps its line breaks.
pub fn lines(text: &str) -> String {
    text.chars().filter_map(|c| if c == '\n' { Some(c) } else { character(c) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\u{202e}txt\u{200b}\u{200d}\u{feff}\u{e0041}";

    #[test]
    fn control_characters_are_replaced() {
        for shown in [line(HOSTILE), lines(HOSTILE)] {
            assert_eq!(shown, "?]0;owned??[2J?31m ?txt????");
        }
        assert_eq!((line("a\nb\tc").as_str(), lines("a\nb\tc").as_str()), ("a b c", "a\nb c"));
    }

    #[test]
    fn texts_in_all_scripts_are_kept() {
        for text in ["Zoë", "Zoe\u{308}", "旅行商人", "тур", "a \"b\" 'c' \\d", "😀", "हिन्दी", "– … µ"]
        {
            assert_eq!(line(text), text);
        }
    }
}

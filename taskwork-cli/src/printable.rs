//! Texts of others on a terminal: names, reasons, labels come from znodes and files, which may hold anything.
//!
//! A terminal takes some characters for commands, and others change the order or the width of what is around them: none
//! of these is passed on.

/// What stands for a character that is not shown.
pub const REPLACEMENT: char = '?';

/// Returns what is shown of a character; `None` if it only changes how another one looks.
pub fn character(c: char) -> Option<char> {
    match c {
        ' '..='~' => Some(c),
        // Variation selectors: terminals do not agree on the width of what they change.
        '\u{fe00}'..='\u{fe0f}' => None,
        _ if c.is_whitespace() => Some(' '),
        _ if shows_itself(c) => Some(c),
        _ => Some(REPLACEMENT),
    }
}

/// Returns whether a character that is not ASCII is a sign or a mark on one. Controls, those of the direction of the
/// text, those without width, and those that mean nothing, are not.
fn shows_itself(c: char) -> bool {
    // A mark is escaped only if it stands at the beginning.
    let text = String::from_iter(['a', c]);
    text.escape_debug().nth(2).is_none()
}

/// Returns a text in one line.
pub fn line(text: &str) -> String {
    text.chars().filter_map(character).collect()
}

/// Returns a text that may have several lines.
pub fn lines(text: &str) -> String {
    text.chars().filter_map(|c| if c == '\n' { Some(c) } else { character(c) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\u{202e}txt\u{200b}\u{200d}\u{feff}\u{e0041}";

    #[test]
    fn no_text_controls_a_terminal() {
        for shown in [line(HOSTILE), lines(HOSTILE)] {
            assert_eq!(shown, "?]0;owned??[2J?31m ?txt????");
        }
        assert_eq!((line("a\nb\tc").as_str(), lines("a\nb\tc").as_str()), ("a b c", "a\nb c"));
    }

    #[test]
    fn texts_of_all_languages_stay_as_they_are() {
        for text in ["Zoë", "Zoe\u{308}", "旅行商人", "тур", "a \"b\" 'c' \\d", "😀", "हिन्दी", "– … µ"]
        {
            assert_eq!(line(text), text);
        }
    }
}

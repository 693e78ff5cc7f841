//! Pictures of solutions, as SVG: bounded in size, readable on light and dark backgrounds, with a title and a
//! description for screen readers.

mod chart;
mod markup;

use std::fmt::Write as _;

pub use self::chart::{Improvements, Step};
use self::markup::{STYLE, number};
use taskwork::display::xml_escaped as escaped;

/// The maximum number of points of one line or set of dots; of more, every second, third, … is drawn.
pub const POINTS_MAX: usize = 20_000;

/// The maximum size of the drawn elements, in bytes; further elements are omitted.
pub const BYTES_MAX: usize = 2 << 20;

const TEXT_CHARS_MAX: usize = 200;

/// The space between two adjacent pictures.
const BETWEEN: f64 = 24.0;

/// The role of a line, a dot or a text; the background determines the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// The subject of the picture.
    Main,
    /// A highlight.
    Mark,
    /// Axes and grids.
    Faint,
}

/// A picture. Coordinates are in pixels, from the upper left.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    width: f64,
    height: f64,
    title: String,
    description: String,
    body: String,
    /// Whether something was left out.
    is_full: bool,
}

impl Picture {
    /// Creates an empty picture of a size, from 1 to 10,000 pixels each way. The title names the subject, and the
    /// description explains the content in words.
    pub fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        let size = |pixels: f64| if pixels.is_finite() { pixels.clamp(1.0, 10_000.0) } else { 1.0 };
        Self {
            width: size(width),
            height: size(height),
            title: title.to_owned(),
            description: description.to_owned(),
            body: String::new(),
            is_full: false,
        }
    }

    /// Draws a line through points, back to the first one if it is `closed`.
    pub fn line(&mut self, ink: Ink, points: &[(f64, f64)], closed: bool) {
        let mut path = String::new();
        for (place, (x, y)) in thinned(points).enumerate() {
            let step = if place == 0 { "M" } else { "L" };
            // Writing into a string cannot fail.
            let _ = write!(path, "{step}{} {}", number(x), number(y));
        }
        if !path.is_empty() {
            let end = if closed { "Z" } else { "" };
            self.add(&format!("<path class=\"line {}\" d=\"{path}{end}\"/>\n", ink.class()));
        }
    }

    /// Draws dots.
    pub fn dots(&mut self, ink: Ink, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in thinned(points) {
            let _ = write!(path, "M{} {}h0", number(x), number(y));
        }
        if !path.is_empty() {
            self.add(&format!("<path class=\"dot {}\" d=\"{path}\"/>\n", ink.class()));
        }
    }

    /// Writes a text that starts at a point.
    pub fn text(&mut self, ink: Ink, (x, y): (f64, f64), text: &str) {
        self.write(ink, (x, y), "start", text);
    }

    /// Writes a text that ends at a point.
    pub fn text_before(&mut self, ink: Ink, (x, y): (f64, f64), text: &str) {
        self.write(ink, (x, y), "end", text);
    }

    fn write(&mut self, ink: Ink, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
        let (x, y, text) = (number(x), number(y), escaped(&text));
        self.add(&format!(
            "<text class=\"{}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n",
            ink.class()
        ));
    }

    fn add(&mut self, element: &str) {
        if self.body.len() + element.len() > BYTES_MAX {
            self.is_full = true;
        } else {
            self.body += element;
        }
    }

    /// Puts another picture to the right of this one. The title stays.
    #[must_use]
    pub fn beside(mut self, other: &Self) -> Self {
        let x = self.width + BETWEEN;
        self.add(&format!("<g transform=\"translate({} 0)\">\n{}</g>\n", number(x), other.body));
        self.width = x + other.width;
        self.height = self.height.max(other.height);
        self.description = format!("{} {}: {}", self.description, other.title, other.description);
        self.is_full |= other.is_full;
        self
    }

    /// Returns the picture as a file.
    pub fn svg(&self) -> String {
        let (width, height) = (number(self.width), number(self.height));
        let (title, mut description) = (escaped(&self.title), escaped(&self.description));
        if self.is_full {
            description += " Parts are left out, since the picture would be too large.";
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
             <style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.body
        )
    }
}

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Mark => "mark",
            Self::Faint => "faint",
        }
    }
}

/// Returns the points that are drawn: of too many, some at equal distances, and the last one.
fn thinned(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let every = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.last().filter(|_| !(points.len() - 1).is_multiple_of(every));
    points.iter().step_by(every).chain(last).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_title_description_and_both_backgrounds() {
        let mut picture = Picture::new(100.0, 50.0, "A & B", "A line <from> A to B.");
        picture.line(Ink::Main, &[(0.0, 1.0), (2.25, 3.0)], true);
        picture.dots(Ink::Mark, &[(0.0, 1.0)]);
        picture.text(Ink::Faint, (1.0, 2.0), "\"x\"\u{1}");
        let svg = picture.svg();
        for part in [
            "<title id=\"title\">A &amp; B</title>",
            "<desc id=\"description\">A line &lt;from&gt; A to B.</desc>",
            "d=\"M0 1L2.2 3Z\"",
            "d=\"M0 1h0\"",
            "&quot;x&quot; </text>",
            "prefers-color-scheme:dark",
            "role=\"img\"",
        ] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn picture_size_is_bounded() {
        let many: Vec<(f64, f64)> = (0..1_000_000).map(|place| (f64::from(place), 1.0)).collect();
        let mut picture = Picture::new(f64::INFINITY, -3.0, "many", "Many points.");
        for _ in 0..20 {
            picture.line(Ink::Main, &many, false);
        }
        let svg = picture.svg();
        assert!(svg.len() < BYTES_MAX + 10_000, "{} bytes", svg.len());
        assert!(svg.contains("Parts are left out"));
        assert!(!svg.contains("inf") && !svg.contains("NaN"));
        assert!(thinned(&many).count() <= POINTS_MAX + 1);
        assert_eq!(thinned(&many).last(), Some((999_999.0, 1.0)), "it ends where it ends");
    }

    #[test]
    fn two_pictures_are_adjacent() {
        let mut left = Picture::new(100.0, 50.0, "left", "The left one.");
        left.line(Ink::Main, &[(0.0, 0.0), (1.0, 1.0)], false);
        let right = Picture::new(60.0, 80.0, "right", "The right one.");
        let svg = left.beside(&right).svg();
        assert!(svg.contains("width=\"184\" height=\"80\""), "{svg}");
        assert!(svg.contains("The left one. right: The right one.") && svg.contains("translate(124 0)"));
    }
}

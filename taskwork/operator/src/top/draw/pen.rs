//! Writes texts into the buffer of terminal cells. All drawing passes through here, so that no text can leave its area
//! or control the terminal.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use crate::top::text::{fit, width};

/// The capabilities of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::top) struct Look {
    pub(in crate::top) is_ascii: bool,
    pub(in crate::top) has_colours: bool,
}

/// Draws according to the capabilities of a terminal.
pub(super) struct Pen<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) look: Look,
}

impl Look {
    #[allow(clippy::unused_self, reason = "the other styles depend on it")]
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    /// The style of captions.
    pub(super) fn bold(self) -> Style {
        self.plain().add_modifier(Modifier::BOLD)
    }

    pub(super) fn reversed(self) -> Style {
        self.plain().add_modifier(Modifier::REVERSED)
    }

    /// Returns a style with a colour, if the terminal has colours. Colours only repeat information that is in the text.
    pub(super) fn colour(self, colour: Color) -> Style {
        if self.has_colours { self.plain().fg(colour) } else { self.plain() }
    }
}

impl Pen<'_> {
    /// Returns a text that fits into a width.
    pub(super) fn fit(&self, text: &str, columns: usize) -> String {
        fit(text, columns, self.look.is_ascii)
    }

    /// Writes a text into a limited number of columns. Returns the number of columns used.
    pub(super) fn text(&mut self, x: u16, y: u16, columns: usize, text: &str, style: Style) -> usize {
        let area = self.buffer.area;
        if y >= area.bottom() || x >= area.right() {
            return 0;
        }
        let columns = columns.min(usize::from(area.right() - x));
        let text = self.fit(text, columns);
        self.buffer.set_stringn(x, y, &text, columns, style);
        width(&text)
    }

    /// Writes a right-aligned text.
    pub(super) fn right(&mut self, place: Rect, y: u16, text: &str, style: Style) {
        let text = self.fit(text, usize::from(place.width));
        let before = place.width.saturating_sub(u16::try_from(width(&text)).unwrap_or(u16::MAX));
        self.text(place.x + before, y, usize::from(place.width), &text, style);
    }

    /// Writes a line over the whole width, as a bar.
    pub(super) fn bar(&mut self, place: Rect, text: &str) {
        let style = self.look.reversed();
        self.buffer.set_style(place, style);
        self.text(place.x, place.y, usize::from(place.width), text, style);
    }

    /// Writes lines from the top of an area, as many as fit.
    pub(super) fn lines(&mut self, place: Rect, lines: impl IntoIterator<Item = (String, Style)>) {
        for (y, (line, style)) in (place.y..place.bottom()).zip(lines) {
            self.text(place.x, y, usize::from(place.width), &line, style);
        }
    }
}

//! The rows of the nodes, as many as fit.

use ratatui::{
    layout::Rect,
    style::{Color, Style},
};

use super::Pen;
use crate::top::{
    rows::{Row, Standing},
    state::State,
    text::{UNKNOWN, bytes, maybe, number, percent, rate, whole, width},
};

/// A column: its name, its width, whether it is numeric, and the minimum width of the terminal that shows it.
struct Column {
    name: &'static str,
    width: u16,
    is_number: bool,
    from: u16,
    text: fn(&Row) -> String,
}

static COLUMNS: [Column; 11] = [
    Column { name: "NODE", width: 17, is_number: false, from: 0, text: |row| row.name.clone() },
    Column { name: "STATE", width: 7, is_number: false, from: 0, text: |row| row.state.text().to_owned() },
    Column { name: "BUSY", width: 7, is_number: true, from: 0, text: busy },
    Column { name: "IDLE", width: 8, is_number: true, from: 0, text: |row| maybe(row.idle, percent) },
    Column { name: "RATE", width: 9, is_number: true, from: 0, text: |row| maybe(row.rate, rate) },
    Column { name: "TASKS", width: 8, is_number: true, from: 0, text: |row| maybe(row.tasks, whole) },
    Column { name: "STOLEN", width: 8, is_number: true, from: 0, text: |row| maybe(row.stolen, whole) },
    Column { name: "MEMORY", width: 9, is_number: true, from: 0, text: |row| maybe(row.memory, bytes) },
    Column { name: "LOAD", width: 6, is_number: true, from: 90, text: |row| maybe(row.load, number) },
    Column { name: "PROGRAM", width: 18, is_number: false, from: 110, text: program },
    // The last column takes the remaining width.
    Column { name: "LABELS", width: 20, is_number: false, from: 130, text: |row| row.labels.clone() },
];

fn busy(row: &Row) -> String {
    row.pool.map_or_else(|| UNKNOWN.to_owned(), |pool| format!("{}/{}", pool.busy, pool.workers))
}

fn program(row: &Row) -> String {
    row.program.clone().unwrap_or_else(|| UNKNOWN.to_owned())
}

pub(super) fn draw(pen: &mut Pen<'_>, place: Rect, state: &mut State) {
    let rows = usize::from(place.height.saturating_sub(1));
    let selected = state.selected();
    state.window.show(selected, state.rows.len(), rows);
    let (bold, first) = (pen.look.bold(), state.window.first);
    line(pen, place, place.y, |column| column.name.to_owned(), |_| bold);
    if state.rows.is_empty() {
        let why = if state.filter.is_empty() { "no node is a member" } else { "no node matches" };
        pen.text(place.x + 1, place.y + 1, usize::from(place.width), why, pen.look.plain());
    }
    for (y, (at, row)) in (place.y + 1..place.bottom()).zip(state.rows.iter().enumerate().skip(first)) {
        let look = pen.look;
        let of_state = match row.state {
            Standing::Lost => look.colour(Color::Red),
            Standing::Leaving | Standing::Cordoned => look.colour(Color::Yellow),
            Standing::Leads | Standing::Works => look.colour(Color::Green),
            Standing::Member | Standing::Left => look.plain(),
        };
        line(
            pen,
            place,
            y,
            column_of(row),
            |column| if column.name == "STATE" { of_state } else { look.plain() },
        );
        if at == selected {
            let style = look.reversed();
            pen.buffer.set_style(Rect { y, height: 1, ..place }, style);
            // The selection is visible without reverse video, too.
            pen.text(place.x, y, 1, ">", style);
        }
    }
}

fn column_of(row: &Row) -> impl Fn(&Column) -> String {
    move |column| (column.text)(row)
}

/// Draws a line of the table.
fn line(
    pen: &mut Pen<'_>,
    place: Rect,
    y: u16,
    text: impl Fn(&Column) -> String,
    style: impl Fn(&Column) -> Style,
) {
    let mut x = place.x + 1;
    let shown = COLUMNS.iter().filter(|column| place.width >= column.from);
    let count = shown.clone().count();
    for (at, column) in shown.enumerate() {
        let room = place.right().saturating_sub(x);
        let is_last = at + 1 == count && !column.is_number;
        let columns = if is_last { room } else { column.width.min(room) };
        let text = pen.fit(&text(column), usize::from(columns));
        let free = columns.saturating_sub(u16::try_from(width(&text)).unwrap_or(columns));
        let before = if column.is_number { free } else { 0 };
        pen.text(x + before, y, usize::from(columns), &text, style(column));
        x += columns + 1;
    }
}

/// Returns a text about the range of displayed nodes.
pub(super) fn summary(state: &State) -> String {
    let (first, all) = (state.window.first, state.rows.len());
    let last = all.min(first + state.window.height);
    let filter =
        if state.filter.is_empty() { String::new() } else { format!(", matching {:?}", state.filter) };
    if all == 0 {
        return format!("no nodes{filter}");
    }
    format!("nodes {} to {last} of {all}, {}{filter}", first + 1, state.order.text())
}

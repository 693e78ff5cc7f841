//! The boxes above the picture: the list of jobs, and the help.

use ratatui::{
    layout::Rect,
    symbols::border,
    widgets::{Block, Clear, Widget as _},
};
use taskwork::view::Snapshot;

use super::Pen;
use crate::top::{
    jobs::{Chooser, jobs as to_choose},
    text::{maybe, percent, things},
};

/// The frame of a box in ASCII.
const ASCII_BORDER: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

const HELP: [&str; 18] = [
    "q, Esc, Ctrl-C     quit",
    "arrows, PgUp, PgDn, Home, End   select a node",
    "/                  show only nodes that match a text",
    "s                  sort by name, state, idle time, rate, tasks, memory",
    "j                  choose the displayed job",
    "d                  ask the selected node to leave, after a confirmation",
    "Ctrl-Z, Ctrl-L     suspend; redraw everything",
    "",
    "BUSY    workers with a task, of all workers",
    "IDLE    share of the workers' time in which they did not search",
    "RATE    units of work per second, by the last reports of the node;",
    "        of a node that left or just joined, over its whole time",
    "STOLEN  tasks received from other nodes",
    "MEMORY  of the node's process",
    "-       unknown",
    "",
    "Charts show the part of the job's time that was observed here.",
    "Gaps in a chart mean that the values are unknown.",
];

/// Draws an empty box with a frame, and returns the area in it.
fn framed(pen: &mut Pen<'_>, area: Rect, width: u16, height: u16, title: &str) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, pen.buffer);
    let set = if pen.look.is_ascii { ASCII_BORDER } else { border::PLAIN };
    let block = Block::bordered().border_set(set);
    let inner = block.inner(place);
    block.render(place, pen.buffer);
    pen.text(
        place.x + 2,
        place.y,
        usize::from(place.width.saturating_sub(4)),
        &format!(" {title} "),
        pen.look.bold(),
    );
    inner
}

pub(super) fn help(pen: &mut Pen<'_>, area: Rect) {
    let height = u16::try_from(HELP.len() + 2).unwrap_or(u16::MAX);
    let inner = framed(pen, area, 76, height, "Help: press any key to close");
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(1), ..inner };
    let style = pen.look.plain();
    pen.lines(inner, HELP.map(|line| (line.to_owned(), style)));
}

pub(super) fn jobs(pen: &mut Pen<'_>, area: Rect, snapshot: &Snapshot, chooser: &mut Chooser) {
    let jobs = to_choose(snapshot, &chooser.filter);
    let known = things(snapshot.jobs.len() as u64, "job");
    let title = format!("Choose one of {known}: type a part of it, Enter, or Esc");
    let (width, height) = (area.width.saturating_sub(4), area.height.saturating_sub(4));
    let inner = framed(pen, area, width, height, &title);
    let (bold, plain, reversed) = (pen.look.bold(), pen.look.plain(), pen.look.reversed());
    let columns = usize::from(inner.width);
    pen.text(inner.x, inner.y, columns, &format!(" > {}_", chooser.filter), bold);
    let list = Rect { y: inner.y + 1, height: inner.height.saturating_sub(1), ..inner };
    if jobs.is_empty() {
        pen.text(list.x, list.y, columns, " no job matches in its id, name, program or state", plain);
    }
    let selected = chooser.place(snapshot);
    chooser.window.show(selected, jobs.len(), usize::from(list.height));
    for (y, (at, id)) in (list.y..list.bottom()).zip(jobs.iter().enumerate().skip(chooser.window.first)) {
        let text = id.map_or_else(|| "the running job".to_owned(), |id| about(pen, snapshot, id));
        let mark = if at == selected { '>' } else { ' ' };
        let style = if at == selected { reversed } else { plain };
        pen.text(list.x, y, columns, &format!("{mark}{text}"), style);
    }
}

/// Returns a job as one line.
fn about(pen: &Pen<'_>, snapshot: &Snapshot, id: &str) -> String {
    let Some(job) = snapshot.jobs.get(id) else { return id.to_owned() };
    let record = job.about.record.as_deref();
    let (program, name) = record.map_or(("", ""), |record| (record.program.as_str(), record.name.as_str()));
    let (stage, done) = (job.about.stage.text(), maybe(job.about.share, percent));
    let (program, name) = (pen.fit(program, 14), pen.fit(name, 200));
    format!("{id:<13} {stage:<15} {done:>8}  {program:<14} {name}")
}

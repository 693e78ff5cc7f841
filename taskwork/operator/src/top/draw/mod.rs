//! Draws the cluster for any size of the terminal, with or without colours, in Unicode or in ASCII.
//!
//! ```text
//!   title      the cluster, and the time
//!   job        its identity; its progress; the best, the bound, the gap
//!   warnings   problems
//!   charts     the rate of work, and the workers, over time
//!   nodes      a row for each, as many as fit
//!   panels     the latest events, and ZooKeeper
//!   status     messages, questions, typed text
//!   keys
//! ```
//!
//! Only visible parts are computed.

mod charts;
pub(super) mod job;
mod nodes;
mod overlays;
pub(super) mod panels;
mod pen;

use ratatui::{Frame, layout::Rect};

pub(super) use self::pen::Look;
use self::pen::Pen;
use super::{
    state::{Leave, Mode, Source, State},
    text::{clock, things, width},
};

/// The minimum size for the complete picture.
const WIDTH_MIN: u16 = 80;
const HEIGHT_MIN: u16 = 24;

const KEYS: &str = " q quit   ? help   / filter   s sort   j job   d drain   arrows select";

/// The areas of the parts.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    title: Rect,
    job: Rect,
    warnings: Rect,
    charts: Rect,
    nodes: Rect,
    panels: Rect,
    status: Rect,
    keys: Rect,
}

/// Divides an area of at least the minimum size.
fn places(area: Rect) -> Places {
    let more = area.height.saturating_sub(HEIGHT_MIN);
    let (warnings, charts, panels) = (1 + (more / 12).min(3), 4 + (more / 10).min(5), 5 + (more / 8).min(8));
    let mut y = area.y;
    let mut take = |height: u16| {
        let place = Rect { y, height, ..area };
        y += height;
        place
    };
    let (title, job, warnings, charts) = (take(1), take(3), take(warnings), take(charts));
    let used = title.height + job.height + warnings.height + charts.height + panels + 2;
    let nodes = take(area.height.saturating_sub(used));
    Places { title, job, warnings, charts, nodes, panels: take(panels), status: take(1), keys: take(1) }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, look: Look) {
    let area = frame.area();
    let mut pen = Pen { buffer: frame.buffer_mut(), look };
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        return small(&mut pen, area, state);
    }
    let places = places(area);
    title(&mut pen, places.title, state);
    job::draw(&mut pen, places.job, state);
    job::warnings(&mut pen, places.warnings, state);
    charts::draw(&mut pen, places.charts, state);
    nodes::draw(&mut pen, places.nodes, state);
    panels::draw(&mut pen, places.panels, state);
    status(&mut pen, places.status, state);
    pen.bar(places.keys, KEYS);
    match &mut state.mode {
        Mode::Jobs(chooser) => overlays::jobs(&mut pen, area, &state.snapshot, chooser),
        Mode::Help => overlays::help(&mut pen, area),
        Mode::Nodes | Mode::Filter { .. } | Mode::Question(_) => {}
    }
}

/// The minimum width of the cluster's name in the title.
const NAME_ROOM_MIN: usize = 24;

fn title(pen: &mut Pen<'_>, place: Rect, state: &State) {
    let now_ms = state.now_ms();
    let (name, time) = match &state.source {
        Source::Cluster(path) => (path.clone(), clock(now_ms, now_ms)),
        Source::Record(file) => (format!("record {file}"), format!("at its end, {}", clock(now_ms, 0))),
    };
    let time = if state.is_whole || matches!(state.source, Source::Record(_)) {
        format!("{time} UTC ")
    } else {
        "the cluster is being read ".to_owned()
    };
    let snapshot = &state.snapshot;
    let members = snapshot.members.values().filter_map(|member| member.member.as_deref());
    let workers: u64 = members.map(|member| u64::from(member.workers)).sum();
    let open = snapshot.jobs.values().filter(|job| job.about.stage.is_open()).count();
    let counts = format!(
        "{}, {}, {}",
        things(snapshot.members.len() as u64, "node"),
        things(workers, "worker"),
        things(open as u64, "open job"),
    );
    pen.bar(place, "");
    let room = usize::from(place.width).saturating_sub(width(&time) + 1);
    // The name is more important than the counts.
    let name_room = room.saturating_sub(width(&counts) + 16).max(width(&name).min(NAME_ROOM_MIN));
    let left = format!(" taskwork top  {}  {counts}", pen.fit(&name, name_room));
    let style = pen.look.reversed();
    pen.text(place.x, place.y, room, &left, style);
    pen.right(place, place.y, &time, style);
}

/// Draws the line above the keys.
fn status(pen: &mut Pen<'_>, place: Rect, state: &State) {
    let (text, style) = match &state.mode {
        Mode::Question(leave) => (question(leave), pen.look.reversed()),
        Mode::Filter { .. } => {
            let keys = "Enter keeps it, Esc discards it";
            (format!("/{}_   only nodes that match; {keys}", state.filter), pen.look.plain())
        }
        Mode::Nodes | Mode::Jobs(_) | Mode::Help => match state.message() {
            Some(message) => (message.to_owned(), pen.look.reversed()),
            None => (nodes::summary(state), pen.look.plain()),
        },
    };
    pen.text(place.x, place.y, usize::from(place.width), &format!(" {text}"), style);
}

fn question(Leave { node, again }: &Leave) -> String {
    if *again {
        format!("Already asked. Ask {node} again, so that it leaves at once?  y/n")
    } else {
        format!("Ask {node} to hand over its tasks and leave?  y/n")
    }
}

/// Draws the reduced picture of a terminal that is too small: the required size, and the most important facts.
fn small(pen: &mut Pen<'_>, area: Rect, state: &State) {
    let mut lines = Vec::new();
    if let Mode::Question(leave) = &state.mode {
        lines.push(question(leave));
    }
    lines.extend([
        format!("{} x {} is too small: enlarge", area.width, area.height),
        format!("to {WIDTH_MIN} x {HEIGHT_MIN}, or press q to quit."),
        String::new(),
    ]);
    lines.extend(super::warnings::warnings(state));
    lines.extend(job::lines(state));
    let style = pen.look.plain();
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        pen.text(area.x, y, usize::from(area.width), &line, style);
    }
}

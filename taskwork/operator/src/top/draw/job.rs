//! The displayed job: its identity, progress and results.

use ratatui::{layout::Rect, style::Color};
use taskwork::view::JobNow;

use super::Pen;
use crate::{
    show::values,
    top::{
        rates::rate_now,
        state::{Source, State},
        text::{UNKNOWN, duration, exact, maybe, number, percent, rate, things, whole},
        warnings::warnings as found,
    },
};

/// The width of the progress bar, in columns.
const BAR: usize = 20;

pub(super) fn draw(pen: &mut Pen<'_>, place: Rect, state: &State) {
    let [head, done, figures] = lines(state);
    let columns = usize::from(place.width);
    pen.text(place.x, place.y, columns, &format!(" {head}"), pen.look.bold());
    let share = state.job().and_then(|(_, job)| job?.about.share);
    let mut x = place.x;
    if let Some(share) = share {
        x += 1;
        bar(pen, x, place.y + 1, share);
        x += u16::try_from(BAR + 1).unwrap_or_default();
    }
    let style = pen.look.plain();
    pen.text(x, place.y + 1, usize::from(place.right().saturating_sub(x)), &format!(" {done}"), style);
    pen.text(place.x, place.y + 2, columns, &format!(" {figures}"), style);
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1")]
fn bar(pen: &mut Pen<'_>, x: u16, y: u16, share: f64) {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).floor() as usize;
    let (done, open) = if pen.look.is_ascii { ("#", ".") } else { ("█", "░") };
    let text = done.repeat(full) + &open.repeat(BAR - full);
    pen.text(x, y, BAR, &text, pen.look.colour(Color::Green));
}

/// Returns three lines about the job: its identity; its progress; its results and workers.
pub(in crate::top) fn lines(state: &State) -> [String; 3] {
    let none = |text: &str| [text.to_owned(), String::new(), String::new()];
    match state.job() {
        Some((id, Some(job))) => [head(id, job, state), done(job), figures(job)],
        Some((id, None)) if state.is_whole => none(&format!("there is no job {id}: j shows the list")),
        None if state.is_whole || matches!(state.source, Source::Record(_)) => none("no job was submitted"),
        _ => none("no job is known yet"),
    }
}

/// Returns the time since the submission of a job, in seconds; `None` if the clocks disagree.
pub(in crate::top) fn age(job: &JobNow, now_ms: u64) -> Option<f64> {
    let record = job.about.record.as_deref()?;
    let to = if job.about.stage.is_open() { now_ms } else { record.finished_ms? };
    Some(to.saturating_sub(record.submitted_ms) as f64 / 1e3)
}

fn head(id: &str, job: &JobNow, state: &State) -> String {
    let about = &job.about;
    let Some(record) = about.record.as_deref() else {
        return format!("job {id}: its record cannot be read");
    };
    let mut told = vec![about.stage.text().to_owned()];
    if record.attempt > 1 {
        told.push(format!("attempt {} of {}", record.attempt, record.attempts_max));
    }
    told.extend(age(job, state.now_ms()).map(duration));
    let name = if record.name.is_empty() { record.program.as_str() } else { record.name.as_str() };
    // The most important facts come first, because a name may be long.
    format!("{id}  {}  {name}  ({} {})", told.join(", "), record.program, record.program_version)
}

fn done(job: &JobNow) -> String {
    let about = &job.about;
    let share = match about.share {
        Some(share) => format!("{} done", percent(share)),
        None if about.stage.is_open() => "the share that is done is unknown".to_owned(),
        None => String::new(),
    };
    let ends = match about.eta {
        Some(eta) => {
            let (least, most) = (duration(eta.least_seconds), duration(eta.most_seconds));
            format!("done in {least} to {most} (8 of 10)")
        }
        None if about.share.is_some() && about.pool.is_some() => "time left unknown as yet".to_owned(),
        None => String::new(),
    };
    let told: Vec<String> = [share, ends, cost(job)].into_iter().filter(|text| !text.is_empty()).collect();
    told.join("   ")
}

/// Returns the cost of a job, as far as its nodes have prices.
fn cost(job: &JobNow) -> String {
    let Some(cost) = job.about.cost.as_ref().filter(|cost| !cost.spent.money.is_empty()) else {
        return String::new();
    };
    let of = |(currency, &amount): (&String, &f64)| match amount {
        _ if amount >= 0.1 => format!("{amount:.2} {currency}"),
        _ => format!("{} {currency}", number(amount)),
    };
    let money = cost.spent.money.iter().map(of).collect::<Vec<_>>().join(" + ");
    let unpriced = match cost.unpriced {
        0 => String::new(),
        nodes => format!(" without {}", things(nodes.into(), "node")),
    };
    format!("cost {money}{unpriced}")
}

fn figures(job: &JobNow) -> String {
    let about = &job.about;
    let pool = about.pool.map(|pool| {
        let nodes = things(about.nodes_at_work.into(), "node");
        format!("{} of {} on {nodes}", pool.busy, things(pool.workers.into(), "worker"))
    });
    let figures = [
        ("best", maybe(about.best, exact)),
        ("bound", maybe(about.bound, exact)),
        ("gap", maybe(about.gap, percent)),
        ("open tasks", maybe(about.open_tasks, whole)),
        ("busy", pool.unwrap_or_else(|| UNKNOWN.to_owned())),
    ];
    let values = about.display.as_deref().map(values).filter(|values| !values.is_empty());
    // A framework that describes its jobs usually has no best solution.
    let from = if values.is_some() && about.best.is_none() { 3 } else { 0 };
    let figures = figures[from..].iter().map(|(name, value)| format!("{name} {value}"));
    figures.chain(values).collect::<Vec<_>>().join("  ")
}

/// Returns the present rate of work of a job.
pub(in crate::top) fn rate_of(job: &JobNow) -> String {
    maybe(rate_now(&job.series).filter(|_| job.about.pool.is_some()), rate)
}

pub(super) fn warnings(pen: &mut Pen<'_>, place: Rect, state: &State) {
    let found = found(state);
    let (rows, style) = (usize::from(place.height), pen.look.colour(Color::Red));
    let mut lines: Vec<String> = found.iter().map(|warning| format!(" ! {warning}")).collect();
    if lines.len() > rows && rows > 0 {
        let more = lines.len() - rows;
        lines.truncate(rows);
        if let Some(last) = lines.last_mut() {
            // The last line is shortened to leave room for the number of further warnings.
            let told = format!("  (and {more} more)");
            *last = pen.fit(last, usize::from(place.width).saturating_sub(told.len())) + &told;
        }
    }
    pen.lines(place, lines.into_iter().map(|line| (line, style)));
}

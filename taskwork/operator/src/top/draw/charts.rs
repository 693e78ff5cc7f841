//! The rate of work and the workers of a job over time.

use ratatui::{
    layout::Rect,
    style::Color,
    symbols::bar::{NINE_LEVELS, Set},
    widgets::{Sparkline, Widget as _},
};
use taskwork::view::Series;

use super::{Pen, job::rate_of};
use crate::top::{
    rates::{columns, rates, workers},
    state::State,
    text::{UNKNOWN, duration, maybe, number, rate},
};

/// The levels of a bar in ASCII.
const ASCII_LEVELS: Set<'static> = Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "+",
    five_eighths: "+",
    half: "=",
    three_eighths: "=",
    one_quarter: "-",
    one_eighth: "_",
    empty: " ",
};
/// The number of levels of a cell.
const LEVELS: u64 = 8;

pub(super) fn draw(pen: &mut Pen<'_>, place: Rect, state: &State) {
    let half = (place.width.saturating_sub(3)) / 2;
    let left = Rect { x: place.x + 1, width: half, ..place };
    let right = Rect { x: left.right() + 1, width: half, ..place };
    let job = state.job().and_then(|(_, job)| job);
    let (series, none) = (job.map(|job| &job.series), Series::default());
    let series = series.unwrap_or(&none);

    let values = rates(&series.points);
    let now = job.map_or_else(|| UNKNOWN.to_owned(), rate_of);
    let caption = format!("Rate of work {now}{}", at_most(&values, rate));
    chart(pen, left, &caption, series, &values, Color::Cyan);

    let values: Vec<Option<f64>> = series.points.iter().map(workers).collect();
    let pool = job.and_then(|job| job.about.pool);
    let now = maybe(pool, |pool| number(pool.workers.into()));
    let over = series.points.first().zip(series.points.last()).map(|(first, last)| {
        format!(", in {}", duration(last.at_ms.saturating_sub(first.at_ms) as f64 / 1e3))
    });
    let caption = format!("Workers {now}{}{}", at_most(&values, number), over.unwrap_or_default());
    chart(pen, right, &caption, series, &values, Color::Blue);
}

fn at_most(values: &[Option<f64>], format: fn(f64) -> String) -> String {
    most(values).map(|most| format!(", at most {}", format(most))).unwrap_or_default()
}

fn most(values: &[Option<f64>]) -> Option<f64> {
    values.iter().copied().flatten().reduce(f64::max)
}

fn chart(
    pen: &mut Pen<'_>,
    place: Rect,
    caption: &str,
    series: &Series,
    values: &[Option<f64>],
    colour: Color,
) {
    pen.text(place.x, place.y, usize::from(place.width), caption, pen.look.bold());
    let bars = Rect { y: place.y + 1, height: place.height.saturating_sub(1), ..place };
    let heights = heights(&columns(series, values, usize::from(bars.width)), bars.height);
    Sparkline::default()
        .data(heights)
        .max(u64::from(bars.height) * LEVELS)
        .absent_value_symbol(" ")
        .bar_set(if pen.look.is_ascii { ASCII_LEVELS } else { NINE_LEVELS })
        .style(pen.look.colour(colour))
        .render(bars, pen.buffer);
}

/// Returns the heights of bars, in levels. A known value is at least one level high, to distinguish 0 from unknown.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and the number of levels"
)]
fn heights(values: &[Option<f64>], rows: u16) -> Vec<Option<u64>> {
    let levels = u64::from(rows) * LEVELS;
    let most = most(values).filter(|most| *most > 0.0).unwrap_or(1.0);
    let height =
        |value: f64| 1 + ((value / most).clamp(0.0, 1.0) * levels.saturating_sub(1) as f64).round() as u64;
    values.iter().map(|value| value.filter(|value| value.is_finite()).map(height)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_zero_has_visible_bar() {
        assert_eq!(heights(&[None, Some(0.0), Some(5.0), Some(10.0)], 2), [None, Some(1), Some(9), Some(16)]);
        assert_eq!(heights(&[Some(0.0), Some(0.0)], 3), [Some(1), Some(1)]);
        assert_eq!(heights(&[Some(f64::NAN), Some(f64::MAX)], 1), [None, Some(8)]);
    }
}

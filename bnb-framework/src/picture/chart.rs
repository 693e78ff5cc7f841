//! The improvements of a search over time, as a chart.

use std::time::Duration;

use super::{Ink, Picture, markup::number};

/// The size of the chart, and the room for its texts.
const WIDTH: f64 = 380.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// The maximum number of improvements that are kept: of more, every second one is.
const STEPS_MAX: usize = 1_000;

/// The best solution since some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// When it was seen, since the start of the search.
    pub at: Duration,
    /// Its cost.
    pub cost: f64,
}

/// The improvements of a search, as they were seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Improvements {
    steps: Vec<Step>,
}

impl Improvements {
    /// Notes the cost of the best solution at a time, if it is another one than before.
    pub fn note(&mut self, at: Duration, cost: f64) {
        let is_new = self.steps.last().is_none_or(|last| last.cost.to_bits() != cost.to_bits());
        if !is_new || !cost.is_finite() {
            return;
        }
        self.steps.push(Step { at, cost });
        if self.steps.len() > STEPS_MAX {
            let last = self.steps.len() - 1;
            let mut places = 0_usize..;
            self.steps
                .retain(|_| places.next().is_some_and(|place| place.is_multiple_of(2) || place == last));
        }
    }

    /// Returns them in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Draws them as steps, up to the end of the search. `name` is that of the cost, such as `length`.
    pub fn picture(&self, name: &str, end: Duration, height: f64) -> Picture {
        let title = format!("{name} of the best solution over time");
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return Picture::new(WIDTH, height, &title, "No solution was found.");
        };
        let end = end.max(last.at);
        let description = format!(
            "Improvements seen: {}, from {} after {:.1} s to {} after {:.1} s. The search took {:.1} s.",
            self.steps.len() - 1,
            shown(first.cost),
            first.at.as_secs_f64(),
            shown(last.cost),
            last.at.as_secs_f64(),
            end.as_secs_f64(),
        );
        let mut picture = Picture::new(WIDTH, height, &title, &description);
        picture.text(Ink::Main, (LEFT, 20.0), &title);
        let (bottom, right) = ((height - BOTTOM).max(TOP + 1.0), WIDTH - RIGHT);
        let costs = || self.steps.iter().map(|step| step.cost);
        let (low, high) = (costs().fold(f64::INFINITY, f64::min), costs().fold(f64::NEG_INFINITY, f64::max));
        let range = if high > low { high - low } else { 1.0 };
        let seconds = end.as_secs_f64().max(1e-3);
        let x = |at: Duration| LEFT + (right - LEFT) * (at.as_secs_f64() / seconds).min(1.0);
        // A single cost is in the middle.
        let part = |cost: f64| if high > low { (cost - low) / range } else { 0.5 };
        let y = |cost: f64| bottom - (bottom - TOP) * part(cost);
        picture.line(Ink::Faint, &[(LEFT, TOP), (LEFT, bottom), (right, bottom)], false);
        let labels = if high > low { vec![low, high] } else { vec![low] };
        for cost in labels {
            picture.text_before(Ink::Faint, (LEFT - 6.0, y(cost) + 4.0), &shown(cost));
        }
        picture.text(Ink::Faint, (LEFT, bottom + 18.0), "0 s");
        picture.text_before(Ink::Faint, (right, bottom + 18.0), &format!("{:.1} s", end.as_secs_f64()));
        picture.line(Ink::Main, &self.corners(end, x, y), false);
        let seen: Vec<(f64, f64)> = self.steps.iter().map(|step| (x(step.at), y(step.cost))).collect();
        picture.dots(Ink::Mark, &seen);
        picture
    }

    fn corners(&self, end: Duration, x: impl Fn(Duration) -> f64, y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let mut corners = Vec::with_capacity(2 * self.steps.len());
        for (place, step) in self.steps.iter().enumerate() {
            let until = self.steps.get(place + 1).map_or(end, |next| next.at);
            corners.extend([(x(step.at), y(step.cost)), (x(until), y(step.cost))]);
        }
        corners
    }
}

fn shown(cost: f64) -> String {
    if cost.abs() < 1e6 {
        number(cost)
    } else if cost.fract() == 0.0 && cost.abs() < 1e15 {
        format!("{cost:.0}")
    } else {
        format!("{cost:.4e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn every_improvement_is_a_step() {
        let mut improvements = Improvements::default();
        for (s, cost) in [(0, 30.0), (1, 30.0), (2, 20.0), (5, 10.0), (6, f64::NAN)] {
            improvements.note(at(s), cost);
        }
        assert_eq!(
            improvements.steps().iter().map(|step| step.at).collect::<Vec<_>>(),
            [at(0), at(2), at(5)]
        );
        let svg = improvements.picture("length", at(10), 300.0).svg();
        assert!(svg.contains("Improvements seen: 2, from 30 after 0.0 s to 10 after 5.0 s"), "{svg}");
        // From the upper left to the lower right, six corners.
        assert!(svg.contains("d=\"M80 40L136.8 40L136.8 150L222 150L222 260L364 260\""), "{svg}");
    }

    #[test]
    fn picture_exists_for_any_number_of_solutions() {
        let mut improvements = Improvements::default();
        assert!(improvements.picture("length", at(1), 300.0).svg().contains("No solution was found."));
        improvements.note(at(0), 7.0);
        let svg = improvements.picture("length", at(0), 300.0).svg();
        assert!(svg.contains("Improvements seen: 0, ") && !svg.contains("NaN"), "{svg}");
        for s in 1..100_000 {
            improvements.note(at(s), -(s as f64));
        }
        let steps = improvements.steps();
        assert!(steps.len() <= STEPS_MAX, "{}", steps.len());
        assert_eq!((steps[0].cost, steps[steps.len() - 1].cost), (7.0, -99_999.0), "both ends are kept");
    }
}

//! The history of a job, in a bounded number of points.

use serde::{Deserialize, Serialize};

use super::sums::gap;

/// The maximum number of points.
pub const POINTS_MAX: usize = 600;
/// The least time between two points, in milliseconds.
const STEP_MS: u64 = 1_000;

/// A job at one moment, or at the end of a short period. Unknown values are absent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// The time, in milliseconds since 1970 by the observer's clock.
    pub at_ms: u64,
    /// The number of nodes at work.
    pub nodes: Spread,
    /// The number of their workers.
    pub workers: Spread,
    /// The number of their workers with a task.
    pub busy: Spread,
    /// Units of work done so far.
    pub worked: u64,
    /// The share of the whole job that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The best known value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// The bound of values that may still be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// The number of tasks that run, are queued, wait or are parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_tasks: Option<u64>,
}

/// The range of a number over a short period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// The minimum.
    pub least: u32,
    /// The maximum.
    pub most: u32,
    /// The last value.
    pub last: u32,
}

impl Spread {
    pub(super) fn one(number: u32) -> Self {
        Self { least: number, most: number, last: number }
    }

    fn then(self, later: Self) -> Self {
        Self { least: self.least.min(later.least), most: self.most.max(later.most), last: later.last }
    }
}

impl Point {
    /// Returns the distance of the best value from the bound, as a share of the best value, if both are known.
    pub fn gap(&self) -> Option<f64> {
        self.best.zip(self.bound).and_then(|(best, bound)| gap(best, bound))
    }

    /// Merges a point with the next one.
    fn then(self, later: Self) -> Self {
        Self {
            nodes: self.nodes.then(later.nodes),
            workers: self.workers.then(later.workers),
            busy: self.busy.then(later.busy),
            ..later
        }
    }
}

/// The points of a job, at most [`POINTS_MAX`], one per time step. When there would be more, the step length is
/// doubled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// The points, in chronological order.
    pub points: Vec<Point>,
}

impl Default for Series {
    fn default() -> Self {
        Self { step_ms: STEP_MS, points: Vec::new() }
    }
}

/// A change of a series: it keeps so many of its first points, and replaces the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesDelta {
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// The number of unchanged points at the start.
    pub kept: usize,
    /// The points after them.
    pub points: Vec<Point>,
}

impl Series {
    pub(super) fn apply(&mut self, delta: SeriesDelta) {
        self.step_ms = delta.step_ms;
        self.points.truncate(delta.kept);
        self.points.extend(delta.points);
    }

    fn step_of(&self, at_ms: u64) -> u64 {
        at_ms / self.step_ms.max(1)
    }

    /// Adds a point, and merges points if there would be more than `points_max`. Returns the number of unchanged points.
    pub(super) fn push(&mut self, point: Point, points_max: usize) -> usize {
        match self.points.last_mut() {
            // A clock that jumps back prolongs the step.
            Some(last) if self.step_ms == 0 || point.at_ms / self.step_ms <= last.at_ms / self.step_ms => {
                *last = last.then(Point { at_ms: point.at_ms.max(last.at_ms), ..point });
                return self.points.len() - 1;
            }
            Some(_) | None => self.points.push(point),
        }
        let unchanged = self.points.len() - 1;
        if self.points.len() <= points_max {
            return unchanged;
        }
        while self.points.len() > points_max {
            self.step_ms = self.step_ms.saturating_mul(2);
            let mut merged: Vec<Point> = Vec::with_capacity(points_max);
            for &point in &self.points {
                match merged.last_mut() {
                    Some(last) if self.step_of(last.at_ms) == self.step_of(point.at_ms) => {
                        *last = last.then(point);
                    }
                    _ => merged.push(point),
                }
            }
            self.points = merged;
        }
        0
    }
}

/// A series with the ticks of its changes.
#[derive(Debug, Clone, Default)]
pub(super) struct TrackedSeries {
    pub(super) series: Series,
    /// The tick at which each point last changed, in ascending order.
    changed: Vec<u64>,
    /// The tick at which all points were last forgotten.
    cleared: u64,
}

impl TrackedSeries {
    pub(super) fn push(&mut self, tick: u64, point: Point) {
        let unchanged = self.series.push(point, POINTS_MAX);
        self.changed.truncate(unchanged);
        self.changed.resize(self.series.points.len(), tick);
    }

    /// Forgets all points, if there are any.
    pub(super) fn clear(&mut self, tick: u64) {
        if !self.series.points.is_empty() {
            *self = Self { cleared: tick, ..Self::default() };
        }
    }

    /// Returns the changes after a tick; `None` if there are none.
    pub(super) fn since(&self, tick: u64) -> Option<SeriesDelta> {
        let kept = self.changed.partition_point(|&at| at <= tick);
        let points = self.series.points[kept..].to_vec();
        let has_changed = !points.is_empty() || self.cleared > tick;
        has_changed.then_some(SeriesDelta { step_ms: self.series.step_ms, kept, points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Point {
        let number = u32::try_from(second % 7).unwrap();
        Point { at_ms: second * 1_000 + 1, busy: Spread::one(number), worked: second, ..Point::default() }
    }

    #[test]
    fn series_over_long_time_is_bounded_and_keeps_extremes() {
        let mut series = Series::default();
        for second in 0..100_000 {
            series.push(at(second), POINTS_MAX);
            assert!(series.points.len() <= POINTS_MAX);
        }
        assert!(series.points.len() > POINTS_MAX / 2 - 1, "{}", series.points.len());
        assert_eq!(series.step_ms, 256_000);
        let last = series.points.last().unwrap();
        assert_eq!((last.worked, last.busy.least, last.busy.most), (99_999, 0, 6));
        assert!(series.points.is_sorted_by_key(|point| point.at_ms));
    }

    #[test]
    fn series_clock_that_jumps_back_adds_no_point() {
        let mut series = Series::default();
        series.push(at(10), POINTS_MAX);
        series.push(at(3), POINTS_MAX);
        assert_eq!((series.points.len(), series.points[0].at_ms, series.points[0].worked), (1, 10_001, 3));
    }

    #[test]
    fn series_cleared_points_are_part_of_the_delta() {
        let mut tracked = TrackedSeries::default();
        for tick in 1..=2_000 {
            tracked.push(tick, at(tick));
        }
        let then = tracked.series.clone();
        let follow = |tracked: &TrackedSeries| {
            let mut followed = then.clone();
            followed.apply(tracked.since(2_000).unwrap());
            followed
        };
        tracked.clear(2_001);
        assert_eq!((follow(&tracked), &tracked.series), (Series::default(), &Series::default()));
        tracked.clear(2_002);
        assert_eq!(tracked.since(2_001), None, "there was nothing left to forget");
        tracked.push(2_003, at(2_003));
        assert_eq!((follow(&tracked), tracked.series.points.len()), (tracked.series.clone(), 1));
    }

    #[test]
    fn series_delta_turns_the_old_series_into_the_new() {
        let mut tracked = TrackedSeries::default();
        let mut seen = Vec::new();
        for tick in 1..=2_000 {
            tracked.push(tick, at(tick / 2));
            if tick % 100 == 1 {
                seen.push((tick, tracked.series.clone()));
            }
        }
        for (tick, mut then) in seen {
            if let Some(delta) = tracked.since(tick) {
                then.apply(delta);
            }
            assert_eq!(then, tracked.series, "after tick {tick}");
        }
        assert_eq!(tracked.since(2_000), None);
    }
}

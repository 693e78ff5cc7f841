//! The rate of work: of each node now, and of a job over time.

use std::collections::{BTreeMap, VecDeque};

use taskwork::{
    client::records::NodeFigures,
    report::Figures,
    view::{JobNow, NodeNow, Point, Series},
};

/// The window for a rate, in milliseconds. Nodes report every two seconds, so shorter windows would show bursts.
const RATE_MS: u64 = 6_000;
/// The number of reports kept of each node.
const REPORTS_MAX: usize = 8;

/// The recent reports of a job's nodes, from which their rates follow.
#[derive(Debug, Default)]
pub(super) struct NodeRates {
    /// For each node, pairs of the report's time by the node's clock, in milliseconds, and the work done until then.
    reports: BTreeMap<String, VecDeque<(u64, u64)>>,
}

impl NodeRates {
    /// Adds the latest reports of a job's nodes.
    pub(super) fn take(&mut self, job: &JobNow) {
        self.reports.retain(|node, _| job.nodes.contains_key(node));
        for (name, node) in &job.nodes {
            let (at_ms, worked) = (node.report.at_ms, node.report.figures.worked);
            let reports = self.reports.entry(name.clone()).or_default();
            match reports.back() {
                Some(&(last_ms, _)) if last_ms == at_ms => continue,
                // Its clock or its work went back: earlier reports are not comparable.
                Some(&(last_ms, done)) if last_ms > at_ms || done > worked => reports.clear(),
                _ => {}
            }
            reports.push_back((at_ms, worked));
            let is_beyond = |reports: &VecDeque<(u64, u64)>| {
                reports.len() > REPORTS_MAX
                    || reports.get(1).is_some_and(|(second, _)| at_ms - second >= RATE_MS)
            };
            while is_beyond(reports) {
                reports.pop_front();
            }
        }
    }

    /// Returns the rate of a node in units per second: over its last reports, or else over its whole time.
    pub(super) fn of(&self, name: &str, node: &NodeNow) -> Option<f64> {
        let report = &*node.report;
        let first = self.reports.get(name).and_then(|reports| reports.front());
        let recent = first.filter(|(at_ms, _)| *at_ms < report.at_ms && !report.last);
        match (recent, begin_ms(report)) {
            (Some(&(from_ms, done)), _) => {
                per_second(report.figures.worked.saturating_sub(done), from_ms, report.at_ms)
            }
            (None, Some(from_ms)) => per_second(report.figures.worked, from_ms, report.at_ms),
            (None, None) => None,
        }
    }
}

/// Returns when a node started to work on a job, by its own clock.
fn begin_ms(report: &NodeFigures<Figures>) -> Option<u64> {
    report.timeline.first().map(|event| event.at_ms)
}

fn per_second(work: u64, from_ms: u64, to_ms: u64) -> Option<f64> {
    let ms = to_ms.checked_sub(from_ms).filter(|ms| *ms > 0)?;
    Some(work as f64 / ms as f64 * 1e3)
}

/// Returns the rate up to each point over the window, in units per second.
pub(super) fn rates(points: &[Point]) -> Vec<Option<f64>> {
    let mut first = 0;
    let rate = |(at, point): (usize, &Point)| {
        while first + 1 < at && point.at_ms.saturating_sub(points[first + 1].at_ms) >= RATE_MS {
            first += 1;
        }
        // The first point has the rate of the interval that follows.
        let (from, to) = (&points[first], if at == 0 { points.get(1)? } else { point });
        let is_known = to.worked > 0 || to.nodes.most > 0;
        is_known.then(|| per_second(to.worked.saturating_sub(from.worked), from.at_ms, to.at_ms)).flatten()
    };
    points.iter().enumerate().map(rate).collect()
}

/// Returns the rate at the end of a series.
pub(super) fn rate_now(series: &Series) -> Option<f64> {
    rates(&series.points).pop().flatten()
}

/// Returns the number of workers at a point; `None` if its nodes do not report it.
pub(super) fn workers(point: &Point) -> Option<f64> {
    let is_known = point.workers.last > 0 || point.nodes.last == 0;
    is_known.then(|| f64::from(point.workers.last))
}

/// Resamples values over time to a number of columns of equal duration: each is the mean of the points in it. Columns
/// without observation, or in which the job did not run, are `None`. A short series fills only the first columns, one
/// for each step. `values` are those of the points.
#[allow(clippy::cast_possible_truncation, reason = "the index of a column is less than their number")]
pub(super) fn columns(series: &Series, values: &[Option<f64>], width: usize) -> Vec<Option<f64>> {
    let (Some(first), Some(last)) = (series.points.first(), series.points.last()) else {
        return vec![None; width];
    };
    let step = series.step_ms.max(1);
    let span =
        last.at_ms.saturating_sub(first.at_ms).max(step.saturating_mul(width as u64)).saturating_add(1);
    let column = |at_ms: u64| {
        let passed = u128::from(at_ms.saturating_sub(first.at_ms));
        (passed * width as u128 / u128::from(span)) as usize
    };
    let mut found: Vec<(f64, u32)> = vec![(0.0, 0); width];
    // If points are sparser than columns, a point also fills the columns up to the next point.
    let mut ends = series.points.iter().skip(1).map(|point| point.at_ms).chain([last.at_ms]);
    for (point, value) in series.points.iter().zip(values) {
        let end_ms = ends.next().unwrap_or(point.at_ms);
        let Some(value) = value else { continue };
        let is_gap = end_ms.saturating_sub(point.at_ms) > step.saturating_mul(STEPS_MAX);
        let until = if is_gap { column(point.at_ms) } else { column(end_ms) };
        for (sum, number) in found.iter_mut().take(until + 1).skip(column(point.at_ms)) {
            (*sum, *number) = (*sum + value, *number + 1);
        }
    }
    found.into_iter().map(|(sum, number)| (number > 0).then(|| sum / f64::from(number))).collect()
}

/// The distance between two points, in steps, above which the time between them counts as unobserved.
const STEPS_MAX: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a series with one point per second, from pairs of second and work.
    fn series(points: &[(u64, u64)]) -> Series {
        let point =
            |&(second, worked): &(u64, u64)| Point { at_ms: second * 1_000, worked, ..Point::default() };
        Series { step_ms: 1_000, points: points.iter().map(point).collect() }
    }

    #[test]
    fn rate_is_averaged_over_window() {
        // The work arrives in bursts, every two seconds.
        let points: Vec<(u64, u64)> = (0..20).map(|second| (second, second / 2 * 2 * 10 + 1)).collect();
        let rates = rates(&series(&points).points);
        assert!(rates.iter().skip(6).all(|rate| (8.0..=12.0).contains(&rate.unwrap())), "{rates:?}");
        assert_eq!(rate_now(&series(&[])), None);
        assert_eq!(rate_now(&series(&[(5, 7)])), None, "one point is no interval");
        assert_eq!(rate_now(&series(&[(5, 7), (5, 9)])), None, "no time has passed");
        assert_eq!(rate_now(&series(&[(0, 0), (1, 0)])), None, "no node has reported");
    }

    #[test]
    fn columns_cover_short_series_by_step_and_long_series_completely() {
        let short = series(&[(100, 1), (101, 2), (102, 3)]);
        let shown = columns(&short, &[Some(1.0), Some(2.0), Some(3.0)], 10);
        assert!(
            shown[..2].iter().all(Option::is_some) && shown[4..].iter().all(Option::is_none),
            "{shown:?}"
        );
        let long: Vec<(u64, u64)> = (0..600).map(|second| (second, second)).collect();
        let values: Vec<Option<f64>> = (0..600).map(|second| Some(f64::from(second))).collect();
        let shown = columns(&series(&long), &values, 30);
        assert_eq!(shown.len(), 30);
        let known: Vec<f64> = shown.into_iter().flatten().collect();
        assert!(known.len() == 30 && known.is_sorted() && known[0] < 20.0 && known[29] > 580.0, "{known:?}");
        assert_eq!(columns(&series(&[]), &[], 3), [None, None, None]);
    }

    #[test]
    fn columns_between_two_observations_are_unknown() {
        let paused = series(&[(0, 1), (1, 2), (2, 3), (90, 4), (91, 5)]);
        let shown = columns(&paused, &[Some(1.0); 5], 10);
        assert!(shown[0].is_some() && shown[9].is_some(), "{shown:?}");
        assert!(shown[2..9].iter().all(Option::is_none), "{shown:?}");
    }

    #[test]
    fn columns_with_inconsistent_times_do_not_panic() {
        let odd = Series {
            step_ms: 0,
            points: vec![
                Point { at_ms: u64::MAX, worked: u64::MAX, ..Point::default() },
                Point { at_ms: 0, worked: 0, ..Point::default() },
            ],
        };
        let values = rates(&odd.points);
        assert_eq!(columns(&odd, &values, 5).len(), 5);
        assert!(columns(&odd, &[Some(1.0), Some(2.0)], 0).is_empty());
    }
}

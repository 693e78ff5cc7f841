//! The numbers of a job for a comparison with another one. Unknown numbers are absent.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;
use taskwork::{
    client::records::Sense,
    report::Figures,
    view::{JobNow, Money, Point, Stage},
};

use crate::report::seen::Seen;

/// The window for the rate of work, in milliseconds. Nodes report every two seconds and points are one second apart,
/// so shorter windows would show bursts.
const RATE_MS: u64 = 6_000;
/// The relative distance from the best value up to which a solution counts as nearly best.
const NEAR: f64 = 0.01;

/// The numbers of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Facts {
    #[serde(rename = "job")]
    pub(super) id: String,
    pub(super) source: String,
    pub(super) name: String,
    /// The program and its version.
    pub(super) program: Option<String>,
    pub(super) state: &'static str,
    pub(super) attempt: Option<u32>,
    /// From the submission to the end, or to the last observation.
    pub(super) took_s: Option<f64>,
    /// Like `took_s`, but from the time at which nodes started to work on the job, and without suspensions.
    pub(super) ran_s: Option<f64>,
    pub(super) worked: Option<u64>,
    /// The average rate while it ran, and the highest rate, in units per second.
    pub(super) rate: Option<f64>,
    pub(super) rate_most: Option<f64>,
    /// The number of nodes that have worked on it; below, the maximum number of workers at a time.
    pub(super) nodes: Option<usize>,
    pub(super) workers_most: Option<u32>,
    pub(super) nodes_lost: Option<usize>,
    /// The total time of its nodes that were seen as members; below, their cost by currency, without nodes that have
    /// no price.
    pub(super) node_time_s: Option<f64>,
    pub(super) cost: Option<Money>,
    pub(super) share: Option<f64>,
    pub(super) best: Option<f64>,
    pub(super) bound: Option<f64>,
    pub(super) gap: Option<f64>,
    /// From the time at which nodes started to work on the job.
    pub(super) first_solution_s: Option<f64>,
    pub(super) near_its_best_s: Option<f64>,
    /// Time to come near the better of both jobs' best solutions.
    pub(super) near_best_of_both_s: Option<f64>,
    pub(super) tasks: Option<u64>,
    pub(super) steal_requests: Option<u64>,
    pub(super) steals: Option<u64>,
    pub(super) stolen_tasks: Option<u64>,
    pub(super) steal_median_s: Option<f64>,
    pub(super) zookeeper_requests: Option<u64>,
    pub(super) transactions: Option<u64>,
    pub(super) transactions_retried: Option<u64>,
    pub(super) transactions_per_thousand_tasks: Option<f64>,
    pub(super) write_median_s: Option<f64>,
    pub(super) write_p99_s: Option<f64>,
    /// The shares of the workers' time by activity.
    pub(super) searching: Option<f64>,
    pub(super) handling: Option<f64>,
    pub(super) looking: Option<f64>,
    pub(super) starting: Option<f64>,
}

impl Facts {
    pub(super) fn of(both: [&Seen; 2]) -> [Self; 2] {
        let job = |seen: &Seen| seen.job().cloned().unwrap_or_default();
        let jobs = both.map(job);
        let best = best_of(&jobs);
        let [(a, job_a), (b, job_b)] = [(both[0], &jobs[0]), (both[1], &jobs[1])];
        [Self::one(a, job_a, best), Self::one(b, job_b, best)]
    }

    #[expect(clippy::too_many_lines, reason = "one line for each number")]
    fn one(seen: &Seen, job: &JobNow, best_of_both: Option<f64>) -> Self {
        let about = &job.about;
        let record = about.record.as_deref();
        let began_ms = seen.began_ms();
        let last_ms = job.series.points.last().map(|point| point.at_ms);
        let finished_ms = record.and_then(|record| record.finished_ms).filter(|_| !about.stage.is_open());
        let until_ms = finished_ms.or(last_ms).or(Some(seen.snapshot.cluster.at_ms));
        let submitted_ms = record.map(|record| record.submitted_ms);
        // The points of a suspended job end with the suspension, so that its time is known only from the record.
        let over_ms = finished_ms.unwrap_or(seen.snapshot.cluster.at_ms);
        let suspended_ms = record.map_or(0, |record| record.suspended_until(over_ms));
        let worked_until_ms = match suspended_ms {
            0 => last_ms.filter(|_| about.stage != Stage::Running).or(until_ms),
            _ => Some(over_ms.saturating_sub(suspended_ms)),
        };
        let ran_s = since(began_ms, worked_until_ms);
        let told = about.reported;
        let of = |number: fn(&Figures) -> u64| told.then(|| number(&about.figures));
        let worked = of(|figures| figures.worked);
        let tasks = of(|figures| figures.tasks);
        let transactions = of(|figures| figures.transactions);
        let requests = &about.requests;
        let points = &job.series.points;
        let times = about.figures.times;
        let spent = |ns: u64| share(ns, times.total_ns());
        let sense = sense(job);
        let near = |best: Option<f64>| {
            let reached = |point: &Point| Some(is_near(point.best?, best?, sense?));
            since(began_ms, first(points, began_ms, |point| reached(point) == Some(true)))
        };
        let told_first = seen.improvements.first().and_then(|found| found["at_ms"].as_u64());
        let first_solution_ms = if points.is_empty() {
            told_first
        } else {
            first(points, began_ms, |point| point.best.is_some())
        };
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let writes = &about.latencies.writes;
        let cost = about.cost.as_ref().filter(|cost| cost.is_seen());
        Self {
            id: seen.id.clone(),
            source: seen.source.clone(),
            name: seen.name().to_owned(),
            program: record.map(|record| format!("{} {}", record.program, record.program_version)),
            state: about.stage.text(),
            attempt: record.map(|record| record.attempt),
            took_s: since(submitted_ms, until_ms),
            ran_s,
            worked,
            rate: worked.zip(ran_s).and_then(|(worked, s)| (s > 0.0).then_some(worked as f64 / s)),
            rate_most: rate_most(points),
            nodes: (!job.nodes.is_empty()).then_some(job.nodes.len()),
            workers_most: points.iter().map(|point| point.workers.most).max(),
            nodes_lost: record.map(|record| {
                let before = record.lost.iter().map(|lost| lost.node.as_str());
                let all = before.chain(about.lost.iter().map(String::as_str));
                all.chain(seen.lost_nodes()).collect::<BTreeSet<_>>().len()
            }),
            node_time_s: cost.map(|cost| cost.spent.node_ms as f64 / 1e3),
            cost: cost.map(|cost| cost.spent.money.clone()).filter(|money| !money.is_empty()),
            share: about.share,
            best: about.best,
            bound: about.bound,
            gap: about.gap,
            first_solution_s: since(began_ms, first_solution_ms),
            near_its_best_s: near(about.best),
            near_best_of_both_s: near(best_of_both),
            tasks,
            steal_requests: of(|figures| figures.requests),
            steals: of(|figures| figures.steals),
            stolen_tasks: of(|figures| figures.stolen_tasks),
            steal_median_s: seconds(about.figures.steal_times.quantile(0.5)),
            zookeeper_requests: told
                .then(|| requests.reads.saturating_add(requests.writes).saturating_add(requests.multis)),
            transactions,
            transactions_retried: of(|figures| figures.retries),
            transactions_per_thousand_tasks: transactions
                .zip(tasks)
                .and_then(|(transactions, tasks)| share(transactions.saturating_mul(1_000), tasks)),
            write_median_s: seconds(writes.quantile(0.5)),
            write_p99_s: seconds(writes.quantile(0.99)),
            searching: spent(times.searching_ns),
            handling: spent(times.handling_ns),
            looking: spent(times.looking_ns),
            starting: spent(times.starting_ns),
        }
    }
}

/// Returns the seconds between two times; `None` if the clocks disagree about their order.
fn since(from_ms: Option<u64>, to_ms: Option<u64>) -> Option<f64> {
    Some(to_ms?.checked_sub(from_ms?)? as f64 / 1e3)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The maximum age of a job at its first point for which nothing important can have happened before, in
/// milliseconds.
const BEGINNING_MS: u64 = 5_000;

/// Returns the time of the first point that satisfies a condition. `None` if no point does, or if the first point
/// already does and lies more than [`BEGINNING_MS`] after the start.
fn first(points: &[Point], began_ms: Option<u64>, is_so: impl Fn(&Point) -> bool) -> Option<u64> {
    let at = points.iter().position(is_so)?;
    let is_seen = at > 0 || points[0].at_ms <= began_ms?.saturating_add(BEGINNING_MS);
    is_seen.then_some(points[at].at_ms)
}

/// Returns whether small or large values are better in a job.
fn sense(job: &JobNow) -> Option<Sense> {
    job.nodes.values().find_map(|node| node.report.best.as_ref()).map(|best| best.sense)
}

fn is_near(value: f64, best: f64, sense: Sense) -> bool {
    let apart = match sense {
        Sense::Min => value - best,
        Sense::Max => best - value,
    };
    apart <= best.abs() * NEAR
}

/// Returns the better of the best solutions of two jobs; `None` if the jobs cannot be compared.
fn best_of(jobs: &[JobNow; 2]) -> Option<f64> {
    let [a, b] = jobs;
    let kind = |job: &JobNow| {
        job.about.record.as_deref().map(|record| (record.program.clone(), record.kind.clone()))
    };
    if kind(a)? != kind(b)? || sense(a)? != sense(b)? {
        return None;
    }
    let (best_a, best_b) = (a.about.best?, b.about.best?);
    Some(match sense(a)? {
        Sense::Min => best_a.min(best_b),
        Sense::Max => best_a.max(best_b),
    })
}

/// Returns the highest rate of work, in units per second.
fn rate_most(points: &[Point]) -> Option<f64> {
    let mut from = 0;
    let mut most: Option<f64> = None;
    for (at, point) in points.iter().enumerate().skip(1) {
        while from + 1 < at && point.at_ms - points[from + 1].at_ms >= RATE_MS {
            from += 1;
        }
        let rate = since(Some(points[from].at_ms), Some(point.at_ms))
            .filter(|s| *s > 0.0)
            .map(|s| point.worked.saturating_sub(points[from].worked) as f64 / s);
        most = most.into_iter().chain(rate).reduce(f64::max);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(s: u64, worked: u64, best: Option<f64>) -> Point {
        Point { at_ms: s * 1_000, worked, best, ..Point::default() }
    }

    #[test]
    fn highest_rate_is_averaged_over_six_seconds() {
        let points: Vec<Point> = (0..20).map(|s| point(s, if s < 10 { 0 } else { 600 }, None)).collect();
        assert_eq!(rate_most(&points), Some(100.0));
        assert_eq!((rate_most(&points[..1]), rate_most(&[])), (None, None));
        let set_back = [point(0, 100, None), point(1, 0, None)];
        assert_eq!(rate_most(&set_back), Some(0.0), "another attempt has started");
    }

    #[test]
    fn condition_true_at_late_first_point_has_no_time() {
        let points = [point(10, 0, Some(9.0)), point(11, 0, Some(8.0))];
        let first = |began_ms, best| first(&points, began_ms, |point| point.best == Some(best));
        assert_eq!(first(Some(9_000), 9.0), Some(10_000));
        assert_eq!(first(Some(1_000), 9.0), None, "it may have been known for long");
        assert_eq!(first(Some(1_000), 8.0), Some(11_000));
        assert_eq!((first(None, 9.0), first(Some(9_000), 7.0)), (None, None));
    }

    #[test]
    fn nearness_respects_sense() {
        assert!(is_near(101.0, 100.0, Sense::Min) && is_near(99.0, 100.0, Sense::Max));
        assert!(!is_near(101.1, 100.0, Sense::Min) && !is_near(98.9, 100.0, Sense::Max));
        assert!(is_near(-99.0, -100.0, Sense::Min) && is_near(0.0, 0.0, Sense::Min));
    }
}

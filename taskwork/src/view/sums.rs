//! The summary of a job, from its nodes' reports.

use std::collections::BTreeSet;

use zk::{Latencies, Requests, figures::Sense};

use super::{
    completion::{Remainder, SHARE_MIN},
    cost::{JobCost, Money},
    frozen::Frozen,
    raw::{Raw, RawAttempt, RawJob, Report},
    series::{Point, Series, Spread},
    snapshot::{Eta, JobAbout, NodeState, PoolSum},
    stage::Stage,
};
use crate::{
    display::JobDisplay,
    display::merged,
    figures::{Figures, sum},
    outlook::Outlook,
};

/// The inputs of a job's summary that come from outside the job.
pub(super) struct Standing {
    pub(super) stage: Stage,
    pub(super) missing: Option<String>,
    pub(super) leader: Option<String>,
    /// Its costs so far.
    pub(super) cost: Option<JobCost>,
}

impl RawJob {
    /// Returns the names of the nodes lost in the current attempt, or in the last one of a job that is over.
    pub(super) fn lost(&self, raw: &Raw) -> BTreeSet<String> {
        let attempt = self.attempt();
        let enrolled = attempt.iter().flat_map(|attempt| &attempt.enrolled);
        let left = |node: &String| attempt.is_some_and(|attempt| attempt.left.contains(node));
        let gone = enrolled.filter(|node| !raw.members.contains_key(*node) && !left(node));
        // When a job is over, its nodes leave without a record in the attempt, but write a last report.
        let is_over = self.is_over();
        let is_reported = self.reports.values().any(|report| report.last);
        let is_last = |node: &String| self.reports.get(node).is_some_and(|report| report.last);
        gone.filter(|node| !is_over || (is_reported && !is_last(node))).cloned().collect()
    }

    /// Returns the names of the nodes whose loss has ended an attempt.
    pub(super) fn lost_before(&self) -> impl Iterator<Item = &str> {
        self.record.iter().flat_map(|record| &record.lost).map(|lost| lost.node.as_str())
    }

    /// Returns the state of a node.
    pub(super) fn state_of(&self, node: &str, raw: &Raw, lost: &BTreeSet<String>) -> NodeState {
        let ended_attempt = self.lost_before().any(|lost| lost == node);
        if ended_attempt || lost.contains(node) {
            NodeState::Lost
        } else if raw.members.contains_key(node) {
            NodeState::Member
        } else {
            NodeState::Left
        }
    }

    /// Returns the nodes that currently work on the job, each with its report.
    pub(super) fn at_work<'a>(&'a self, raw: &'a Raw) -> impl Iterator<Item = (&'a str, &'a Report)> {
        let attempt = self.record.as_ref().map(|record| record.attempt);
        let works = move |(node, report): &(&String, &Frozen<Report>)| {
            !report.last && Some(report.attempt) == attempt && raw.members.contains_key(*node)
        };
        self.reports.iter().filter(works).map(|(node, report)| (node.as_str(), &**report))
    }

    /// Returns the best that may still be found in the job.
    fn outlook(&self, stage: Stage, sum: &Figures) -> Outlook {
        // Parked tasks and those that were set aside are at no node, so no report includes them.
        let is_parked = self.attempt().is_some_and(|attempt| attempt.parked != Some(0));
        let is_set_aside = self.attempt().is_some_and(|attempt| !attempt.set_aside.is_empty());
        let mut outlook = match stage {
            // Reports of lost nodes include tasks that others have completed since.
            Stage::Done => return sum.left_open,
            Stage::Cancelled | Stage::Suspended => {
                // The open tasks are those of the last reports.
                let last = self.reports.values().map(|report| report.attempt).max();
                let reports = self.reports.values().filter(|report| Some(report.attempt) == last);
                let mut outlook = sum.left_open;
                reports.for_each(|report| outlook.merge_best(report.figures.outlook));
                outlook
            }
            Stage::Incomplete | Stage::Failed => Outlook::Unknown,
            _ if is_parked => Outlook::Unknown,
            _ => sum.outlook,
        };
        if is_set_aside {
            outlook = Outlook::Unknown;
        }
        outlook
    }

    /// Returns the job as a whole.
    pub(super) fn about(&self, raw: &Raw, standing: Standing, series: &Series) -> JobAbout {
        let Standing { stage, missing, leader, cost } = standing;
        let (mut requests, mut latencies) = (Requests::default(), Latencies::default());
        for report in self.reports.values() {
            requests += report.requests;
            if let Some(one) = report.latencies {
                latencies.reads += one.reads;
                latencies.writes += one.writes;
            }
        }
        let reports = self.reports.values().map(|report| &**report);
        let mut figures = sum(reports.clone());
        let at_work: Vec<&Report> = if stage == Stage::Running {
            self.at_work(raw).map(|(_, report)| report).collect()
        } else {
            vec![]
        };
        figures.outlook = self.outlook(stage, &figures);
        let attempt = self.attempt().filter(|_| !self.is_over());
        let (best, bound) = best_and_bound(reports, figures.outlook, stage);
        figures.open_tasks = attempt.and_then(|attempt| open_tasks(&at_work, attempt, stage));
        let set_aside = self.attempt().into_iter().flat_map(|attempt| &attempt.set_aside);
        JobAbout {
            stage,
            record: self.record.clone(),
            missing,
            reported: !self.reports.is_empty(),
            leader,
            figures,
            requests,
            latencies,
            pool: pools(&at_work),
            nodes_at_work: u32::try_from(at_work.len()).unwrap_or(u32::MAX),
            share: share(&figures, stage),
            best,
            bound,
            gap: best.zip(bound).and_then(|(best, bound)| gap(best, bound)),
            eta: if stage == Stage::Running { eta(series) } else { None },
            open_tasks: figures.open_tasks,
            listed_tasks: attempt.and_then(RawAttempt::listed_tasks),
            parked_tasks: attempt.and_then(|attempt| attempt.parked),
            set_aside: set_aside
                .map(|(task, about)| (task.clone(), (about.crashes, about.reason.clone())))
                .collect(),
            lost: self.lost(raw).into_iter().collect(),
            display: self.display(raw),
            cost,
        }
    }
}

impl RawJob {
    /// Returns the display of the highest rank, merged if several nodes provide one.
    fn display(&self, raw: &Raw) -> Option<Frozen<JobDisplay>> {
        let ((rank, _), _) = self.displays.last_key_value()?;
        let is_there = |node: &String| {
            raw.members.contains_key(node) || self.reports.get(node).is_some_and(|report| report.last)
        };
        let highest: Vec<_> = self.displays.range((*rank, String::new())..).collect();
        if let [((_, node), (_, display))] = highest[..]
            && is_there(node)
        {
            return Some(display.clone());
        }
        let parts = highest.into_iter().map(|((_, node), (_, display))| (is_there(node), &**display));
        merged(parts).map(Frozen::new)
    }

    /// Returns the summary of a job that was over long ago: it keeps the sums over the forgotten nodes.
    pub(super) fn about_forgotten(&self, standing: Standing, known: &JobAbout) -> JobAbout {
        let Standing { stage, missing, leader, cost: _ } = standing;
        JobAbout {
            stage,
            record: self.record.clone(),
            missing,
            leader,
            pool: None,
            nodes_at_work: 0,
            eta: None,
            cost: known.cost.clone().map(|cost| JobCost { an_hour: Money::new(), ..cost }),
            ..known.clone()
        }
    }
}

impl JobAbout {
    /// Returns the job as a point of its series.
    pub(super) fn point(&self, at_ms: u64) -> Point {
        let pool = self.pool.unwrap_or_default();
        Point {
            at_ms,
            nodes: Spread::one(self.nodes_at_work),
            workers: Spread::one(pool.workers),
            busy: Spread::one(pool.busy),
            worked: self.figures.worked,
            share: self.share,
            best: self.best,
            bound: self.bound,
            open_tasks: self.open_tasks,
        }
    }
}

/// Returns the number of tasks that are not complete; `None` if a node that has some may not have reported it.
fn open_tasks(at_work: &[&Report], attempt: &RawAttempt, stage: Stage) -> Option<u64> {
    // All tasks of a suspended job are parked.
    if at_work.is_empty() && stage != Stage::Suspended {
        return None;
    }
    let parked = u64::from(attempt.parked?);
    let mut told = at_work.iter().map(|report| report.figures.open_tasks);
    told.try_fold(parked, |sum: u64, open| Some(sum.saturating_add(open?)))
}

/// Returns the share that is done. At the end of a job the sum of the nodes' estimates may be less than everything: lost
/// nodes have not reported their last work.
fn share(figures: &Figures, stage: Stage) -> Option<f64> {
    let is_whole = stage == Stage::Done && figures.outlook == Outlook::Nothing;
    figures.share().map(|share| if is_whole { 1.0 } else { share })
}

fn pools(at_work: &[&Report]) -> Option<PoolSum> {
    let pools = at_work.iter().filter_map(|report| report.pool);
    pools.fold(None, |sum: Option<PoolSum>, pool| {
        let sum = sum.unwrap_or_default();
        Some(PoolSum {
            workers: sum.workers.saturating_add(pool.workers),
            busy: sum.busy.saturating_add(pool.busy),
            queued: sum.queued.saturating_add(pool.queued),
            waiting: sum.waiting.saturating_add(pool.waiting),
            hungry: sum.hungry.saturating_add(pool.hungry),
        })
    })
}

/// Returns the best known value and the bound of values that may still be found, in the user's sense.
fn best_and_bound<'a>(
    reports: impl Iterator<Item = &'a Report> + Clone,
    outlook: Outlook,
    stage: Stage,
) -> (Option<f64>, Option<f64>) {
    let known = reports.filter_map(|report| report.best.as_ref());
    let sense = known.clone().map(|best| best.sense).next();
    // Reports with another sense than the first are from another program, or wrong.
    let values = known.filter(|best| Some(best.sense) == sense && best.value.is_finite());
    let values = values.map(|best| best.value);
    let (best, sign) = match sense {
        Some(Sense::Max) => (values.reduce(f64::max), -1.0),
        _ => (values.reduce(f64::min), 1.0),
    };
    let bound = match outlook {
        // Without a best value nobody knows whether large numbers are better.
        Outlook::AtLeast(open) => best.map(|best| sign * open.min(sign * best)),
        // Everything was searched.
        Outlook::Nothing if stage == Stage::Done => best,
        Outlook::Nothing | Outlook::Unknown => None,
    };
    (best, bound)
}

/// The minimum denominator of a gap.
const LEAST_BEST: f64 = 1e-10;

/// Returns the distance of a value from the bound, as a share of the value.
pub(super) fn gap(best: f64, bound: f64) -> Option<f64> {
    let apart = (best - bound).abs();
    let gap = if apart == 0.0 { 0.0 } else { apart / best.abs().max(LEAST_BEST) };
    Some(gap).filter(|gap| gap.is_finite())
}

/// The minimum observed time before an estimate is shown, in milliseconds.
const OBSERVED_MS_MIN: u64 = 20_000;

/// The number of steps between two points from which on they count as a pause of the job or the observer.
const STEPS_MAX: u64 = 5;

/// Returns the estimated remaining time of a job at the speed observed in its current attempt, not counting
/// pauses.
fn eta(series: &Series) -> Option<Eta> {
    let known = series.points.iter().filter_map(|point| Some((point.at_ms, point.share?)));
    let (mut observed_ms, mut done, mut last) = (0_u64, 0.0, None);
    for (at_ms, share) in known {
        let (before_ms, before) = last.replace((at_ms, share)).unwrap_or((at_ms, share));
        let passed_ms = at_ms.saturating_sub(before_ms);
        if share < before {
            // A new attempt has started, which repeats the work.
            (observed_ms, done) = (0, 0.0);
        } else if passed_ms <= series.step_ms.saturating_mul(STEPS_MAX) {
            observed_ms = observed_ms.saturating_add(passed_ms);
            done += share - before;
        }
    }
    let (_, share) = last?;
    if observed_ms < OBSERVED_MS_MIN || share < SHARE_MIN || done <= 0.0 {
        return None;
    }
    // As much time as the completed share would have taken.
    let complete_s = observed_ms as f64 / 1e3 * share / done;
    let remainder = Remainder::at_share(share)?;
    let (least, most) = remainder.range();
    let [least_seconds, likely_seconds, most_seconds] =
        [least, remainder.median, most].map(|part| part * complete_s);
    most_seconds.is_finite().then_some(Eta { least_seconds, likely_seconds, most_seconds })
}

#[cfg(test)]
mod tests {
    use zk::figures::Best;

    use super::*;

    fn report(best: Option<(f64, Sense)>) -> Report {
        let best = best.map(|(value, sense)| Best { value, sense, name: "incumbent".to_owned() });
        Report { best, ..Report::default() }
    }

    #[test]
    fn bound_has_the_sense_of_the_best_and_never_crosses_it() {
        let told = |bests: &[Option<(f64, Sense)>], outlook, stage| {
            let reports: Vec<Report> = bests.iter().copied().map(report).collect();
            best_and_bound(reports.iter(), outlook, stage)
        };
        let (min, max) = (|value| Some((value, Sense::Min)), |value| Some((value, Sense::Max)));
        let runs = Stage::Running;
        let at_least = Outlook::AtLeast;
        assert_eq!(told(&[min(40.0), None, min(38.0)], at_least(30.0), runs), (Some(38.0), Some(30.0)));
        assert_eq!(told(&[max(40.0), max(38.0)], at_least(-50.0), runs), (Some(40.0), Some(50.0)));
        assert_eq!(told(&[min(38.0)], at_least(99.0), runs), (Some(38.0), Some(38.0)));
        assert_eq!(told(&[min(38.0)], Outlook::Unknown, runs), (Some(38.0), None));
        assert_eq!(told(&[min(38.0)], Outlook::Nothing, runs), (Some(38.0), None));
        assert_eq!(told(&[min(38.0)], Outlook::Nothing, Stage::Done), (Some(38.0), Some(38.0)));
        assert_eq!(told(&[None], at_least(30.0), runs), (None, None));
        assert_eq!(told(&[min(3.0), max(9.0)], at_least(1.0), runs), (Some(3.0), Some(1.0)));
    }

    #[test]
    fn gap_is_always_finite() {
        assert_eq!(gap(40.0, 30.0), Some(0.25));
        assert_eq!(gap(0.0, 0.0), Some(0.0));
        assert_eq!(gap(-40.0, -50.0), Some(0.25));
        assert_eq!(gap(1e308, -1e308), None);
        assert!(gap(0.0, 1.0).unwrap() > 1.0);
    }

    /// Returns a series of one-minute steps, from times in seconds and shares.
    fn series(points: &[(u64, f64)]) -> Series {
        let point =
            |&(s, share): &(u64, f64)| Point { at_ms: s * 1_000, share: Some(share), ..Point::default() };
        Series { step_ms: 60_000, points: points.iter().map(point).collect() }
    }

    fn likely(points: &[(u64, f64)]) -> f64 {
        eta(&series(points)).unwrap().likely_seconds
    }

    #[test]
    fn eta_depends_on_the_current_attempt_only() {
        let begun_again = [(0, 0.0), (60, 0.4), (120, 0.8), (180, 0.25), (240, 0.5)];
        assert_eq!(eta(&series(&begun_again)), eta(&series(&[(0, 0.25), (60, 0.5)])));
        assert_eq!(eta(&series(&begun_again[..4])), None, "nothing was seen of it yet");
    }

    #[test]
    fn eta_does_not_depend_on_pauses() {
        for pause in [0, 1_000, 100_000] {
            let points = [(0, 0.1), (60, 0.2), (120 + pause, 0.3), (180 + pause, 0.4)];
            let eta = likely(&points);
            let plain = likely(&[(0, 0.1), (180, 0.4)]);
            assert!((eta - plain).abs() < 1e-6, "{eta} s after a pause of {pause} s");
        }
    }

    #[test]
    fn eta_is_shown_only_after_enough_observation() {
        assert_eq!(eta(&series(&[])), None);
        assert_eq!(eta(&series(&[(0, 0.1)])), None);
        assert_eq!(eta(&series(&[(0, 0.0), (10, 0.5)])), None, "too short");
        assert_eq!(eta(&series(&[(0, 0.0), (60, 0.09)])), None, "too little");
        assert_eq!(eta(&series(&[(0, 0.3), (60, 0.3)])), None, "no progress");
        let Eta { least_seconds, likely_seconds, most_seconds } =
            eta(&series(&[(0, 0.25), (60, 0.5)])).unwrap();
        assert!(0.0 < least_seconds && least_seconds < likely_seconds && likely_seconds < most_seconds);
        assert!(most_seconds > 120.0, "the remainder in proportion is within the range");
    }
}

//! Windows of ten seconds: how the workers spent their time.

use serde::{Deserialize, Serialize};

use super::{Observation, model};

/// The minimum length of a window.
const LENGTH_MS: u64 = 10_000;
/// A longer window is discarded: the controller was away, or a clock was changed.
const LENGTH_MAX_MS: u64 = 120_000;

/// The open window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Windows {
    began: Option<Counters>,
    /// The minimum and the maximum number of workers in the window.
    workers: (u32, u32),
    /// Worker milliseconds since the start of the window.
    worker_ms: f64,
    latest_ms: u64,
    latest_workers: u32,
}

/// Sums over all jobs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Counters {
    at_ms: u64,
    jobs: Vec<String>,
    busy_ns: u64,
    idle_ns: u64,
    work: f64,
    granted: Option<u64>,
    refused: Option<u64>,
    queued: Option<u64>,
}

/// A complete window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Closed {
    /// The input of the model.
    pub(super) window: model::Window,
    /// The mean number of busy workers.
    pub(super) busy: f64,
    /// Whether the number of workers was nearly constant: new workers are idle at first.
    pub(super) is_steady: bool,
    /// The share of failed steal requests; `None` if unknown.
    pub(super) refused_share: Option<f64>,
    /// The number of queued tasks at its end.
    pub(super) queued: Option<u64>,
}

impl Windows {
    /// Adds an observation. Returns the window that it completes.
    pub(super) fn observe(&mut self, seen: &Observation) -> Option<Closed> {
        let now = Counters::of(seen);
        self.worker_ms += f64::from(self.latest_workers) * now.at_ms.saturating_sub(self.latest_ms) as f64;
        self.workers = (self.workers.0.min(seen.workers), self.workers.1.max(seen.workers));
        (self.latest_ms, self.latest_workers) = (now.at_ms, seen.workers);
        let began = self.began.as_ref().filter(|began| now.continues(began));
        let closed = match began {
            Some(began) if now.at_ms - began.at_ms < LENGTH_MS => return None,
            Some(began) => self.close(began, &now),
            None => None,
        };
        self.workers = (seen.workers, seen.workers);
        self.worker_ms = 0.0;
        self.began = Some(now);
        closed
    }

    fn close(&self, began: &Counters, now: &Counters) -> Option<Closed> {
        let length_ms = (now.at_ms - began.at_ms) as f64;
        let busy_s = now.busy_ns.saturating_sub(began.busy_ns) as f64 / 1e9;
        let idle_s = now.idle_ns.saturating_sub(began.idle_ns) as f64 / 1e9;
        let workers = self.worker_ms / length_ms;
        if busy_s + idle_s <= 0.0 || workers <= 0.0 {
            return None;
        }
        let busy_share = busy_s / (busy_s + idle_s);
        let work = now.work - began.work;
        let seconds_for_unit = (work > 0.0).then(|| (busy_s + idle_s) / work);
        let since = |now: Option<u64>, began: Option<u64>| Some(now?.checked_sub(began?)? as f64);
        let granted = since(now.granted, began.granted);
        let refused_share = since(now.refused, began.refused)
            .zip(granted)
            .map(|(refused, granted)| if refused > 0.0 { refused / (refused + granted) } else { 0.0 });
        Some(Closed {
            window: model::Window { at_ms: now.at_ms, workers, busy_share, seconds_for_unit },
            busy: busy_share * workers,
            is_steady: f64::from(self.workers.1) <= 1.3 * f64::from(self.workers.0),
            refused_share,
            queued: now.queued,
        })
    }
}

impl Counters {
    fn of(seen: &Observation) -> Self {
        let mut jobs: Vec<String> = seen.jobs.iter().map(|job| job.id.clone()).collect();
        jobs.sort_unstable();
        Self {
            at_ms: seen.at_ms,
            jobs,
            busy_ns: seen.jobs.iter().fold(0, |sum, job| sum.saturating_add(job.busy_ns)),
            idle_ns: seen.jobs.iter().fold(0, |sum, job| sum.saturating_add(job.idle_ns)),
            work: seen.jobs.iter().map(|job| job.work).filter(|work| work.is_finite()).sum(),
            granted: seen.steals_granted,
            refused: seen.steals_refused,
            queued: seen.queued,
        }
    }

    /// Returns whether the jobs and attempts are the same, and not much time has passed.
    fn continues(&self, before: &Self) -> bool {
        self.jobs == before.jobs
            && (before.at_ms..=before.at_ms.saturating_add(LENGTH_MAX_MS)).contains(&self.at_ms)
            && self.busy_ns >= before.busy_ns
            && self.work >= before.work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::JobSeen;

    fn seen(at_ms: u64, workers: u32, busy_s: u64, idle_s: u64) -> Observation {
        let job = JobSeen {
            id: "1".into(),
            work: busy_s as f64 * 10.0,
            busy_ns: busy_s * 1_000_000_000,
            idle_ns: idle_s * 1_000_000_000,
            ..JobSeen::default()
        };
        let (steals_granted, steals_refused) = (Some(at_ms / 1000), Some(at_ms / 250));
        Observation {
            at_ms,
            workers,
            jobs: vec![job],
            steals_granted,
            steals_refused,
            ..Observation::default()
        }
    }

    #[test]
    fn window_measures_busy_time_and_steals() {
        let mut windows = Windows::default();
        assert_eq!(windows.observe(&seen(0, 10, 0, 0)), None);
        assert_eq!(windows.observe(&seen(5_000, 10, 40, 10)), None);
        let closed = windows.observe(&seen(10_000, 10, 80, 20)).unwrap();
        assert!((closed.window.workers - 10.0).abs() < 1e-9 && (closed.busy - 8.0).abs() < 1e-9);
        assert!(
            (closed.window.seconds_for_unit.unwrap() - 0.125).abs() < 1e-9,
            "ten units for 1.25 worker seconds"
        );
        assert!((closed.refused_share.unwrap() - 0.8).abs() < 1e-9 && closed.is_steady);
        assert_eq!(windows.observe(&seen(15_000, 100, 120, 30)), None);
        assert!(!windows.observe(&seen(20_000, 100, 500, 400)).unwrap().is_steady);
    }

    #[test]
    fn window_restarts_when_counters_or_clock_jump() {
        let mut windows = Windows::default();
        windows.observe(&seen(100_000, 10, 100, 0));
        assert_eq!(windows.observe(&seen(111_000, 10, 5, 0)), None, "a new attempt");
        assert_eq!(windows.observe(&seen(4_000_000, 10, 50, 0)), None, "an hour later");
        assert_eq!(windows.observe(&seen(1_000, 10, 60, 0)), None, "a clock that was set back");
        assert_eq!(windows.observe(&Observation { at_ms: 20_000, ..Observation::default() }), None, "no job");
    }
}

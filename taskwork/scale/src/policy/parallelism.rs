//! The number of workers that the search can keep busy.
//!
//! A tree that has become thin, or whose last task is long, cannot use more workers, whatever the model predicts. The
//! symptom is workers that are idle although they request tasks. Then the busy workers and a tenth more are useful,
//! until idle time is back to the share expected of so many workers. Otherwise more workers are tried from time to
//! time, less often after each failure.

use serde::{Deserialize, Serialize};

use super::window::Closed;

/// Workers that are idle for more than this share of their time lack tasks.
const IDLE_MAX: f64 = 0.2;
/// If idle time exceeds the expected share by less than this, there is more work than the workers can do.
const IDLE_ROOM: f64 = 0.04;
/// The number of useful workers for each busy worker.
pub(super) const ROOM: f64 = 1.1;
/// The factors by which more workers are tried: if all are busy, and if they are not.
const TRIED: (f64, f64) = (2.0, 1.25);
/// The first and the longest time until more workers are tried. The first estimate is often made at the start of a
/// search; later ones are better.
const PATIENCE_MS: (u64, u64) = (30_000, 2_400_000);
/// The factor for that time after a failed trial.
const IN_VAIN: u64 = 16;
/// The factor for that time if not all workers are busy, and the longest such time.
const IDLE_PATIENCE: u64 = 60;
const IDLE_PATIENCE_MS: u64 = 7_200_000;

/// The number of workers that can be kept busy, if known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Parallelism {
    cap: Option<Cap>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cap {
    workers: f64,
    /// The number of workers at the last time when many of them were idle.
    in_vain: f64,
    since_ms: u64,
    patience_ms: u64,
    /// Whether more workers were tried since then.
    is_tried: bool,
}

impl Parallelism {
    /// Returns the number of workers beyond which more are useless.
    pub(super) fn cap(&self) -> Option<f64> {
        self.cap.map(|cap| cap.workers)
    }

    /// Updates the cap from a window with an expected share of idle time. Returns whether there was too little work
    /// for the window to show how the program scales.
    pub(super) fn observe(&mut self, closed: &Closed, expected_idle: f64) -> bool {
        let idle_share = 1.0 - closed.window.busy_share;
        // If steals and queues are unknown, idle time alone decides.
        let workers = closed.window.workers;
        let idle = workers - closed.busy;
        let steals_fail = closed.refused_share.is_none_or(|share| share > 0.5)
            && closed.queued.is_none_or(|queued| (queued as f64) < idle);
        let since_ms = closed.window.at_ms;
        if closed.is_steady && idle_share > IDLE_MAX && steals_fail {
            let patience_ms = match self.cap {
                Some(cap) if cap.is_tried => (cap.patience_ms * IN_VAIN).min(PATIENCE_MS.1),
                Some(cap) => cap.patience_ms,
                None => PATIENCE_MS.0,
            };
            let fed = (closed.busy * ROOM).max(1.0);
            self.cap = Some(Cap { workers: fed, in_vain: workers, since_ms, patience_ms, is_tried: false });
            return true;
        }
        let Some(cap) = &mut self.cap else { return false };
        let is_busy = idle_share < expected_idle + IDLE_ROOM;
        if is_busy && workers > cap.in_vain {
            (cap.patience_ms, cap.is_tried) = (PATIENCE_MS.0, false);
        }
        let waited_ms = since_ms.saturating_sub(cap.since_ms);
        let (tried, patience_ms) = if is_busy {
            (workers * TRIED.0, cap.patience_ms)
        } else {
            (cap.workers * TRIED.1, (cap.patience_ms * IDLE_PATIENCE).min(IDLE_PATIENCE_MS))
        };
        if closed.is_steady && waited_ms >= patience_ms && tried > cap.workers {
            (cap.workers, cap.since_ms, cap.is_tried) = (tried, since_ms, true);
        }
        // As long as the cap holds, idle time between the two bounds is also caused by the tree.
        !is_busy
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::model::Window;

    fn window(at_s: u64, workers: f64, busy: f64, refused_share: Option<f64>) -> Closed {
        let at_ms = at_s * 1000;
        let window = Window { at_ms, workers, busy_share: busy / workers, seconds_for_unit: None };
        Closed { window, busy, is_steady: true, refused_share, queued: None }
    }

    #[test]
    fn thin_tree_caps_workers_at_busy_ones() {
        let mut parallelism = Parallelism::default();
        assert!(!parallelism.observe(&window(10, 100.0, 95.0, Some(0.9)), 0.02));
        assert_eq!(parallelism.cap(), None, "busy enough");
        assert!(!parallelism.observe(&window(20, 100.0, 50.0, Some(0.1)), 0.02));
        assert_eq!(parallelism.cap(), None, "they find tasks, if slowly");
        assert!(parallelism.observe(&window(30, 100.0, 50.0, Some(0.9)), 0.02));
        assert!((parallelism.cap().unwrap() - 55.0).abs() < 1e-9);
        assert!(parallelism.observe(&window(40, 55.0, 1.0, None), 0.02), "steals are not known");
        assert!((parallelism.cap().unwrap() - 1.1).abs() < 1e-9);
    }

    #[test]
    fn cap_rises_when_all_workers_are_busy() {
        let mut parallelism = Parallelism::default();
        parallelism.observe(&window(10, 100.0, 20.0, Some(1.0)), 0.02);
        for at in 2..20 {
            let cap = parallelism.cap().unwrap();
            parallelism.observe(&window(at * 10, cap, cap * 0.98, Some(0.5)), 0.02);
        }
        assert!(parallelism.cap().unwrap() > 200.0);
    }

    #[test]
    fn failed_trials_become_rarer() {
        let mut parallelism = Parallelism::default();
        let mut tried = Vec::new();
        let mut before = f64::INFINITY;
        for at in 1..1440 {
            let workers = parallelism.cap().unwrap_or(100.0);
            parallelism.observe(&window(at * 10, workers, workers.min(20.0), Some(1.0)), 0.02);
            let cap = parallelism.cap().unwrap();
            if cap > before {
                tried.push(at * 10);
            }
            before = cap;
        }
        assert!((2..=9).contains(&tried.len()), "{tried:?}");
    }
}

//! Outlooks, for observers: the best that may still be found in unfinished tasks.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// The best that may still be found, in the program's own unit; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub enum Outlook {
    /// No work is left.
    #[default]
    Nothing,
    /// Nothing is better than this number.
    AtLeast(f64),
    /// No bound is known.
    Unknown,
}

impl Outlook {
    /// Returns the number, if it is known.
    pub fn known(self) -> Option<f64> {
        match self {
            Self::AtLeast(number) => Some(number),
            Self::Nothing | Self::Unknown => None,
        }
    }

    /// Numbers that are not finite have no form in JSON.
    pub(crate) fn from_number(number: Option<f64>) -> Self {
        match number {
            Some(f64::INFINITY) => Self::Nothing,
            Some(number) if number.is_finite() => Self::AtLeast(number),
            Some(_) | None => Self::Unknown,
        }
    }
}

impl Outlook {
    /// Merges two outlooks: keeps the best that may be found in either.
    pub(crate) fn merge_best(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::Nothing, outlook) | (outlook, Self::Nothing) => outlook,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::AtLeast(a), Self::AtLeast(b)) => Self::AtLeast(a.min(b)),
        };
    }
}

/// The outlook of a worker's current task, written by the worker and read by observers.
#[derive(Debug)]
pub(crate) struct AtWork(AtomicU64);

/// The bits between two tasks; not a valid number.
const NO_TASK: u64 = u64::MAX;

impl Default for AtWork {
    fn default() -> Self {
        Self(AtomicU64::new(NO_TASK))
    }
}

impl AtWork {
    pub(crate) fn set(&self, outlook: Option<f64>) {
        self.0
            .store(outlook.filter(|number| !number.is_nan()).unwrap_or(f64::NEG_INFINITY).to_bits(), Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(NO_TASK, Relaxed);
    }

    /// Returns the outlook, or `None` between two tasks.
    pub(crate) fn get(&self) -> Option<Outlook> {
        let bits = self.0.load(Relaxed);
        (bits != NO_TASK).then(|| Outlook::from_number(Some(f64::from_bits(bits))))
    }
}

/// Merges the outlooks of queued tasks.
pub(crate) fn of_all(numbers: impl Iterator<Item = Option<f64>>) -> Outlook {
    let mut outlook = Outlook::Nothing;
    for number in numbers {
        outlook.merge_best(Outlook::from_number(number));
    }
    outlook
}

/// The outlook of a node over the recent past. A task that was sent away still counts here until its new node
/// has published its own outlook.
#[derive(Debug)]
pub(crate) struct Window {
    length: Duration,
    since: Instant,
    before: Outlook,
    now: Outlook,
}

impl Window {
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, since: Instant::now(), before: Outlook::Nothing, now: Outlook::Nothing }
    }

    pub(crate) fn set_length(&mut self, length: Duration) {
        self.length = length;
    }

    /// Records the current outlook, and returns the best one of at least the last window length.
    pub(crate) fn note(&mut self, outlook: Outlook) -> Outlook {
        let at = Instant::now();
        if at.saturating_duration_since(self.since) >= self.length {
            self.before = std::mem::replace(&mut self.now, outlook);
            self.since = at;
        }
        self.now.merge_best(outlook);
        let mut best = self.before;
        best.merge_best(self.now);
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_outlook_is_the_best_and_unknown_if_any_is() {
        let sum = |numbers: &[Option<f64>]| of_all(numbers.iter().copied());
        assert_eq!(sum(&[]), Outlook::Nothing);
        assert_eq!(sum(&[Some(3.0), Some(-1.0)]), Outlook::AtLeast(-1.0));
        assert_eq!(sum(&[Some(3.0), None]), Outlook::Unknown);
        assert_eq!(sum(&[Some(3.0), Some(f64::NAN)]), Outlook::Unknown);
        assert_eq!(sum(&[Some(f64::INFINITY), Some(3.0)]), Outlook::AtLeast(3.0));
        assert_eq!(sum(&[Some(f64::NEG_INFINITY), Some(3.0)]), Outlook::Unknown);
    }

    #[test]
    fn outlook_window_keeps_departed_tasks_for_its_length() {
        let mut window = Window::new(Duration::from_secs(3600));
        assert_eq!(window.note(Outlook::AtLeast(1.0)), Outlook::AtLeast(1.0));
        assert_eq!(window.note(Outlook::AtLeast(2.0)), Outlook::AtLeast(1.0));
        let mut window = Window::new(Duration::ZERO);
        window.note(Outlook::AtLeast(1.0));
        window.note(Outlook::AtLeast(2.0));
        assert_eq!(window.note(Outlook::AtLeast(3.0)), Outlook::AtLeast(2.0));
    }

    #[test]
    fn worker_between_two_tasks_has_no_outlook() {
        let at_work = AtWork::default();
        assert_eq!(at_work.get(), None);
        at_work.set(None);
        assert_eq!(at_work.get(), Some(Outlook::Unknown));
        at_work.set(Some(4.0));
        assert_eq!(at_work.get(), Some(Outlook::AtLeast(4.0)));
        at_work.set(Some(f64::INFINITY));
        assert_eq!(at_work.get(), Some(Outlook::Nothing), "nothing is found there");
        at_work.clear();
        assert_eq!(at_work.get(), None);
    }
}

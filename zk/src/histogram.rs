//! A histogram of durations.

use std::{ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

const CLASSES: usize = 32;

/// A histogram of durations, in classes that grow by a factor of √2 each: the first is up to 7.812 µs, the
/// seventeenth up to two milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram([u32; CLASSES]);

/// The upper limit of the first class.
const FIRST_CLASS: Duration = Duration::from_nanos(7_812);

impl Histogram {
    /// Records one duration.
    pub fn note(&mut self, took: Duration) {
        let last = CLASSES - 1;
        let class = (0..last).find(|&class| took <= Self::end(class)).unwrap_or(last);
        self.0[class] = self.0[class].saturating_add(1);
    }

    /// Returns the upper limit of a class.
    fn end(class: usize) -> Duration {
        FIRST_CLASS.mul_f64(std::f64::consts::SQRT_2.powi(i32::try_from(class).unwrap_or(0)))
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// Returns the duration not exceeded by the given share of them (from 0 to 1), as the upper limit of its
    /// class. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = share.clamp(0.0, 1.0) * self.count() as f64;
        let mut seen = 0;
        let class = self.0.iter().position(|&times| {
            seen += u64::from(times);
            times > 0 && seen as f64 >= wanted
        });
        class.map(Self::end)
    }

    /// Returns the upper limit of each class except the last, which has none, and the number of durations up
    /// to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut seen = 0;
        self.0.iter().take(CLASSES - 1).enumerate().map(move |(class, &times)| {
            seen += u64::from(times);
            (Self::end(class), seen)
        })
    }
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        for (times, others) in self.0.iter_mut().zip(other.0) {
            *times = times.saturating_add(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_upper_limit_of_its_class() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile(0.5), None);
        for ms in 1..=99 {
            times.note(Duration::from_millis(ms));
        }
        times.note(Duration::from_secs(3600));
        let within = |share, from, to| {
            let time = times.quantile(share).unwrap();
            assert!((Duration::from_millis(from)..Duration::from_millis(to)).contains(&time), "{time:?}");
        };
        within(0.0, 1, 2);
        within(0.5, 50, 71);
        within(0.99, 99, 140);
        assert!(
            times.quantile(1.0).unwrap() < Duration::from_secs(1),
            "the last class has no end of its own"
        );
        assert_eq!(times.count(), 100);
        let (end, below) = times.cumulative().last().unwrap();
        assert_eq!((below, end < Duration::from_secs(3600)), (99, true));
    }
}

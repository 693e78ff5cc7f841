//! Estimates for a job whose search tree is still unknown, from earlier jobs.

use serde::{Deserialize, Serialize};

use super::{
    estimate::Guess,
    normal::{cdf, quantile},
};

/// The work of a job of an unknown program: ten minutes of one worker, within a factor of twelve. The low median
/// avoids starting dozens of machines before the first one has shown that there is work.
const UNKNOWN: Guess = Guess { median: 600.0, sigma: 2.5 };
/// The weight of that estimate; a finished job has the weight 1.
const UNKNOWN_WEIGHT: f64 = 1.0;
/// The minimum spread among the jobs of a program.
const SIGMA_MIN: f64 = 0.5;

/// The work of the finished jobs of a program: their number, and mean and variance of the logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Totals {
    jobs: f64,
    mean: f64,
    squares: f64,
}

impl Totals {
    pub(super) fn finished(&mut self, work: f64) {
        if !(work.is_finite() && work > 0.0) {
            return;
        }
        self.jobs += 1.0;
        let off = work.ln() - self.mean;
        self.mean += off / self.jobs;
        self.squares += off * (work.ln() - self.mean);
    }

    fn total(&self) -> Guess {
        let weight = self.jobs + UNKNOWN_WEIGHT;
        let unknown = UNKNOWN.median.ln();
        let mean = (self.mean * self.jobs + unknown * UNKNOWN_WEIGHT) / weight;
        let between = self.jobs * UNKNOWN_WEIGHT / weight * (self.mean - unknown).powi(2);
        let variance = (self.squares + between + UNKNOWN.sigma.powi(2) * UNKNOWN_WEIGHT) / weight;
        Guess { median: mean.exp(), sigma: variance.sqrt().max(SIGMA_MIN) }
    }

    /// Returns the estimated remaining work of a job: the longer it has run, the more remains.
    pub(super) fn left(&self, work: f64) -> Guess {
        let total = self.total();
        if work <= 0.0 {
            return total;
        }
        let shorter = cdf((work.ln() - total.median.ln()) / total.sigma);
        let median = total.at(quantile(f64::midpoint(shorter, 1.0)));
        Guess { median: (median - work).max(0.1 * work), sigma: total.sigma }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_job_has_more_remaining_work() {
        let totals = Totals::default();
        let mut before = 0.0;
        for work in [1e4, 1e5, 1e6, 1e9] {
            let left = totals.left(work).median;
            assert!(left > before && left.is_finite(), "{work}: {left}");
            before = left;
        }
    }

    #[test]
    fn finished_jobs_determine_estimate() {
        let mut totals = Totals::default();
        for work in [100.0, 120.0, 90.0, 110.0, f64::NAN, 0.0] {
            totals.finished(work);
        }
        assert!(totals.left(0.0).median < 400.0, "{:?}", totals.left(0.0));
        for _ in 0..40 {
            totals.finished(105.0);
        }
        let left = totals.left(0.0);
        assert!((left.median / 105.0).ln().abs() < 0.2 && left.sigma < 1.0, "{left:?}");
    }
}

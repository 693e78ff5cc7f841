//! The remaining work of a job, from the estimated share that is complete, with an error.
//!
//! The share comes from the shape of the tree (after P. Kilby, J. Slaney, S. Thiébaux and T. Walsh, Estimating search
//! tree size, 2006). It is poor early, and jumps when a better solution cuts off much of the tree. Therefore three
//! estimators are combined: G. Hendel, D. Anderson, P. Le Bodic and M. Pfetsch (Estimating the size of
//! branch-and-bound trees, 2021) found that a combination is better than each of them, and that double exponential
//! smoothing predicts the trend well:
//!
//! - *plain*: the rest takes as long, in proportion, as the completed part;
//! - *trend*: the share continues to grow at its recent rate;
//! - *power*: the share is a power of the work, fitted to the last half of the work.
//!
//! The weight of each depends on its predictions of the last quarter of the work. Work is the time of busy workers.

use serde::{Deserialize, Serialize};

/// The minimum share for an estimate of the end.
pub(super) const SHARE_MIN: f64 = 0.02;
/// Shares up to this are ignored.
const SHARE_TINY: f64 = 1e-12;
/// The factor by which the work grows between two stored points.
const POINT_RATIO: f64 = 1.04;
/// Points older than this share of the work are dropped.
const KEPT_SHARE: f64 = 0.2;
/// The smoothing factors for the share and for the trend.
const SMOOTHING: (f64, f64) = (0.4, 0.15);
/// The random error of a forecast.
const FORECAST_NOISE: f64 = 0.015;
/// The minimum remaining work of a running job, relative to the completed work.
const LEFT_MIN: f64 = 0.002;
/// The minimum standard deviation of log(true/estimated remaining work), by the complete share, with interpolation.
/// It grows near the end, where the remaining work is the difference of two nearly equal numbers. The errors of the
/// forecasts of this job are added, times [`FORECAST_FACTOR`]. Both are from the simulated trees of
/// `tests/policy/trees.rs`.
const ERROR: [(f64, f64); 10] = [
    (0.0005, 2.0),
    (0.005, 1.3),
    (0.02, 0.9),
    (0.1, 0.3),
    (0.3, 0.03),
    (0.5, 0.01),
    (0.8, 0.01),
    (0.95, 0.05),
    (0.99, 0.2),
    (1.0, 0.7),
];
/// The maximum error of one forecast, as a logarithm.
const OFF_MAX: f64 = 0.7;
/// The minimum weight of a new forecast among all.
const JUDGED_ANEW: f64 = 0.25;
/// The maximum standard deviation of an estimate.
const SIGMA_MAX: f64 = 3.0;
/// See [`ERROR`].
const FORECAST_FACTOR: f64 = 1.2;

/// An amount whose logarithm is normally distributed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Guess {
    /// The median.
    pub(super) median: f64,
    /// The standard deviation of its logarithm.
    pub(super) sigma: f64,
}

impl Guess {
    /// Returns the amount at `z` standard deviations.
    pub(super) fn at(&self, z: f64) -> f64 {
        self.median * (self.sigma * z).exp()
    }

    /// Combines two independent estimates of the same amount.
    pub(super) fn combine(self, other: Self) -> Self {
        let (one, two) = (self.sigma.powi(-2), other.sigma.powi(-2));
        let mean = (self.median.ln() * one + other.median.ln() * two) / (one + two);
        Self { median: mean.exp(), sigma: (one + two).powf(-0.5) }
    }

    /// Returns the sum of estimates of different amounts, with the same mean and variance (L. Fenton, 1960).
    pub(super) fn sum(guesses: impl IntoIterator<Item = Self>) -> Option<Self> {
        let (mut mean, mut variance, mut count, mut only) = (0.0, 0.0, 0, None);
        for guess in guesses {
            let square = guess.sigma * guess.sigma;
            let expected = guess.median * (square / 2.0).exp();
            mean += expected;
            variance += square.exp_m1() * expected * expected;
            count += 1;
            only = Some(guess);
        }
        if count < 2 {
            return only;
        }
        let square = (variance / (mean * mean)).ln_1p();
        Some(Self { median: mean * (-square / 2.0).exp(), sigma: square.sqrt() })
    }
}

/// The progress of a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    /// The completed work at the last observation.
    pub(super) work: f64,
    /// The complete share at that time.
    pub(super) share: Option<f64>,
    points: Vec<Point>,
    level: f64,
    trend: f64,
    /// The mean square of the forecast errors of each estimator.
    errors: [f64; 3],
    forecasts: u32,
}

/// The share after an amount of work, with the state of the estimators.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Point {
    work: f64,
    share: f64,
    level: f64,
    trend: f64,
    power: f64,
}

impl Point {
    /// The share that each estimator predicts after more work.
    fn forecasts(&self, work: f64) -> [f64; 3] {
        [
            self.share * work / self.work,
            self.level + self.trend * (work - self.work),
            self.share * (work / self.work).powf(self.power),
        ]
    }
}

impl Progress {
    /// Adds an observation of the completed work and of the reported share.
    pub(super) fn observe(&mut self, work: f64, share: Option<f64>) {
        if work < self.work {
            // A new attempt searches the tree again.
            *self = Self::default();
        }
        self.work = work;
        let Some(share) = share.filter(|share| share.is_finite() && *share > SHARE_TINY) else {
            self.share = None;
            return;
        };
        let share = share.min(1.0);
        self.share = Some(share);
        let before = self.points.last().copied();
        if work <= 0.0 || before.is_some_and(|before| work < before.work * POINT_RATIO) {
            return;
        }
        self.judge(work, share);
        match before {
            None => (self.level, self.trend) = (share, share / work),
            Some(before) => {
                let step = work - before.work;
                let foreseen = self.level + self.trend * step;
                let level = foreseen + SMOOTHING.0 * (share - foreseen);
                self.trend += SMOOTHING.1 * ((level - self.level) / step - self.trend);
                self.level = level;
            }
        }
        self.points.retain(|point| point.work >= work * KEPT_SHARE);
        let mut point = Point { work, share, level: self.level, trend: self.trend, power: 1.0 };
        self.points.push(point);
        point.power = self.power();
        *self.points.last_mut().expect("one was pushed") = point;
    }

    /// Compares the forecasts made at three quarters of the work with the present share.
    fn judge(&mut self, work: f64, share: f64) {
        let Some(then) = self.points.iter().rfind(|point| point.work <= 0.75 * work) else { return };
        self.forecasts = self.forecasts.saturating_add(1);
        let part = (1.0 / f64::from(self.forecasts)).max(JUDGED_ANEW);
        for (error, foreseen) in self.errors.iter_mut().zip(then.forecasts(work)) {
            // All jumps count the same, however large: the time after the jump matters.
            let off = (foreseen.max(1e-9) / share).ln().clamp(-OFF_MAX, OFF_MAX);
            *error += part * (off * off - *error);
        }
    }

    /// The exponent of the growth of the share with the work, over the last half of the work.
    fn power(&self) -> f64 {
        let recent = || self.points.iter().filter(|point| point.work >= 0.5 * self.work);
        let count = recent().count() as f64;
        if count < 4.0 {
            return 1.0;
        }
        let mean = |of: fn(&Point) -> f64| recent().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.work.ln()), mean(|point| point.share.ln()));
        let across: f64 = recent().map(|point| (point.work.ln() - x) * (point.share.ln() - y)).sum();
        let along: f64 = recent().map(|point| (point.work.ln() - x).powi(2)).sum();
        if along > 0.0 { (across / along).clamp(0.2, 5.0) } else { 1.0 }
    }

    /// Estimates the remaining work; `None` without a share.
    pub(super) fn left(&self) -> Option<Guess> {
        let share = self.share?;
        let work = self.work;
        if work <= 0.0 {
            return None;
        }
        let plain = work * (1.0 - share) / share;
        let within = |left: f64| left.clamp(plain / 20.0, plain * 20.0).max(LEFT_MIN * work);
        let last = self.points.last()?;
        let trend = if self.trend > 0.0 {
            (1.0 - self.level) / self.trend - (work - last.work)
        } else {
            plain * 20.0
        };
        let power = last.power;
        let power = work * ((1.0 / share).powf(1.0 / power) - 1.0);
        let lefts = [plain, trend, power].map(|left| within(left).ln());
        let weights = self.errors.map(|error| 1.0 / (error + FORECAST_NOISE * FORECAST_NOISE));
        // Before the first forecast, only the plain estimator counts.
        let weights = if self.forecasts == 0 { [1.0, 0.0, 0.0] } else { weights };
        let sum: f64 = weights.iter().sum();
        let mean = lefts.iter().zip(weights).map(|(left, weight)| left * weight).sum::<f64>() / sum;
        let spread =
            lefts.iter().zip(weights).map(|(left, weight)| (left - mean).powi(2) * weight).sum::<f64>() / sum;
        let off = self.errors.iter().zip(weights).map(|(error, weight)| error * weight).sum::<f64>() / sum;
        // Errors of the share accumulate over the remaining work like a random walk. The relative error of the
        // remaining work is 1/(1 - share) times that of the share.
        let off = FORECAST_FACTOR * off / (share * (1.0 - share)).max(0.01);
        let sigma = (error(share).powi(2) + spread + off).sqrt().min(SIGMA_MAX);
        Some(Guess { median: mean.exp(), sigma })
    }
}

/// The minimum error by the complete share.
fn error(share: f64) -> f64 {
    let above = ERROR.iter().position(|(at, _)| share < *at).unwrap_or(ERROR.len());
    match above {
        0 => ERROR[0].1,
        above if above == ERROR.len() => ERROR[above - 1].1,
        above => {
            let ((from, one), (to, two)) = (ERROR[above - 1], ERROR[above]);
            one + (two - one) * (share.ln() - from.ln()) / (to.ln() - from.ln())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(total: f64, done: f64, share: impl Fn(f64) -> f64) -> Progress {
        let mut progress = Progress::default();
        let mut work = 1.0;
        while work <= done * total {
            progress.observe(work, Some(share(work / total)));
            work += total / 400.0;
        }
        progress
    }

    #[test]
    fn remaining_work_of_several_shapes_is_estimated() {
        type Share = fn(f64) -> f64;
        let shapes: [(&str, Share, f64); 4] = [
            ("uniform", |x| x, 0.05),
            ("slow at first", |x| x * x, 0.15),
            ("fast at first", f64::sqrt, 0.15),
            ("a jump after a fifth", |x| if x < 0.2 { x * 0.2 } else { x }, 0.15),
        ];
        for (name, shape, off_max) in shapes {
            for done in [0.5, 0.7, 0.9] {
                let left = after(10_000.0, done, shape).left().unwrap();
                let off = (left.median / (10_000.0 * (1.0 - done))).ln();
                assert!(off.abs() < off_max + 0.1 * (1.0 - done), "{name}, {done} done: off by {off:+.2}");
                assert!(left.sigma < 0.6, "{name}: {left:?}");
            }
        }
    }

    #[test]
    fn early_estimate_is_vague_and_absent_without_share() {
        let early = after(10_000.0, 0.01, |x| x).left().unwrap();
        assert!(early.sigma > 1.0, "{early:?}");
        assert_eq!(Progress::default().left(), None);
        let mut progress = Progress::default();
        progress.observe(10.0, None);
        assert_eq!(progress.left(), None);
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            progress.observe(20.0, Some(nonsense));
            assert_eq!(progress.left(), None, "{nonsense}");
        }
        progress.observe(30.0, Some(7.0));
        let left = progress.left().unwrap();
        assert!(left.median < 0.1 && left.sigma.is_finite(), "more than everything is everything: {left:?}");
    }

    #[test]
    fn new_attempt_resets_progress() {
        let mut progress = after(10_000.0, 0.6, |x| x);
        progress.observe(5.0, Some(0.001));
        assert_eq!((progress.points.len(), progress.forecasts), (1, 0));
    }

    #[test]
    fn long_job_keeps_few_points() {
        let mut progress = Progress::default();
        for step in 1..200_000_u32 {
            progress.observe(f64::from(step), Some(f64::from(step) / 200_000.0));
        }
        assert!(progress.points.len() < 64, "{}", progress.points.len());
    }

    #[test]
    fn combined_guess_is_more_certain() {
        let one = Guess { median: 100.0, sigma: 1.0 };
        let both = one.combine(Guess { median: 400.0, sigma: 1.0 });
        assert!((both.median - 200.0).abs() < 1e-9 && both.sigma < 0.71);
        let sum = Guess::sum([one, one, one, one]).unwrap();
        assert!(sum.sigma < one.sigma && sum.median > 4.0 * one.median, "{sum:?}");
        assert_eq!(Guess::sum([]), None);
    }
}

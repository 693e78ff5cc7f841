//! The remaining work of a job, from the estimated completed share, with an error. Work is the time of busy workers.

use serde::{Deserialize, Serialize};
use taskwork::view::Remainder;

/// The minimum remaining work of a running job, relative to the completed work.
const LEFT_MIN: f64 = 0.002;

/// An amount whose logarithm is normally distributed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Guess {
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

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    /// The completed work at the last observation.
    pub(super) work: f64,
    /// The completed share at that time.
    pub(super) share: Option<f64>,
}

impl Progress {
    /// Returns the progress after this work, with the reported share.
    pub(super) fn new(work: f64, share: Option<f64>) -> Self {
        Self {
            work,
            share: share.filter(|share| share.is_finite() && *share > 0.0).map(|share| share.min(1.0)),
        }
    }

    /// Estimates the remaining work; `None` without a share.
    pub(super) fn left(&self) -> Option<Guess> {
        let remainder = Remainder::at_share(self.share?)?;
        let left = self.work * remainder.median.max(LEFT_MIN);
        (self.work > 0.0).then_some(Guess { median: left, sigma: remainder.sigma })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_work_depends_on_share_and_is_absent_without_it() {
        let left = |work, share| Progress::new(work, share).left();
        let (early, late) = (left(100.0, Some(0.2)).unwrap(), left(100.0, Some(0.9)).unwrap());
        assert!(early.median > late.median && late.median > 0.0, "{early:?} {late:?}");
        assert_eq!((left(100.0, None), left(0.0, Some(0.5))), (None, None));
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert_eq!(left(20.0, Some(nonsense)), None, "{nonsense}");
        }
        let left = left(30.0, Some(7.0)).unwrap();
        assert!(left.median < 0.1 && left.sigma.is_finite(), "more than everything is everything: {left:?}");
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

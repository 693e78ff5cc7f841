//! The remaining work of a job, estimated from the completed share.
//!
//! The share assumes that all subtrees of a state are equally large (P. Kilby, J. Slaney, S. Thiébaux and T. Walsh,
//! Estimating search tree size, 2006). Their real sizes differ by orders of magnitude. Most of the time is spent in
//! the large ones, so the share lags behind the work, and jumps when small ones are complete. In recorded runs of many
//! kinds of trees (`taskwork/scale/tests/policy/recorded.tsv`), neither the trend of the share nor its past steadiness
//! predicted the end better than the share alone. So the estimate is the remainder in proportion to the share,
//! corrected by the bias that it had in those runs, with the error that it had there.

/// The minimum share for an estimate of the end: below it, the range spans two orders of magnitude.
pub const SHARE_MIN: f64 = 0.1;

/// The quantile of 90 % of the normal distribution: 8 of 10 cases are within this many standard deviations.
const Z90: f64 = 1.281_551_565_545;

/// The upper end of the range is at least this multiple of the remainder in proportion: a job that counts its work
/// exactly may still become slower.
const SLOWER: f64 = 1.2;

/// Mean and standard deviation of log(remaining work / remainder in proportion), for each completed share.
const ERRORS: [(f64, f64, f64); 5] =
    [(0.02, -3.2, 1.7), (0.1, -1.8, 1.0), (0.3, -1.2, 1.2), (0.6, -0.5, 1.3), (1.0, 0.0, 1.0)];

/// The remaining work of a job, as a multiple of the work completed so far. Its logarithm is taken to be normally
/// distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remainder {
    /// The median.
    pub median: f64,
    /// The standard deviation of its logarithm.
    pub sigma: f64,
    /// The remainder if the share grows as before.
    in_proportion: f64,
}

impl Remainder {
    /// Returns the remainder of a job with this completed share; `None` if the share is not above 0 and at most 1.
    pub fn at_share(share: f64) -> Option<Self> {
        if !(share > 0.0 && share <= 1.0) {
            return None;
        }
        let (bias, sigma) = error(share);
        let in_proportion = (1.0 - share) / share;
        Some(Self { median: in_proportion * bias.exp(), sigma, in_proportion })
    }

    /// Returns the range that contains the remainder in 8 of 10 cases. It contains the remainder in proportion, since some
    /// jobs count their work exactly.
    pub fn range(&self) -> (f64, f64) {
        let factor = (Z90 * self.sigma).exp();
        (self.median / factor, (self.median * factor).max(SLOWER * self.in_proportion))
    }
}

/// Returns the mean and the standard deviation of the logarithmic error at a share, by interpolation.
fn error(share: f64) -> (f64, f64) {
    let above = ERRORS.partition_point(|(at, ..)| *at <= share);
    if above == 0 || above == ERRORS.len() {
        let (_, bias, sigma) = ERRORS[above.saturating_sub(1)];
        return (bias, sigma);
    }
    let ((from, bias, sigma), (to, next_bias, next_sigma)) = (ERRORS[above - 1], ERRORS[above]);
    let part = (share / from).ln() / (to / from).ln();
    (bias + (next_bias - bias) * part, sigma + (next_sigma - sigma) * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainder_shrinks_with_share_and_is_within_its_range() {
        let mut before = f64::INFINITY;
        for share in [1e-9, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0] {
            let remainder = Remainder::at_share(share).unwrap();
            let (least, most) = remainder.range();
            assert!(least <= remainder.median && remainder.median <= most, "{share}: {remainder:?}");
            let in_proportion = (1.0 - share) / share;
            assert!(least <= in_proportion && in_proportion <= most, "{share}: {remainder:?}");
            assert!(remainder.median < before, "{share}: {remainder:?}");
            before = remainder.median;
        }
        assert!(before.abs() < f64::EPSILON, "nothing remains");
    }

    #[test]
    fn impossible_share_has_no_remainder() {
        for share in [0.0, -1.0, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Remainder::at_share(share), None, "{share}");
        }
    }
}

//! The normal distribution, which models the logarithms of times and amounts of work.

/// The quantile of 90 %: 8 of 10 cases are within this many standard deviations.
pub(super) const Z90: f64 = 1.281_551_565_545;

/// Returns the probability of a value of at most `z` standard deviations (Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.2.17; error below 1e-7).
pub(super) fn cdf(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530]
        .into_iter()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    let above = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if z < 0.0 { above } else { 1.0 - above }
}

/// Returns the quantile of a probability in standard deviations, between -8 and 8.
pub(super) fn quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if cdf(middle) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdf_and_quantile_match_tables() {
        for (z, probability) in
            [(0.0, 0.5), (1.0, 0.841_344_746), (-1.0, 0.158_655_254), (2.5, 0.993_790_335)]
        {
            assert!((cdf(z) - probability).abs() < 1e-7, "{z}");
            assert!((quantile(probability) - z).abs() < 1e-5, "{z}");
        }
        assert!((cdf(Z90) - 0.9).abs() < 1e-7);
        assert!(quantile(0.0) >= -8.0 && quantile(1.0) <= 8.0, "bounded");
    }
}

//! Random numbers for clouds and trees.

use rand::{Rng as _, rngs::SmallRng};

/// Returns a normally distributed number (G. Box and M. Muller, 1958).
pub(crate) fn normal(chance: &mut SmallRng) -> f64 {
    let (one, two): (f64, f64) = (1.0 - chance.random::<f64>(), chance.random());
    (-2.0 * one.ln()).sqrt() * (2.0 * std::f64::consts::PI * two).cos()
}

/// Returns the time until an event with this rate.
pub(crate) fn exponential(chance: &mut SmallRng, rate: f64) -> f64 {
    -(1.0 - chance.random::<f64>()).ln() / rate
}

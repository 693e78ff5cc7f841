//! Repeated alternating measurements, and their statistics.

use std::{fmt, time::Instant};

use anyhow::Result;
use serde::Serialize;

/// A named piece of code to be timed.
pub struct Contender<'a> {
    name: &'static str,
    run: Box<dyn FnMut() -> Result<()> + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a contender with a name.
    pub fn new(name: &'static str, run: impl FnMut() -> Result<()> + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The durations of each contender, in seconds, by round.
#[derive(Debug, Clone)]
pub struct Times(Vec<(&'static str, Vec<f64>)>);

impl Times {
    /// Returns the durations of a contender.
    ///
    /// # Panics
    /// If there is no contender of that name.
    pub fn of(&self, name: &str) -> &[f64] {
        let times = self.0.iter().find(|(contender, _)| *contender == name);
        times.map_or_else(|| panic!("no contender {name}"), |(_, times)| times.as_slice())
    }

    /// Returns the speedup of one contender over another, by round.
    pub fn speedup(&self, of: &str, over: &str) -> Sample {
        Sample::of(self.of(over).iter().zip(self.of(of)).map(|(over, of)| over / of))
    }

    /// Returns how many units a contender processed per second.
    pub fn rate(&self, of: &str, units: f64) -> Sample {
        Sample::of(self.of(of).iter().map(|seconds| units / seconds))
    }

    /// Returns the durations of a contender, in seconds.
    pub fn seconds(&self, of: &str) -> Sample {
        Sample::of(self.of(of).iter().copied())
    }
}

/// Runs all contenders alternately for this many rounds, after a first round that does not count.
///
/// # Errors
/// The first error of a contender.
pub fn in_turn(rounds: usize, mut contenders: Vec<Contender<'_>>) -> Result<Times> {
    let mut times: Vec<(&'static str, Vec<f64>)> =
        contenders.iter().map(|contender| (contender.name, Vec::new())).collect();
    for round in 0..=rounds {
        for (contender, (_, times)) in contenders.iter_mut().zip(&mut times) {
            let started = Instant::now();
            (contender.run)()?;
            if round > 0 {
                times.push(started.elapsed().as_secs_f64());
            }
        }
    }
    Ok(Times(times))
}

/// Several measurements of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// The number of measurements.
    pub count: usize,
}

impl Sample {
    /// Summarises some measurements.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = values.first().zip(values.last()).expect("something was measured");
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self { median, least, most, count: values.len() }
    }

    /// Returns the same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let Self { median, least, most, count } = self;
        Self { median: median * factor, least: least * factor, most: most * factor, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_in_the_middle() {
        let odd = Sample::of([3.0, 1.0, 2.0]);
        assert_eq!(odd, Sample { median: 2.0, least: 1.0, most: 3.0, count: 3 });
        assert_eq!(Sample::of([4.0, 1.0, 2.0, 3.0]), Sample { median: 2.5, least: 1.0, most: 4.0, count: 4 });
    }

    #[test]
    fn contender_with_half_the_time_is_twice_as_fast() {
        let times = Times(vec![("slow", vec![2.0, 4.0]), ("fast", vec![1.0, 2.0])]);
        assert_eq!(times.speedup("fast", "slow"), Sample::of([2.0, 2.0]));
        assert_eq!(times.rate("fast", 10.0), Sample::of([10.0, 5.0]));
    }
}

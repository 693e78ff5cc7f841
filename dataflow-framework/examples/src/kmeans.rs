//! k-means: points are divided among the nearest of some centres, which then move to the middle of their points, again
//! and again (Tejedor 2013, section 5.5).
//!
//! The points are in fragments, each made and kept where it is first needed. Between two rounds the program reads one
//! small value, the sums of all fragments.

use dataflow_framework::{Array, Data, Failure, program, reduce, task};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::positive;

/// The size of the input.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of points of a fragment.
    #[arg(long, default_value_t = 1000, value_parser = positive)]
    pub points: usize,
    /// The number of fragments.
    #[arg(long, default_value_t = 32, value_parser = positive)]
    pub fragments: usize,
    /// The number of dimensions.
    #[arg(long, default_value_t = 4, value_parser = positive)]
    pub dimensions: usize,
    /// The number of centres.
    #[arg(long, default_value_t = 8, value_parser = positive)]
    pub centres: usize,
    /// The number of rounds.
    #[arg(long, default_value_t = 10)]
    pub rounds: usize,
}

/// The sum of the points of each centre, and their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    sums: Array<f64>,
    points: Vec<u64>,
}

/// Makes a fragment.
#[task]
pub fn points(number: usize, dimensions: usize, seed: u64) -> Array<f64> {
    let mut random = StdRng::seed_from_u64(seed);
    let coordinates = (0..number * dimensions).map(|_| random.random()).collect();
    Array::from_elements([number, dimensions], coordinates)
}

/// Adds up the points of a fragment that are nearest to each centre.
#[task(cached)]
pub fn nearest(points: &Array<f64>, centres: &Array<f64>) -> Sums {
    let (number, dimensions) = (centres.shape()[0], centres.shape()[1]);
    let mut sums = Sums { sums: Array::filled([number, dimensions], 0.0), points: vec![0; number] };
    for point in points.chunks_exact(dimensions) {
        let distance =
            |centre: &[f64]| -> f64 { point.iter().zip(centre).map(|(a, b)| (a - b).powi(2)).sum() };
        let distances = centres.chunks_exact(dimensions).map(distance).enumerate();
        let nearest = distances.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(nearest, _)| nearest);
        for (sum, coordinate) in sums.sums.row_mut(nearest).iter_mut().zip(point) {
            *sum += coordinate;
        }
        sums.points[nearest] += 1;
    }
    sums
}

/// Adds the sums of other points.
#[task]
pub fn add(to: &mut Sums, from: &Sums) {
    for (to, from) in to.sums.iter_mut().zip(&*from.sums) {
        *to += from;
    }
    for (to, from) in to.points.iter_mut().zip(&from.points) {
        *to += from;
    }
}

impl Sums {
    /// Returns the middle of the points of each centre; a centre without points stays.
    fn middles(&self, centres: &Array<f64>) -> Array<f64> {
        let mut middles = centres.clone();
        let dimensions = centres.shape()[1];
        for (centre, points) in self.points.iter().enumerate().filter(|(_, points)| **points > 0) {
            for dimension in 0..dimensions {
                middles[[centre, dimension]] = self.sums[[centre, dimension]] / *points as f64;
            }
        }
        middles
    }
}

/// Divides points among centres. Returns the centres after the last round.
///
/// # Errors
/// If a call fails.
///
/// # Panics
/// If there are no fragments, dimensions or centres.
#[program(points, nearest, add)]
pub fn kmeans(#[command(flatten)] input: Input) -> Result<Vec<Vec<f64>>, Failure> {
    let Input { points: number, fragments, dimensions, centres, rounds } = input;
    let fragments: Vec<_> = (0..).take(fragments).map(|seed| points(number, dimensions, seed)).collect();
    let mut centres = points::now(centres, dimensions, u64::MAX);
    for _ in 0..rounds {
        let current = Data::new(centres.clone());
        let sums = fragments.iter().map(|fragment| nearest(fragment, &current));
        let total = reduce(sums.collect::<Vec<_>>(), add).expect("there are fragments");
        centres = total.get()?.middles(&centres);
    }
    Ok((0..centres.shape()[0]).map(|centre| centres.row(centre).to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Array, Main, Program as _, Workflow, WorkflowError};

    use super::{Input, kmeans, nearest, points};

    const INPUT: Input = Input { points: 50, fragments: 7, dimensions: 3, centres: 4, rounds: 5 };

    #[test]
    fn result_is_bitwise_equal_in_all_modes() -> Result<(), WorkflowError> {
        let expected = Workflow::new(kmeans::tasks())?.sequential().run(|| kmeans(INPUT))?;
        for workers in [1, 2, 8] {
            assert_eq!(Workflow::new(kmeans::tasks())?.workers(workers).run(|| kmeans(INPUT))?, expected);
        }
        Ok(())
    }

    /// Imported data is read on other nodes.
    #[test]
    fn nodes_within_process_give_same_result() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let expected = Workflow::new(kmeans::tasks())?.sequential().run(|| kmeans(INPUT))?;
        for nodes in [2, 3] {
            let report = Main::<kmeans>::job((INPUT,)).nodes(nodes).run()?;
            assert_eq!(Main::<kmeans>::returned(&report)?, expected, "on {nodes} nodes");
        }
        Ok(())
    }

    #[test]
    fn centres_converge_to_means_of_their_points() -> Result<(), WorkflowError> {
        let input = Input { fragments: 1, rounds: 100, ..INPUT };
        let centres = Workflow::new(kmeans::tasks())?.workers(2).run(|| kmeans(input))?;
        let centres = Array::from_elements([4, 3], centres.concat());
        let sums = nearest::now(&points::now(50, 3, 0), &centres);
        assert_eq!(sums.middles(&centres), centres);
        Ok(())
    }

    /// In each round every fragment is read once, and all sums but one are added to another.
    #[test]
    fn round_makes_expected_number_of_calls() -> Result<(), WorkflowError> {
        let input = Input { points: 1, fragments: 4096, dimensions: 1, centres: 2, rounds: 2 };
        let (_, figures) = Workflow::new(kmeans::tasks())?.workers(2).run_with_stats(|| kmeans(input))?;
        assert_eq!(figures.calls, 4096 + 2 * 8191);
        Ok(())
    }
}

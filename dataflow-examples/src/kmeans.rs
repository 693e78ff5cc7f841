//! k-means: points are divided among the nearest of some centres, which then move to the middle of their points, again
//! and again (Tejedor 2013, section 5.5).
//!
//! The points are in fragments, each made and kept where it is first needed. Between two rounds the program reads one
//! small value, the sums of all fragments.

use dataflow_framework::{Array, Data, Failure, TaskDef, reduce, task, tasks};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// What is divided.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// The number of points of a fragment.
    pub points: usize,
    /// The number of fragments.
    pub fragments: usize,
    /// The number of dimensions.
    pub dimensions: usize,
    /// The number of centres.
    pub centres: usize,
    /// The number of rounds.
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
#[task]
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

/// Returns the tasks of the program.
pub fn tasks() -> Vec<TaskDef> {
    tasks![points, nearest, add].to_vec()
}

/// Returns the centres after the last round.
///
/// # Errors
/// If a call fails.
///
/// # Panics
/// If there are no fragments, dimensions or centres.
pub fn program(input: Input) -> Result<Array<f64>, Failure> {
    let Input { points: number, fragments, dimensions, centres, rounds } = input;
    let fragments: Vec<_> = (0..).take(fragments).map(|seed| points(number, dimensions, seed)).collect();
    let mut centres = points::now(centres, dimensions, u64::MAX);
    for _ in 0..rounds {
        let current = Data::new(centres.clone());
        let sums = fragments.iter().map(|fragment| nearest(fragment, &current));
        let total = reduce(sums.collect::<Vec<_>>(), add).expect("there are fragments");
        centres = total.get()?.middles(&centres);
    }
    Ok(centres)
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Workflow, WorkflowError};

    use super::{Input, nearest, points, program, tasks};

    const INPUT: Input = Input { points: 50, fragments: 7, dimensions: 3, centres: 4, rounds: 5 };

    #[test]
    fn all_ways_to_run_it_give_the_same_to_the_last_bit() -> Result<(), WorkflowError> {
        let expected = Workflow::new(tasks())?.sequential().run(|| program(INPUT))?;
        for workers in [1, 2, 8] {
            assert_eq!(Workflow::new(tasks())?.workers(workers).run(|| program(INPUT))?, expected);
        }
        Ok(())
    }

    #[test]
    fn the_centres_settle_in_the_middle_of_their_points() -> Result<(), WorkflowError> {
        let input = Input { fragments: 1, rounds: 100, ..INPUT };
        let centres = Workflow::new(tasks())?.workers(2).run(|| program(input))?;
        let sums = nearest::now(&points::now(50, 3, 0), &centres);
        assert_eq!(sums.middles(&centres), centres);
        Ok(())
    }

    /// In each round every fragment is read once, and all sums but one are added to another.
    #[test]
    fn a_round_has_as_many_calls_as_it_should() -> Result<(), WorkflowError> {
        let input = Input { points: 1, fragments: 4096, dimensions: 1, centres: 2, rounds: 2 };
        let (_, figures) = Workflow::new(tasks())?.workers(2).measured(|| program(input))?;
        assert_eq!(figures.calls, 4096 + 2 * 8191);
        Ok(())
    }
}

//! The search by assignments against all tours, in both directions.

use bnb_framework::{Best, Collect, Solver, check, sequential};
use proptest::prelude::*;

use super::DirectedProblem;
use crate::instance::{City, Instance};

/// Returns the lengths of all tours, in ascending order.
fn all_lengths(instance: &Instance) -> Vec<u64> {
    fn extend(instance: &Instance, tour: &mut Vec<City>, lengths: &mut Vec<u64>) {
        if tour.len() == instance.len() {
            lengths.push(instance.tour_length(tour));
        }
        for city in 1..instance.len() {
            if !tour.contains(&city) {
                tour.push(city);
                extend(instance, tour, lengths);
                tour.pop();
            }
        }
    }
    let mut lengths = Vec::new();
    extend(instance, &mut vec![0], &mut lengths);
    lengths.sort_unstable();
    lengths
}

proptest! {
    #[test]
    fn optimum_equals_shortest_of_all_tours(
        cities in 1_usize..8,
        distances in prop::collection::vec(0_u32..30, 49),
    ) {
        let instance = Instance::directed("test", cities, distances[..cities * cities].to_vec());
        let lengths = all_lengths(&instance);
        let problem = DirectedProblem::new(instance.clone());
        prop_assert!(problem.root_bound(None) <= lengths[0]);
        // A start tour that is longer by one must be improved.
        for start in [None, Some(Best::new(lengths[0] + 1, Vec::new()))] {
            let found = sequential::solve(&problem, true, start).best.map(|best| best.cost);
            prop_assert_eq!(found, Some(lengths[0]));
        }
        let (length, tour) = problem.start(&|| false);
        prop_assert_eq!(instance.checked_length(&tour), Some(length));
    }

    #[test]
    fn directed_search_passes_check(cities in 1_usize..8, distances in prop::collection::vec(0_u32..30, 49)) {
        let instance = Instance::directed("test", cities, distances[..cities * cities].to_vec());
        let found = check(&DirectedProblem::new(instance));
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }

    #[test]
    fn best_tours_are_each_collected_exactly_once(
        cities in 3_usize..7,
        distances in prop::collection::vec(0_u32..30, 36),
        at_most in 1_usize..30,
    ) {
        let instance = Instance::directed("test", cities, distances[..cities * cities].to_vec());
        let lengths = all_lengths(&instance);
        let solver = Solver::new(DirectedProblem::new(instance)).workers(1);
        let solved = solver.collect(Collect { at_most, within: None }).run().unwrap();
        let found: Vec<u64> = solved.collected.iter().map(|best| best.cost).collect();
        prop_assert_eq!(&found, &lengths[..at_most.min(lengths.len())]);
    }
}

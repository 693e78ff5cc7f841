//! The search by one-trees against the search by paths, and against known optimal tours.

use std::{fs, path::Path};

use bnb_framework::{Best, Collect, Problem, Solver, Tree, check, sequential};

use super::*;
use crate::{
    generate::{Kind, generate},
    one_tree::links::Links,
    path::PathProblem,
    read::read_instance,
};

/// Returns the lengths of all tours of a small instance, each direction once, in ascending order.
fn all_lengths(instance: &Instance) -> Vec<u64> {
    fn extend(instance: &Instance, tour: &mut Vec<City>, lengths: &mut Vec<u64>) {
        if tour.len() == instance.len() {
            if tour[1] < tour[tour.len() - 1] {
                lengths.push(instance.tour_length(tour));
            }
            return;
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

fn kinds() -> impl Iterator<Item = (Kind, u64)> {
    (0..12).flat_map(|seed| [(Kind::Euclidean, seed), (Kind::Random, seed)])
}

#[test]
fn optimum_with_and_without_start_tour_equals_shortest_of_all_tours() {
    for (kind, seed) in kinds() {
        for cities in [4, 5, 6, 8] {
            let instance = generate(cities, seed, kind);
            let lengths = all_lengths(&instance);
            let problem = OneTreeProblem::new(instance.clone());
            let found = sequential::solve(&problem, true, None).best.map(|best| best.cost);
            assert_eq!(found, Some(lengths[0]), "{}", instance.name);
            // A start tour that is longer by one must be improved.
            let longer = Best::new(lengths[0] + 1, Vec::new());
            let found = sequential::solve(&problem, true, Some(longer)).best.map(|best| best.cost);
            assert_eq!(found, Some(lengths[0]), "{}", instance.name);
        }
    }
}

#[test]
fn check_of_any_search_finds_no_mistake() {
    for (kind, seed) in kinds() {
        let instance = generate(8, seed, kind);
        check(&OneTreeProblem::new(instance.clone())).unwrap();
        check(&PathProblem::<16, 1>::new(instance)).unwrap();
    }
}

#[test]
fn larger_instances_have_optimum_of_path_search() {
    for (kind, seed) in kinds() {
        let instance = generate(13, seed, kind);
        let paths = PathProblem::<16, 1>::new(instance.clone());
        let expected = sequential::solve(&paths, true, None).best.map(|best| best.cost);
        let problem = OneTreeProblem::new(instance.clone());
        let found = sequential::solve(&problem, true, None).best.map(|best| best.cost);
        assert_eq!(found, expected, "{}", instance.name);
    }
}

#[test]
fn best_tours_are_each_collected_exactly_once() {
    for (kind, seed) in kinds().take(12) {
        let instance = generate(7, seed, kind);
        let lengths = all_lengths(&instance);
        for at_most in [1, 2, 7, 400] {
            let solver = Solver::new(OneTreeProblem::new(instance.clone())).workers(1);
            let solved = solver.collect(Collect { at_most, within: None }).run().unwrap();
            let found: Vec<u64> = solved.collected.iter().map(|best| best.cost).collect();
            assert_eq!(found, lengths[..at_most.min(lengths.len())], "{}", instance.name);
        }
    }
}

/// Follows an optimal tour down the tree: at each state there must be a child that has all its edges.
fn keeps(instance: &Instance, tour: &[City], name: &str) {
    let links = Links::of(tour);
    let length = instance.tour_length(tour);
    let problem = OneTreeProblem::new(instance.clone());
    let mut state = problem.root();
    // All shorter tours are of interest, and this one is, because the search knows one that is longer.
    let best = Some(length + 1);
    for _ in 0..200 {
        assert!(links.satisfy(&state.edges), "{name}: the tour was cut off");
        let bound = problem.bound(&mut state, best);
        assert!(bound.is_some_and(|bound| bound <= length), "{name}: {bound:?} is no bound on {length}");
        assert!(links.satisfy(&state.edges), "{name}: the tour was eliminated");
        let mut children = problem.branch(&mut state).into_iter();
        let next = children.find(|child| {
            problem.leaf(child).is_none_or(|found| found == length) && links.satisfy(&child.edges)
        });
        state = next.expect("a child with the tour");
        if problem.leaf(&state).is_some() {
            return;
        }
    }
    panic!("{name}: the tour is not reached");
}

#[test]
fn conclusions_keep_the_optimal_tour() {
    for (kind, seed) in kinds() {
        let instance = generate(12, seed, kind);
        let paths = PathProblem::<16, 1>::new(instance.clone());
        let best = sequential::solve(&paths, true, None).best.unwrap();
        keeps(&instance, &best.solution, &instance.name);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instances/random35.tsp");
    assert!(fs::exists(&file).unwrap());
    let instance = read_instance(&file).unwrap();
    let (length, tour) = start::tour(&instance);
    assert_eq!(length, 4880, "the optimum, as in optima.tsv");
    keeps(&instance, &tour, "random35");
}

#[test]
fn bound_raised_in_parts_stays_a_lower_bound() {
    let instance = generate(450, 1, Kind::Euclidean);
    let (length, _) = start::tour(&instance);
    let problem = OneTreeProblem::new(instance);
    let mut parts = 0;
    let low = problem.root_bound(Some(length), || {
        parts += 1;
        false
    });
    assert!(low <= length && low * 100 > length * 95, "{low} of {length}");
    assert!(parts > 2, "one call of the bound did all the work");
    assert!(problem.root_bound(Some(length), || true) <= low);
}

#[test]
fn directed_instances_have_optimum_of_path_search() {
    use rand::{Rng, SeedableRng, rngs::StdRng};
    let mut random = StdRng::seed_from_u64(4);
    for cities in [4, 5, 6, 7, 8, 9, 9, 9, 9, 9] {
        let distances = (0..cities * cities).map(|_| random.random_range(0..40)).collect();
        let instance = Instance::directed("random", cities, distances);
        let paths = PathProblem::<16, 1>::new(instance.clone());
        let expected = sequential::solve(&paths, true, None).best.unwrap();
        let problem = OneTreeProblem::new(instance.clone());
        let found = sequential::solve(&problem, true, None).best.unwrap();
        assert_eq!(found.cost, expected.cost);
        assert_eq!(instance.checked_length(&found.solution), Some(found.cost), "in its direction");
        assert!(problem.root_bound(None, || false) <= expected.cost);
        let longer = Best::new(expected.cost + 1, Vec::new());
        let found = sequential::solve(&problem, true, Some(longer)).best.map(|best| best.cost);
        assert_eq!(found, Some(expected.cost));
    }
}

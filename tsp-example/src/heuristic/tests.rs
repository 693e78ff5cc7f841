//! Local search keeps tours whole, is repeatable, and stops on request.

use std::cell::Cell;

use super::*;
use crate::generate::{Kind, generate};

/// A directed instance with random distances.
fn directed(cities: usize, seed: u64) -> Instance {
    let mut random = StdRng::seed_from_u64(seed);
    let distances = (0..cities * cities).map(|_| random.random_range(1..=1000)).collect();
    Instance::directed("random", cities, distances)
}

fn instances() -> Vec<Instance> {
    let sizes = [1, 2, 3, 4, 5, 7, 8, 9, 13, 40, 120];
    let undirected = sizes.iter().flat_map(|&cities| {
        [Kind::Euclidean, Kind::Random].map(|kind| generate(cities, cities as u64, kind))
    });
    undirected.chain(sizes.iter().map(|&cities| directed(cities, 5))).collect()
}

#[test]
fn improved_tours_stay_tours_and_match_their_reported_gain() {
    for instance in instances() {
        let heuristic = Heuristic::new(&instance);
        for seed in 0..4 {
            let tour = heuristic.construct(&instance, seed, &|| false);
            let length = instance.checked_length(&tour).expect("every city once");
            let (gain, better) = heuristic.kick(&instance, &tour, (seed, 300), &|| false);
            let shorter = instance.checked_length(&better).expect("every city once");
            assert_eq!(length.checked_sub(shorter), u64::try_from(gain).ok(), "{} {seed}", instance.name);
        }
    }
}

#[test]
fn same_seed_finds_same_tour() {
    for instance in [generate(120, 7, Kind::Euclidean), directed(90, 7)] {
        let heuristic = Heuristic::new(&instance);
        let tour = |seed| heuristic.construct(&instance, seed, &|| false);
        assert_eq!(tour(1), tour(1));
        assert!((2..6).any(|seed| tour(seed) != tour(1)), "{}", instance.name);
        let better = |seed| heuristic.kick(&instance, &tour(1), (seed, 200), &|| false);
        assert_eq!(better(3), better(3));
        assert!((4..8).any(|seed| better(seed) != better(3)), "{}", instance.name);
        let improved = heuristic.improve(&instance, &tour(1), 3, &|| false).expect("kicks help");
        assert!(instance.tour_length(&improved) < instance.tour_length(&tour(1)));
    }
}

#[test]
fn stopped_search_returns_a_tour() {
    for instance in [generate(300, 7, Kind::Euclidean), directed(120, 7)] {
        let heuristic = Heuristic::new(&instance);
        let asked = Cell::new(0);
        let stops = || {
            asked.set(asked.get() + 1);
            asked.get() > 3
        };
        let tour = heuristic.construct(&instance, 1, &stops);
        assert!(instance.checked_length(&tour).is_some());
        let better = heuristic.improve(&instance, &tour, 1, &stops).unwrap_or(tour);
        assert!(instance.checked_length(&better).is_some());
        assert!(asked.get() < 8, "it went on after it was told to stop: asked {} times", asked.get());
    }
}

#[test]
fn small_tours_are_mostly_optimal() {
    use bnb_framework::sequential;

    use crate::path::PathProblem;
    let found = (0..10).filter(|&seed| {
        let instance = generate(11, seed, Kind::Euclidean);
        let heuristic = Heuristic::new(&instance);
        let tour = heuristic.construct(&instance, seed, &|| false);
        let (_, tour) = heuristic.kick(&instance, &tour, (seed, 200), &|| false);
        let best = sequential::solve(&PathProblem::<16, 1>::new(instance.clone()), true, None).best;
        best.map(|best| best.cost) == Some(instance.tour_length(&tour))
    });
    assert!(found.count() >= 9);
}

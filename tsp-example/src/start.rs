//! A start tour: nearest neighbour from several cities, improved by 2-opt and Or-opt until neither helps.
//!
//! Deterministic: the same instance produces the same tour.

use crate::instance::{City, Instance};

/// The maximum number of cities from which a tour is started.
const STARTS_MAX: usize = 64;
/// The maximum number of cities for which tours are improved; larger instances use only the nearest
/// neighbour.
const IMPROVED_CITIES_MAX: usize = 2_000;
/// The maximum length of a chain of cities that Or-opt moves.
const CHAIN_MAX: usize = 3;

/// Returns a good tour of an instance, and its length.
pub fn tour(instance: &Instance) -> (u64, Vec<City>) {
    let cities = instance.len();
    let starts = cities.min(if cities <= 400 { STARTS_MAX } else { 4 });
    let tours = (0..starts).map(|start| {
        let mut tour = nearest_neighbour(instance, start * cities / starts);
        if cities <= IMPROVED_CITIES_MAX {
            improve(instance, &mut tour);
        }
        (instance.tour_length(&tour), tour)
    });
    let (length, tour) = tours.min().unwrap_or_default();
    (length, from_first(tour))
}

/// Returns a tour made shorter, if the instance is not too large for that.
pub(crate) fn improved(instance: &Instance, mut tour: Vec<City>) -> Vec<City> {
    if tour.len() <= IMPROVED_CITIES_MAX {
        improve(instance, &mut tour);
    }
    from_first(tour)
}

fn from_first(mut tour: Vec<City>) -> Vec<City> {
    if let Some(first) = tour.iter().position(|&city| city == 0) {
        tour.rotate_left(first);
    }
    tour
}

fn nearest_neighbour(instance: &Instance, start: City) -> Vec<City> {
    let mut open: Vec<City> = (0..instance.len()).filter(|&city| city != start).collect();
    let mut tour = vec![start];
    let mut last = start;
    while !open.is_empty() {
        let nearest = (0..open.len()).min_by_key(|&place| instance.distance(last, open[place]));
        last = open.swap_remove(nearest.expect("a city is open"));
        tour.push(last);
    }
    tour
}

/// Applies improving moves until there is none left. Each makes the tour shorter by a whole number, so this
/// terminates.
fn improve(instance: &Instance, tour: &mut [City]) {
    // Reversing a segment changes its length if distances depend on the direction.
    while !instance.is_directed() && two_opt(instance, tour) || or_opt(instance, tour) {}
}

/// Reverses segments of the tour while that makes it shorter. Returns whether it did.
fn two_opt(instance: &Instance, tour: &mut [City]) -> bool {
    let n = tour.len();
    let d = |a, b| i64::from(instance.distance(a, b));
    let mut improved = false;
    for i in 0..n.saturating_sub(2) {
        for j in i + 2..n {
            let (from, to) = ((tour[i], tour[i + 1]), (tour[j], tour[(j + 1) % n]));
            let crossed = d(from.0, to.0) + d(from.1, to.1);
            if from.0 != to.1 && crossed < d(from.0, from.1) + d(to.0, to.1) {
                tour[i + 1..=j].reverse();
                improved = true;
            }
        }
    }
    improved
}

/// Moves short chains of cities elsewhere, forwards or backwards, while that makes the tour shorter. Returns
/// whether it did.
fn or_opt(instance: &Instance, tour: &mut [City]) -> bool {
    let n = tour.len();
    let mut improved = false;
    for length in 1..=CHAIN_MAX.min(n.saturating_sub(3)) {
        for _ in 0..n {
            // The chain is at the front; rotating the tour brings up the next one.
            improved |= move_front(instance, tour, length);
            tour.rotate_left(1);
        }
    }
    improved
}

/// Moves the first `length` cities to where they fit best, if that is better than their current position.
fn move_front(instance: &Instance, tour: &mut [City], length: usize) -> bool {
    let n = tour.len();
    let d = |a: City, b: City| i64::from(instance.distance(a, b));
    let (first, last) = (tour[0], tour[length - 1]);
    let saved = d(tour[n - 1], first) + d(last, tour[length]) - d(tour[n - 1], tour[length]);
    let costs = (length..n - 1).map(|place| {
        let (a, b) = (tour[place], tour[place + 1]);
        let (forwards, backwards) = (d(a, first) + d(last, b) - d(a, b), d(a, last) + d(first, b) - d(a, b));
        let backwards = if instance.is_directed() { forwards } else { backwards };
        (forwards.min(backwards), place, backwards < forwards)
    });
    match costs.min() {
        Some((cost, place, backwards)) if cost < saved => {
            if backwards {
                tour[..length].reverse();
            }
            tour[..=place].rotate_left(length);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Kind, generate};

    #[test]
    fn a_start_tour_visits_every_city_once_and_says_its_length() {
        for cities in [1, 2, 3, 4, 5, 8, 50] {
            let instance = generate(cities, 3, Kind::Euclidean);
            let (length, tour) = tour(&instance);
            let mut sorted = tour.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..cities).collect::<Vec<_>>());
            assert_eq!(length, instance.tour_length(&tour));
            assert_eq!(tour[0], 0);
        }
    }

    #[test]
    fn improving_shortens_what_the_nearest_neighbour_gives() {
        let instance = generate(60, 1, Kind::Euclidean);
        let plain = instance.tour_length(&nearest_neighbour(&instance, 0));
        assert!(tour(&instance).0 < plain);
    }
}

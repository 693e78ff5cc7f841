//! A start tour, by local search for a while.
//!
//! Deterministic unless it is stopped: the same instance produces the same tour.

use crate::{
    heuristic::Heuristic,
    instance::{City, Instance},
};

/// The number of tours to build, the best of which is improved; and the number for many cities.
const TOURS: u64 = 5;
const TOURS_OF_MANY: u64 = 1;
const MANY: usize = 1_500;
/// The number of kicks per city, and the maximum.
const KICKS_PER_CITY: u64 = 200;
const KICKS_MAX: u64 = 50_000;
/// The maximum product of kicks and cities: each kick takes longer if there are more cities. At this limit
/// 5,000 cities take less than a second. The limit is not a time, because a search that is resumed from a saved
/// state must start from the same tour.
const KICKED_CITIES_MAX: u64 = 20_000_000;

/// Returns a good tour of an instance, and its length.
pub fn tour(instance: &Instance) -> (u64, Vec<City>) {
    tour_until(instance, &|| false)
}

/// Returns the best tour of an instance that is found until `stops` returns `true`, and its length. `stops` is
/// called about every millisecond once there is a tour.
pub fn tour_until(instance: &Instance, stops: &dyn Fn() -> bool) -> (u64, Vec<City>) {
    improved(instance, &Heuristic::new(instance), None, stops)
}

/// Does the same with a start tour in addition to those that are built.
pub(crate) fn improved(
    instance: &Instance,
    heuristic: &Heuristic,
    known: Option<Vec<City>>,
    stops: &dyn Fn() -> bool,
) -> (u64, Vec<City>) {
    let known = known.map(|tour| heuristic.descend(instance, &tour, stops));
    let mut best = known.map(|tour| (instance.tour_length(&tour), tour));
    for seed in 0..if instance.len() < MANY { TOURS } else { TOURS_OF_MANY } {
        if best.is_some() && stops() {
            break;
        }
        let tour = heuristic.construct(instance, seed, stops);
        let built = (instance.tour_length(&tour), tour);
        best = Some(best.map_or(built.clone(), |best| best.min(built)));
    }
    let (_, tour) = best.unwrap_or_default();
    let cities = instance.len() as u64;
    let kicks = (cities * KICKS_PER_CITY).min(KICKS_MAX).min(KICKED_CITIES_MAX / cities.max(1));
    let (_, tour) = heuristic.kick(instance, &tour, (0, kicks), stops);
    let tour = from_first(tour);
    (instance.tour_length(&tour), tour)
}

fn from_first(mut tour: Vec<City>) -> Vec<City> {
    if let Some(first) = tour.iter().position(|&city| city == 0) {
        tour.rotate_left(first);
    }
    tour
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::generate::{Kind, generate};

    #[test]
    fn start_tour_visits_every_city_once_and_has_its_length() {
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
    fn start_tour_is_reproducible_and_longer_when_stopped() {
        let instance = generate(60, 1, Kind::Euclidean);
        let whole = tour(&instance);
        assert_eq!(whole, tour(&instance));
        let asked = Cell::new(0);
        let stopped = tour_until(&instance, &|| {
            asked.set(asked.get() + 1);
            true
        });
        assert_eq!(instance.checked_length(&stopped.1), Some(stopped.0));
        assert!(whole.0 < stopped.0 && (1..20).contains(&asked.get()), "asked {} times", asked.get());
    }
}

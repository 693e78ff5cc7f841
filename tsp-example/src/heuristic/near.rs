//! The nearest neighbours of every city: the only ones that local search tries.

use crate::instance::{City, Instance};

/// For each city, the cities nearest to it, the nearest first.
#[derive(Debug, Clone)]
pub(crate) struct Near {
    each: usize,
    cities: Vec<u32>,
}

impl Near {
    /// Finds the nearest cities after each city, by the distance from it.
    pub(crate) fn after(instance: &Instance, each: usize) -> Self {
        Self::by(instance.len(), each, |from, to| instance.distance(from, to))
    }

    /// Finds the nearest cities before each city, by the distance to it.
    pub(crate) fn before(instance: &Instance, each: usize) -> Self {
        Self::by(instance.len(), each, |from, to| instance.distance(to, from))
    }

    fn by(cities: usize, each: usize, distance: impl Fn(City, City) -> u32) -> Self {
        let each = each.min(cities.saturating_sub(1));
        let mut near = Self { each, cities: Vec::with_capacity(each * cities) };
        if each == 0 {
            return near;
        }
        let mut others: Vec<(u32, u32)> = Vec::with_capacity(cities);
        for city in 0..cities {
            others.clear();
            let all = (0..).take(cities).zip(0..cities).filter(|&(_, other)| other != city);
            others.extend(all.map(|(name, other)| (distance(city, other), name)));
            others.select_nth_unstable(each - 1);
            others[..each].sort_unstable();
            near.cities.extend(others[..each].iter().map(|&(_, other)| other));
        }
        near
    }

    pub(crate) fn of(&self, city: City) -> &[u32] {
        &self.cities[city * self.each..(city + 1) * self.each]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_the_nearest_in_their_direction() {
        let rows = [[0, 5, 1, 9], [2, 0, 7, 3], [4, 6, 0, 8], [1, 2, 3, 0]];
        let instance = Instance::directed("test", 4, rows.concat());
        let (after, before) = (Near::after(&instance, 2), Near::before(&instance, 2));
        assert_eq!([after.of(0), after.of(1), after.of(3)], [[2, 1], [0, 3], [0, 1]]);
        assert_eq!([before.of(0), before.of(2)], [[3, 1], [0, 3]]);
        assert_eq!(Near::after(&instance, 9).of(0), [2, 1, 3]);
        let one = Instance::directed("one", 1, vec![0]);
        assert!(Near::after(&one, 8).of(0).is_empty());
    }
}

//! A tour as an array with the places of all cities in it, and a record of its changes that can be undone.

use crate::instance::City;

/// A tour that changes by reversals and by exchanges of adjacent segments.
#[derive(Debug, Clone)]
pub(super) struct Order {
    cities: Vec<u32>,
    places: Vec<u32>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    /// The places from the first to the last were reversed, around the end if need be.
    Reversed(usize, usize),
    /// The places after the first up to the second, and those up to the third, have exchanged their cities.
    Exchanged(usize, usize, usize),
}

fn name(city: City) -> u32 {
    u32::try_from(city).expect("the distances of more cities do not fit into memory")
}

impl Order {
    pub(super) fn new(tour: &[City]) -> Self {
        let mut places = vec![0; tour.len()];
        for (place, &city) in tour.iter().enumerate() {
            places[city] = name(place);
        }
        Self { cities: tour.iter().copied().map(name).collect(), places, changes: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.cities.len()
    }

    pub(super) fn tour(&self) -> Vec<City> {
        self.cities.iter().map(|&city| city as usize).collect()
    }

    pub(super) fn at(&self, place: usize) -> City {
        self.cities[place] as usize
    }

    pub(super) fn place(&self, city: City) -> usize {
        self.places[city] as usize
    }

    pub(super) fn next(&self, city: City) -> City {
        let place = self.place(city) + 1;
        self.at(if place == self.len() { 0 } else { place })
    }

    pub(super) fn previous(&self, city: City) -> City {
        let place = self.place(city);
        self.at(if place == 0 { self.len() - 1 } else { place - 1 })
    }

    /// Replaces the edges from `a` to `b` and from `c` to `d` by those from `a` to `c` and from `b` to `d`.
    /// Either `b` follows `a` and `d` follows `c`, or both the other way round.
    pub(super) fn uncross(&mut self, [a, b, c, d]: [City; 4]) {
        let (first, last) = if self.next(a) == b { (b, c) } else { (a, d) };
        self.reverse(self.place(first), self.place(last));
    }

    /// Reverses the cities from one place to another, around the end if need be.
    pub(super) fn reverse(&mut self, first: usize, last: usize) {
        self.changes.push(Change::Reversed(first, last));
        self.turn(first, last);
    }

    /// Exchanges the cities at the places after `first` up to `middle` with those after that up to `last`.
    /// The places must ascend.
    pub(super) fn exchange(&mut self, first: usize, middle: usize, last: usize) {
        self.changes.push(Change::Exchanged(first, middle, last));
        self.rotate(first, middle, last);
    }

    /// Reverses a segment; or the rest of the tour, if that is shorter: the tour is the same.
    fn turn(&mut self, first: usize, last: usize) {
        let n = self.len();
        let length = (last + n - first) % n + 1;
        let (mut i, mut j, length) = if 2 * length > n {
            ((last + 1) % n, (first + n - 1) % n, n - length)
        } else {
            (first, last, length)
        };
        for _ in 0..length / 2 {
            self.cities.swap(i, j);
            self.places[self.cities[i] as usize] = name(i);
            self.places[self.cities[j] as usize] = name(j);
            i = if i + 1 == n { 0 } else { i + 1 };
            j = if j == 0 { n - 1 } else { j - 1 };
        }
    }

    fn rotate(&mut self, first: usize, middle: usize, last: usize) {
        self.cities[first + 1..=last].rotate_left(middle - first);
        for place in first + 1..=last {
            self.places[self.cities[place] as usize] = name(place);
        }
    }

    /// Makes the tour as it is now the one that [`undo`](Self::undo) restores.
    pub(super) fn keep(&mut self) {
        self.changes.clear();
    }

    /// Undoes all changes since the last [`keep`](Self::keep).
    pub(super) fn undo(&mut self) {
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Reversed(first, last) => self.turn(first, last),
                Change::Exchanged(first, middle, last) => self.rotate(first, first + last - middle, last),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_their_reported_gain_and_can_be_undone() {
        let tour: Vec<City> = vec![3, 0, 4, 1, 6, 5, 2];
        let mut order = Order::new(&tour);
        order.uncross([0, 4, 6, 5]);
        assert_eq!(order.tour(), [3, 0, 6, 1, 4, 5, 2]);
        order.keep();
        order.exchange(0, 2, 5);
        assert_eq!(order.tour(), [3, 1, 4, 5, 0, 6, 2]);
        order.reverse(5, 1);
        order.exchange(2, 3, 6);
        assert_ne!(order.tour(), [3, 0, 6, 1, 4, 5, 2]);
        order.undo();
        assert_eq!(order.tour(), [3, 0, 6, 1, 4, 5, 2]);
        assert!((0..7).all(|city| order.at(order.place(city)) == city));
        assert!((0..7).all(|city| order.previous(order.next(city)) == city));
    }

    #[test]
    fn uncrossing_backwards_replaces_the_same_edges() {
        let mut order = Order::new(&[0, 1, 2, 3, 4, 5, 6]);
        order.uncross([4, 3, 1, 0]);
        let edges = [(4, 1), (3, 0), (1, 2), (2, 3), (4, 5), (5, 6), (6, 0)];
        let has = |a: City, b: City| order.next(a) == b || order.previous(a) == b;
        assert!(edges.iter().all(|&(a, b)| has(a, b)), "{:?}", order.tour());
    }
}

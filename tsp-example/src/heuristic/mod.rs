//! Tours by local search: 2-opt and Or-opt, or 3-opt without reversals if distances depend on the direction.
//! A tour that no move improves is kicked locally and repaired again and again (O. Martin, S. W. Otto and E.
//! W. Felten, *Large-step Markov chains for the traveling salesman problem*, 1991; local kicks as in D.
//! Applegate, W. Cook and A. Rohe, *Chained Lin-Kernighan for large traveling salesman problems*, 2003).
//!
//! Deterministic: the same instance, tour and seed lead to the same tour unless the caller stops the search.

mod agenda;
mod directed;
mod near;
mod order;
mod undirected;

use rand::{Rng, SeedableRng, rngs::StdRng};

pub(crate) use self::near::Near;
use self::{agenda::Agenda, order::Order};
use crate::instance::{City, Instance};

/// The number of neighbours of each city that are tried.
const NEIGHBOURS: usize = 10;
/// The maximum length of the segments that a kick exchanges.
const SEGMENT_MAX: usize = 50;
/// The minimum number of cities for which kicks make sense; a local optimum of fewer is hardly ever bad.
const KICKED_CITIES_MIN: usize = 8;
/// The number of kicks in a round of [`Heuristic::improve`]: some 10 to 50 ms.
const ROUND: u64 = 2_000;
/// The number of cities that are tried between two questions whether to stop.
const ASK_EVERY: u32 = 32;

/// The data of an instance that local search needs.
#[derive(Debug, Clone)]
pub(crate) struct Heuristic {
    after: Near,
    /// Only if distances depend on the direction.
    before: Option<Near>,
}

/// A tour under improvement.
struct Search<'a> {
    instance: &'a Instance,
    heuristic: &'a Heuristic,
    order: Order,
    agenda: Agenda,
    stops: &'a dyn Fn() -> bool,
    stopped: bool,
    until_asked: u32,
}

impl Heuristic {
    pub(crate) fn new(instance: &Instance) -> Self {
        let before = instance.is_directed().then(|| Near::before(instance, NEIGHBOURS));
        Self { after: Near::after(instance, NEIGHBOURS), before }
    }

    pub(crate) fn near(&self) -> &Near {
        &self.after
    }

    /// Builds a tour: the nearest neighbour from a city chosen by the seed, then local search.
    pub(crate) fn construct(&self, instance: &Instance, seed: u64, stops: &dyn Fn() -> bool) -> Vec<City> {
        let cities = instance.len() as u64;
        // Neighbouring seeds start from distant cities.
        let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let start = usize::try_from(start % cities.max(1)).unwrap_or(0);
        self.descend(instance, &nearest_neighbour(instance, start, &self.after), stops)
    }

    /// Applies improving moves to a tour until there is none left.
    pub(crate) fn descend(&self, instance: &Instance, tour: &[City], stops: &dyn Fn() -> bool) -> Vec<City> {
        let mut search = Search::new(instance, self, tour, stops);
        search.agenda.extend(tour.iter().rev().copied());
        search.descend();
        search.order.tour()
    }

    /// Returns a tour that is shorter than a given one, if a round of kicks finds one.
    pub(crate) fn improve(
        &self,
        instance: &Instance,
        tour: &[City],
        seed: u64,
        stops: &dyn Fn() -> bool,
    ) -> Option<Vec<City>> {
        let (gain, better) = self.kick(instance, tour, (seed, ROUND), stops);
        (gain > 0).then_some(better)
    }

    /// Kicks a tour a number of times, with a seed, and keeps each result that is not longer. Returns the
    /// reduction in length, and the tour.
    pub(crate) fn kick(
        &self,
        instance: &Instance,
        tour: &[City],
        (seed, kicks): (u64, u64),
        stops: &dyn Fn() -> bool,
    ) -> (i64, Vec<City>) {
        let mut search = Search::new(instance, self, tour, stops);
        let mut random = StdRng::seed_from_u64(seed);
        // The given tour may be no local optimum.
        search.agenda.extend(tour.iter().rev().copied());
        let mut gained = search.descend();
        search.order.keep();
        if tour.len() >= KICKED_CITIES_MIN {
            for _ in 0..kicks {
                let gain = search.exchange_segments(&mut random) + search.descend();
                if gain < 0 {
                    search.order.undo();
                } else {
                    gained += gain;
                    search.order.keep();
                }
                if search.stopped {
                    break;
                }
            }
        }
        (gained, search.order.tour())
    }
}

impl<'a> Search<'a> {
    fn new(
        instance: &'a Instance,
        heuristic: &'a Heuristic,
        tour: &[City],
        stops: &'a dyn Fn() -> bool,
    ) -> Self {
        let agenda = Agenda::new(tour.len());
        let order = Order::new(tour);
        Self { instance, heuristic, order, agenda, stops, stopped: false, until_asked: ASK_EVERY }
    }

    fn asks_whether_to_stop(&mut self) -> bool {
        self.until_asked -= 1;
        if self.until_asked == 0 {
            self.until_asked = ASK_EVERY;
            self.stopped |= (self.stops)();
        }
        self.stopped
    }

    /// Improves the tour at the cities on the agenda until it is empty. Returns by how much.
    fn descend(&mut self) -> i64 {
        let Self { instance, heuristic, .. } = *self;
        let mut gained = 0;
        while let Some(city) = self.agenda.pop() {
            let (order, agenda) = (&mut self.order, &mut self.agenda);
            let gain = match &heuristic.before {
                Some(before) => {
                    directed::improve_at(instance, [&heuristic.after, before], order, city, agenda)
                }
                None => undirected::improve_at(instance, &heuristic.after, order, city, agenda),
            };
            if let Some(gain) = gain {
                gained += gain;
                self.agenda.extend([city]);
            }
            if self.asks_whether_to_stop() {
                break;
            }
        }
        gained
    }

    /// Exchanges two short adjacent segments at a random place: a double bridge. Returns by how much the tour
    /// has become shorter, which is usually negative.
    #[allow(clippy::many_single_char_names, reason = "cities, as the literature names them")]
    fn exchange_segments(&mut self, random: &mut StdRng) -> i64 {
        let n = self.order.len();
        let longest = SEGMENT_MAX.min((n - 2) / 3);
        let (one, two) = (random.random_range(1..=longest), random.random_range(1..=longest));
        let first = random.random_range(0..n - one - two);
        let (middle, last) = (first + one, first + one + two);
        let [a, b] = [self.order.at(first), self.order.at(first + 1)];
        let [c, e] = [self.order.at(middle), self.order.at(middle + 1)];
        let [f, g] = [self.order.at(last), self.order.at((last + 1) % n)];
        let d = |i, j| i64::from(self.instance.distance(i, j));
        let gain = d(a, b) + d(c, e) + d(f, g) - d(a, e) - d(f, b) - d(c, g);
        self.order.exchange(first, middle, last);
        self.agenda.extend([a, b, c, e, f, g]);
        gain
    }
}

/// Returns the tour that always continues to the nearest city left.
fn nearest_neighbour(instance: &Instance, start: City, near: &Near) -> Vec<City> {
    let mut open: Vec<City> = (0..instance.len()).filter(|&city| city != start).collect();
    let mut place_of: Vec<usize> = vec![usize::MAX; instance.len()];
    for (place, &city) in open.iter().enumerate() {
        place_of[city] = place;
    }
    let mut tour = Vec::with_capacity(instance.len());
    let mut last = start;
    tour.extend((!place_of.is_empty()).then_some(start));
    while !open.is_empty() {
        let row = instance.row(last);
        let close = near.of(last).iter().map(|&city| place_of[city as usize]);
        // Only if all close cities were visited it takes a look at all cities.
        let nearest = close
            .clone()
            .find(|&place| place != usize::MAX)
            .or_else(|| (0..open.len()).min_by_key(|&place| row[open[place]]));
        let nearest = nearest.expect("a city is open");
        last = open.swap_remove(nearest);
        place_of[last] = usize::MAX;
        if let Some(&moved) = open.get(nearest) {
            place_of[moved] = nearest;
        }
        tour.push(last);
    }
    tour
}

#[cfg(test)]
mod tests;

//! The cheapest one-tree for given multipliers.

use super::{
    edges::Edges,
    graph::{Arcs, is_forced, plain},
};
use crate::instance::City;

/// More than the cost of any edge.
const NEVER: i64 = i64::MAX;
/// The place of a city that is in the tree already.
const IN_TREE: u32 = u32::MAX;

/// The city that is joined by two edges of its own, and is not part of the spanning tree.
pub(super) const SPECIAL: City = 0;

/// A one-tree, whose memory is reused to build the next one.
#[derive(Debug, Default)]
pub(super) struct OneTree {
    /// The edges of the spanning tree as (parent, child), in the order in which they were added, then the two
    /// of the special city.
    pub(super) edges: Vec<(City, City)>,
    /// The costs of the edges, with multipliers and the discount of forced edges.
    pub(super) costs: Vec<i64>,
    pub(super) degree: Vec<i32>,
    /// The minimum length of a tour according to these multipliers, scaled.
    pub(super) bound: i64,
    /// The cities that are not in the tree yet, with the cheapest edge to each.
    open: Vec<Open>,
    reach: Vec<i64>,
    /// The places of cities among those.
    places: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    city: u32,
    from: u32,
}

impl OneTree {
    /// Builds the cheapest one-tree of the given edges that contains all forced ones. Returns `false` if
    /// there is none.
    #[must_use]
    pub(super) fn build(&mut self, arcs: &impl Arcs, multipliers: &[i64]) -> bool {
        let cities = arcs.cities();
        self.edges.clear();
        self.costs.clear();
        self.degree.clear();
        self.degree.resize(cities, 0);
        let total: i64 = multipliers.iter().sum();
        self.bound = -2 * total;
        self.span(arcs, multipliers) && self.join_special(arcs, multipliers)
    }

    /// Runs Prim's algorithm on all cities except the special one.
    fn span(&mut self, arcs: &impl Arcs, multipliers: &[i64]) -> bool {
        let cities = arcs.cities();
        self.reach.clear();
        self.reach.resize(cities.saturating_sub(2), NEVER);
        self.open.clear();
        self.open.extend((2..).take(cities.saturating_sub(2)).map(|city| Open { city, from: 1 }));
        self.places.clear();
        self.places.resize(2, IN_TREE);
        self.places.extend((0..).take(cities.saturating_sub(2)));
        let mut last: City = 1;
        while !self.open.is_empty() {
            let forced = self.relax(arcs, multipliers, last);
            // A forced edge is cheaper than all others.
            let nearest = forced.unwrap_or_else(|| nearest(&self.reach));
            let cost = self.reach.swap_remove(nearest);
            if cost == NEVER {
                return false;
            }
            let Open { city, from } = self.open.swap_remove(nearest);
            last = city as usize;
            self.places[last] = IN_TREE;
            if let Some(moved) = self.open.get(nearest) {
                self.places[moved.city as usize] = u32::try_from(nearest).unwrap_or(IN_TREE);
            }
            self.add(from as usize, last, cost);
        }
        true
    }

    /// Notes the edges from a city to those not in the tree. Returns the place of a city that must be next to
    /// it, if there is one.
    fn relax(&mut self, arcs: &impl Arcs, multipliers: &[i64], city: City) -> Option<usize> {
        let (reach, open, places) = (&mut self.reach, &mut self.open, &self.places);
        let (here, name) = (multipliers[city], u32::try_from(city).unwrap_or(IN_TREE));
        let mut forced = None;
        arcs.each(city, |j, cost| {
            let place = places[j] as usize;
            let with = cost + here + multipliers[j];
            if let Some(reach) = reach.get_mut(place)
                && with < *reach
            {
                *reach = with;
                open[place].from = name;
                if is_forced(cost) {
                    forced = Some(place);
                }
            }
        });
        forced
    }

    /// Adds the two cheapest edges of the special city, which are the forced ones if there are any.
    fn join_special(&mut self, arcs: &impl Arcs, multipliers: &[i64]) -> bool {
        let mut first = (NEVER, SPECIAL);
        let mut second = first;
        arcs.each(SPECIAL, |j, cost| {
            let edge = (cost + multipliers[SPECIAL] + multipliers[j], j);
            if edge < first {
                (first, second) = (edge, first);
            } else if edge < second {
                second = edge;
            }
        });
        if second.0 == NEVER {
            return false;
        }
        for (cost, j) in [first, second] {
            self.add(SPECIAL, j, cost);
        }
        true
    }

    fn add(&mut self, i: City, j: City, cost: i64) {
        self.edges.push((i, j));
        self.costs.push(cost);
        self.degree[i] += 1;
        self.degree[j] += 1;
        self.bound += plain(cost);
    }

    /// Returns whether this is still the cheapest one-tree after more edges were forced or forbidden.
    pub(super) fn satisfies(&self, edges: &Edges) -> bool {
        let forced = self.edges.iter().filter(|&&(i, j)| edges.is_forced(i, j)).count();
        self.edges.iter().all(|&(i, j)| edges.is_allowed(i, j)) && forced == edges.forced_total()
    }

    /// Returns the cities in the order of the tour, if the one-tree is a tour.
    pub(super) fn tour(&self) -> Vec<City> {
        let mut next = vec![[SPECIAL; 2]; self.degree.len()];
        let mut filled = vec![0; self.degree.len()];
        for &(i, j) in &self.edges {
            for (a, b) in [(i, j), (j, i)] {
                next[a][filled[a]] = b;
                filled[a] += 1;
            }
        }
        let (mut tour, mut before, mut city) = (vec![SPECIAL], SPECIAL, next[SPECIAL][0]);
        while city != SPECIAL {
            tour.push(city);
            let on = if next[city][0] == before { next[city][1] } else { next[city][0] };
            (before, city) = (city, on);
        }
        tour
    }
}

/// Returns the place of the least value.
fn nearest(reach: &[i64]) -> usize {
    let (mut nearest, mut least) = (0, NEVER);
    for (place, &reach) in reach.iter().enumerate() {
        if reach < least {
            (nearest, least) = (place, reach);
        }
    }
    nearest
}

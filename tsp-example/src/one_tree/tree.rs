//! The cheapest one-tree for given multipliers.

use super::{SCALE, edges::Edges};
use crate::instance::{City, Instance};

/// The cost of a forced edge: below minus the cost of any path, so that the edge is always taken.
const FORCED: i64 = -(1 << 60);
/// More than the cost of any edge.
const NEVER: i64 = i64::MAX;

/// The city that is joined by two edges of its own, and is not part of the spanning tree.
pub(super) const SPECIAL: City = 0;

/// A one-tree, whose memory is reused to build the next one.
#[derive(Debug, Default)]
pub(super) struct OneTree {
    /// The edges of the spanning tree as (parent, child), in the order in which they were added, then the two
    /// of the special city.
    pub(super) edges: Vec<(City, City)>,
    pub(super) degree: Vec<i64>,
    /// The minimum length of a tour according to these multipliers, scaled.
    pub(super) bound: i64,
    reach: Vec<i64>,
    from: Vec<City>,
    open: Vec<City>,
}

/// Returns the cost of an edge, including the multipliers of its ends.
#[inline]
pub(super) fn weight(instance: &Instance, multipliers: &[i64], i: City, j: City) -> i64 {
    i64::from(instance.distance(i, j)) * SCALE + multipliers[i] + multipliers[j]
}

impl OneTree {
    /// Builds the cheapest one-tree of the allowed edges that contains all forced ones. Returns `false` if
    /// there is none.
    #[must_use]
    pub(super) fn build(&mut self, instance: &Instance, edges: &Edges, multipliers: &[i64]) -> bool {
        let cities = instance.len();
        self.edges.clear();
        self.degree.clear();
        self.degree.resize(cities, 0);
        let total: i64 = multipliers.iter().sum();
        self.bound = -2 * total;
        self.span(instance, edges, multipliers) && self.join_special(instance, edges, multipliers)
    }

    /// Runs Prim's algorithm on all cities except the special one.
    fn span(&mut self, instance: &Instance, edges: &Edges, multipliers: &[i64]) -> bool {
        let cities = instance.len();
        self.reach.clear();
        self.reach.resize(cities, NEVER);
        self.from.clear();
        self.from.resize(cities, SPECIAL);
        self.open.clear();
        self.open.extend((1..cities).rev());
        let Some(mut last) = self.open.pop() else { return false };
        while !self.open.is_empty() {
            for j in edges.neighbours(last) {
                let w =
                    if edges.is_forced(last, j) { FORCED } else { weight(instance, multipliers, last, j) };
                if w < self.reach[j] {
                    (self.reach[j], self.from[j]) = (w, last);
                }
            }
            // Cities in the tree keep their reach; a forced edge back to them is in the tree already.
            let nearest = (0..self.open.len()).min_by_key(|&place| self.reach[self.open[place]]);
            let nearest = nearest.expect("a city is open");
            last = self.open.swap_remove(nearest);
            if self.reach[last] == NEVER {
                return false;
            }
            self.add(instance, multipliers, self.from[last], last);
        }
        true
    }

    /// Adds the two cheapest edges of the special city, forced ones first.
    fn join_special(&mut self, instance: &Instance, edges: &Edges, multipliers: &[i64]) -> bool {
        let cost = |j: City| {
            let w = weight(instance, multipliers, SPECIAL, j);
            if edges.is_forced(SPECIAL, j) { (0, w) } else { (1, w) }
        };
        let (mut first, mut second) = (None, None);
        for j in edges.neighbours(SPECIAL) {
            let candidate = Some((cost(j), j));
            if first.is_none() || candidate < first {
                (first, second) = (candidate, first);
            } else if second.is_none() || candidate < second {
                second = candidate;
            }
        }
        for (_, j) in [first, second].into_iter().flatten() {
            self.add(instance, multipliers, SPECIAL, j);
        }
        second.is_some()
    }

    fn add(&mut self, instance: &Instance, multipliers: &[i64], i: City, j: City) {
        self.edges.push((i, j));
        self.degree[i] += 1;
        self.degree[j] += 1;
        self.bound += weight(instance, multipliers, i, j);
    }

    /// Returns whether every city has two edges.
    pub(super) fn is_tour(&self) -> bool {
        self.degree.iter().all(|&degree| degree == 2)
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

    /// Computes how much more a one-tree costs at least if it contains an edge: the edge would replace the
    /// most expensive edge on the tree's path between its ends. Calls `found` with both cities and that
    /// difference, for allowed edges that are not in the tree.
    pub(super) fn replacements(
        &self,
        instance: &Instance,
        edges: &Edges,
        multipliers: &[i64],
        mut found: impl FnMut(City, City, i64),
    ) {
        let cities = instance.len();
        let tree = &self.edges[..self.edges.len() - 2];
        let special: Vec<City> = self.edges[self.edges.len() - 2..].iter().map(|&(_, j)| j).collect();
        // The most expensive edge of the special city that could be replaced.
        let given_up = special.iter().filter(|&&j| !edges.is_forced(SPECIAL, j));
        let given_up = given_up.map(|&j| weight(instance, multipliers, SPECIAL, j)).max();
        if let Some(given_up) = given_up {
            for j in edges.neighbours(SPECIAL).filter(|j| !special.contains(j)) {
                found(SPECIAL, j, weight(instance, multipliers, SPECIAL, j) - given_up);
            }
        }
        // `dearest[b]` in the row of one city. Each child follows its parent, so rows grow in the order of
        // the tree.
        let mut dearest = vec![FORCED; cities * cities];
        let mut placed = vec![tree.first().map_or(SPECIAL, |&(root, _)| root)];
        for &(parent, child) in tree {
            let w = if edges.is_forced(parent, child) {
                FORCED
            } else {
                weight(instance, multipliers, parent, child)
            };
            for &other in &placed {
                let d = dearest[parent * cities + other].max(w);
                dearest[child * cities + other] = d;
                dearest[other * cities + child] = d;
            }
            placed.push(child);
        }
        for i in 1..cities {
            for j in edges.neighbours(i).filter(|&j| j > i) {
                let w = weight(instance, multipliers, i, j);
                let replaced = dearest[i * cities + j];
                // An edge of the tree replaces itself at no cost; forced edges are never replaced.
                if replaced > FORCED && w > replaced {
                    found(i, j, w - replaced);
                }
            }
        }
    }
}

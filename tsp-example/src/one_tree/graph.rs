//! The edges that a one-tree may be built of, and their lengths.

use super::{SCALE, edges::Edges};
use crate::{
    heuristic::Near,
    instance::{City, Instance},
};

/// The amount subtracted from the length of a forced edge: more than any path costs with any multipliers, so
/// that forced edges are always taken.
const FORCED: i64 = 1 << 50;

/// Returns whether the cost of an edge is that of a forced one.
#[inline]
pub(super) fn is_forced(cost: i64) -> bool {
    cost < -(FORCED / 2)
}

/// Returns the cost of an edge, forced or not, as it counts for the bound.
#[inline]
pub(super) fn plain(cost: i64) -> i64 {
    if is_forced(cost) { cost + FORCED } else { cost }
}

/// Edges by city.
pub(super) trait Arcs {
    fn cities(&self) -> usize;

    /// Calls `visit` for each edge of a city, with the city at its other end and its cost without
    /// multipliers.
    fn each(&self, city: City, visit: impl FnMut(City, i64));
}

/// All allowed edges, looked up in the matrix of distances.
pub(super) struct Matrix<'a> {
    pub(super) instance: &'a Instance,
    pub(super) edges: &'a Edges,
}

impl Arcs for Matrix<'_> {
    fn cities(&self) -> usize {
        self.instance.len()
    }

    #[inline]
    fn each(&self, city: City, mut visit: impl FnMut(City, i64)) {
        let row = self.instance.row(city);
        let forced = self.edges.forced_at(city);
        for j in self.edges.neighbours(city) {
            let forced = if forced.contains(&Some(j)) { FORCED } else { 0 };
            visit(j, i64::from(row[j]) * SCALE - forced);
        }
    }
}

/// Lists of edges, which are quick if they are few.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// The offset of the edges of each city, and the end of the last ones.
    starts: Vec<usize>,
    arcs: Vec<(u32, i64)>,
}

impl Graph {
    /// Fills the lists with all edges that are allowed.
    pub(super) fn fill(&mut self, instance: &Instance, edges: &Edges) {
        let all = Matrix { instance, edges };
        self.starts.clear();
        self.arcs.clear();
        for i in 0..instance.len() {
            self.starts.push(self.arcs.len());
            all.each(i, |j, cost| self.arcs.push((name(j), cost)));
        }
        self.starts.push(self.arcs.len());
    }

    /// Fills the lists with the allowed edges between near neighbours, and the forced ones. A one-tree of this
    /// graph may cost more than the minimum.
    pub(super) fn fill_near(&mut self, instance: &Instance, edges: &Edges, near: &Near) {
        let cities = instance.len();
        let mut pairs: Vec<(City, City)> = Vec::new();
        for i in 0..cities {
            let close = near.of(i).iter().map(|&j| j as usize).filter(|&j| edges.is_allowed(i, j));
            let forced = edges.forced_at(i).into_iter().flatten();
            pairs.extend(close.chain(forced).flat_map(|j| [(i, j), (j, i)]));
        }
        pairs.sort_unstable();
        pairs.dedup();
        self.starts.clear();
        self.arcs.clear();
        for (i, j) in pairs {
            self.starts.resize(i + 1, self.arcs.len());
            let forced = if edges.is_forced(i, j) { FORCED } else { 0 };
            self.arcs.push((name(j), i64::from(instance.distance(i, j)) * SCALE - forced));
        }
        self.starts.resize(cities + 1, self.arcs.len());
    }
}

fn name(city: City) -> u32 {
    u32::try_from(city).unwrap_or(u32::MAX)
}

impl Arcs for Graph {
    fn cities(&self) -> usize {
        self.starts.len() - 1
    }

    #[inline]
    fn each(&self, city: City, mut visit: impl FnMut(City, i64)) {
        for &(j, cost) in &self.arcs[self.starts[city]..self.starts[city + 1]] {
            visit(j as usize, cost);
        }
    }
}

//! The cost of decisions about single edges: how much a one-tree grows at least if it must contain an
//! edge that is not in it, or must do without one that is (T. Volgenant and R. Jonker, *The symmetric
//! traveling salesman problem and edge exchanges in minimal 1-trees*, 1983).

use super::{
    edges::{Edges, Impossible},
    graph::{Arcs, is_forced},
    tree::{OneTree, SPECIAL},
};
use crate::instance::City;

/// The costs of the exchanges in a one-tree. The memory is reused for the next one.
#[derive(Debug, Default)]
pub(super) struct Marginals {
    /// For each edge of the one-tree, in its order, how much more the cheapest one-tree without it costs.
    /// Edges that no sufficiently short tour contains count as if they were forbidden.
    pub(super) without: Vec<i64>,
    /// The edges that no tour short enough contains.
    hopeless: Vec<(City, City)>,
    parent: Vec<City>,
    depth: Vec<u32>,
    /// The cost of the edge to the parent.
    up: Vec<i64>,
    /// The cost of the cheapest edge that could replace the one to the parent.
    spare: Vec<i64>,
}

/// More than any exchange costs.
const NEVER: i64 = i64::MAX / 2;

impl Marginals {
    /// Computes all exchanges in a one-tree. An exchange that adds more than `room` to the cost is hopeless.
    pub(super) fn compute(&mut self, arcs: &impl Arcs, tree: &OneTree, multipliers: &[i64], room: i64) {
        self.climb(arcs.cities(), tree);
        self.hopeless.clear();
        let dearest_of_all = self.up.iter().copied().max().unwrap_or(0);
        for i in 1..arcs.cities() {
            arcs.each(i, |j, cost| {
                let is_in_tree = self.parent[i] == j || self.parent[j] == i;
                if j < i || j == SPECIAL || is_in_tree {
                    return;
                }
                let cost = cost + multipliers[i] + multipliers[j];
                if cost.saturating_sub(dearest_of_all) > room
                    || cost.saturating_sub(self.dearest_between(i, j)) > room
                {
                    self.hopeless.push((i, j));
                } else {
                    self.spare_between(i, j, cost);
                }
            });
        }
        self.without.clear();
        let spanning = tree.edges.len() - 2;
        for &(_, child) in &tree.edges[..spanning] {
            self.without.push(self.spare[child].saturating_sub(self.up[child]).min(NEVER));
        }
        self.exchange_special(arcs, tree, multipliers, room);
    }

    /// Notes the way up from each city to the root of the spanning tree.
    fn climb(&mut self, cities: usize, tree: &OneTree) {
        self.parent.clear();
        self.parent.resize(cities, SPECIAL);
        self.depth.clear();
        self.depth.resize(cities, 0);
        self.up.clear();
        self.up.resize(cities, -NEVER);
        self.spare.clear();
        self.spare.resize(cities, NEVER);
        let spanning = tree.edges.len() - 2;
        for (&(parent, child), &cost) in tree.edges[..spanning].iter().zip(&tree.costs) {
            self.parent[child] = parent;
            self.depth[child] = self.depth[parent] + 1;
            self.up[child] = cost;
        }
    }

    /// Returns the cost of the most expensive edge on the tree's path between two cities.
    fn dearest_between(&self, mut i: City, mut j: City) -> i64 {
        let mut dearest = -NEVER;
        while i != j {
            if self.depth[i] < self.depth[j] {
                (i, j) = (j, i);
            }
            dearest = dearest.max(self.up[i]);
            i = self.parent[i];
        }
        dearest
    }

    /// Notes that an edge of some cost could replace every edge on the tree's path between two cities.
    fn spare_between(&mut self, mut i: City, mut j: City, cost: i64) {
        while i != j {
            if self.depth[i] < self.depth[j] {
                (i, j) = (j, i);
            }
            self.spare[i] = self.spare[i].min(cost);
            i = self.parent[i];
        }
    }

    /// Computes the exchanges among the edges of the special city.
    fn exchange_special(&mut self, arcs: &impl Arcs, tree: &OneTree, multipliers: &[i64], room: i64) {
        let taken = [tree.edges.len() - 2, tree.edges.len() - 1];
        let ends = taken.map(|place| tree.edges[place].1);
        let costs = taken.map(|place| tree.costs[place]);
        let given_up = costs.iter().copied().filter(|&cost| !is_forced(cost)).max();
        let mut third = NEVER;
        arcs.each(SPECIAL, |j, cost| {
            if !ends.contains(&j) {
                let cost = cost + multipliers[SPECIAL] + multipliers[j];
                if given_up.is_none_or(|given_up| cost - given_up > room) {
                    self.hopeless.push((SPECIAL, j));
                } else {
                    third = third.min(cost);
                }
            }
        });
        self.without.extend(costs.map(|cost| third.saturating_sub(cost).min(NEVER)));
    }

    /// Forbids the hopeless edges, and forces those without which no tour is short enough. Returns whether
    /// anything was decided.
    pub(super) fn apply(&self, edges: &mut Edges, tree: &OneTree, room: i64) -> Result<bool, Impossible> {
        let mut decided = false;
        for &(i, j) in &self.hopeless {
            decided = true;
            edges.forbid(i, j)?;
        }
        for (&(i, j), &more) in tree.edges.iter().zip(&self.without) {
            if more > room && !edges.is_forced(i, j) {
                decided = true;
                edges.force(i, j)?;
            }
        }
        Ok(decided)
    }
}

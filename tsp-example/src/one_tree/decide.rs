//! Branching decisions: about the edges of a city that has too many in the one-tree.

use super::{
    ascent::{Ascent, Pace, Plan, ascend},
    edges::Edges,
    graph::Graph,
    marginal::Marginals,
    tree::OneTree,
};
use crate::instance::{City, Instance};

/// A city, and one or two of its free edges, those first that are missed most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) city: City,
    pub(super) free: Vec<City>,
}

/// The share of the distance to the sufficient bound by which the bound must rise for a state to count as a
/// third.
const UNIT: f64 = 0.3;
/// The number of steps of a trial.
const TRIAL: Plan = Plan { steps: 12, pace: Pace::Gap { first: 0.5, last: 0.2 } };

impl Decision {
    /// Returns the decisions of each child: both edges are forced; the first is forced and the second
    /// forbidden; or the first is forbidden. If an edge of the city is forced already, there is only one to
    /// decide about. Children without a tour are left out.
    pub(super) fn branches(&self, edges: &Edges) -> Vec<Edges> {
        let ways: &[&[bool]] = match self.free.len() {
            0 => &[],
            1 => &[&[true], &[false]],
            _ => &[&[true, true], &[true, false], &[false]],
        };
        let branch = |way: &&[bool]| {
            let mut edges = edges.clone();
            for (&forced, &end) in way.iter().zip(&self.free) {
                let decided = if forced { edges.force(self.city, end) } else { edges.forbid(self.city, end) };
                decided.ok()?;
            }
            Some(edges)
        };
        ways.iter().filter_map(branch).collect()
    }
}

/// Returns the decisions that promise the fewest states below, the best first, each with that number in some
/// unit. `room` is how much the bound may rise until a state is pruned. Returns nothing if the one-tree is a
/// tour.
pub(super) fn decisions(
    edges: &Edges,
    tree: &OneTree,
    marginals: &Marginals,
    room: i64,
) -> Vec<(f64, Decision)> {
    let cities = tree.degree.len();
    let mut free: Vec<Vec<(i64, City)>> = vec![Vec::new(); cities];
    for (&(i, j), &without) in tree.edges.iter().zip(&marginals.without) {
        if !edges.is_forced(i, j) {
            for (city, end) in [(i, j), (j, i)] {
                if tree.degree[city] > 2 {
                    free[city].push((without, end));
                }
            }
        }
    }
    let crowded = (0..cities).filter(|&city| tree.degree[city] > 2);
    let mut decisions: Vec<(f64, Decision)> = crowded
        .map(|city| {
            let ends = &mut free[city];
            ends.sort_unstable_by(|a, b| b.cmp(a));
            let missed = |place: usize| ends.get(place).map_or(0.0, |&(without, _)| without as f64);
            let after = |place: usize| ends.iter().skip(place).map(|&(without, _)| without as f64).sum();
            let (places, rises) = if edges.forced_count(city) == 0 {
                (2, vec![missed(0), missed(1), after(2)])
            } else {
                (1, vec![missed(0), after(1)])
            };
            let states = rises.into_iter().map(|rise| states(rise, room)).sum();
            (states, Decision { city, free: ends.iter().take(places).map(|&(_, end)| end).collect() })
        })
        .collect();
    decisions.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.city.cmp(&b.1.city)));
    decisions
}

/// Returns the expected number of states below one whose bound has risen, relative to one whose bound has not.
fn states(rise: f64, room: i64) -> f64 {
    (-rise / (UNIT * room.max(1) as f64)).exp()
}

/// Memory for trials.
#[derive(Debug, Default)]
pub(super) struct Trials {
    graph: Graph,
    tree: OneTree,
    other: OneTree,
}

impl Trials {
    /// Chooses among decisions by trying them: a few steps of the ascent in each child (strong branching; D.
    /// Applegate, R. Bixby, V. Chvátal and W. Cook, *Finding cuts in the TSP*, 1995). `bound` is that of the
    /// state, and `enough` where a child is pruned.
    pub(super) fn choose(
        &mut self,
        instance: &Instance,
        edges: &Edges,
        multipliers: &[i64],
        decisions: Vec<(f64, Decision)>,
        (bound, enough): (i64, i64),
    ) -> Option<Decision> {
        let mut best: Option<(f64, Decision)> = None;
        for (_, decision) in decisions {
            let mut sum = 0.0;
            for edges in decision.branches(edges) {
                let risen = self.risen(instance, &edges, multipliers, enough);
                if let Some(risen) = risen.filter(|&risen| risen <= enough) {
                    sum += states((risen - bound) as f64, enough - bound);
                }
            }
            if best.as_ref().is_none_or(|&(least, _)| sum < least) {
                best = Some((sum, decision));
            }
        }
        best.map(|(_, decision)| decision)
    }

    /// Returns a bound on the tours that these edges allow; `None` if there is no such tour.
    fn risen(&mut self, instance: &Instance, edges: &Edges, multipliers: &[i64], enough: i64) -> Option<i64> {
        self.graph.fill(instance, edges);
        let mut multipliers = multipliers.to_vec();
        let trees = [&mut self.tree, &mut self.other];
        let ascent = ascend(&self.graph, &mut multipliers, trees, enough, &TRIAL, (0, u32::MAX));
        (ascent != Ascent::Impossible).then_some(self.tree.bound)
    }
}

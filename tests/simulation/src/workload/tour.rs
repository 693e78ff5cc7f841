//! A travelling salesman problem small enough to be solved by exhaustive search.

use serde::{Deserialize, Serialize};

use super::shapes::{State, mix};

/// Towns and their distances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tour {
    distances: Vec<Vec<u64>>,
}

impl Tour {
    pub(crate) fn random(seed: u64, towns: usize) -> Self {
        let distance = |a: usize, b: usize| {
            if a == b { 0 } else { 1 + mix(seed, (a.min(b) * 100 + a.max(b)) as u64) % 99 }
        };
        Self { distances: (0..towns).map(|a| (0..towns).map(|b| distance(a, b)).collect()).collect() }
    }

    /// Returns the one of several random instances whose shortest tour is found last.
    pub(crate) fn found_late(seed: u64, towns: usize) -> Self {
        let tours = (0..16).map(|k| Self::random(mix(seed, k), towns));
        tours.min_by_key(Self::states_after_the_last_found).unwrap_or_else(|| Self::random(seed, towns))
    }

    fn states_after_the_last_found(&self) -> usize {
        let (mut open, mut shortest, mut since) = (vec![super::Shape::Tour(self.clone()).root()], None, 0);
        while let Some(state) = open.pop() {
            since += 1;
            let (found, children) = self.branch(&state, shortest);
            if found.is_some_and(|found| shortest.is_none_or(|shortest| found < shortest)) {
                (shortest, since) = (found, 0);
            }
            open.extend(children);
        }
        since
    }

    pub(super) fn towns(&self) -> usize {
        self.distances.len()
    }

    fn length(&self, path: &[u8]) -> u64 {
        path.windows(2).map(|pair| self.distances[usize::from(pair[0])][usize::from(pair[1])]).sum()
    }

    /// Expands a state: returns the length if it is a tour, and the longer paths that may still lead to a
    /// shorter one.
    pub(super) fn branch(&self, state: &State, shortest: Option<u64>) -> (Option<u64>, Vec<State>) {
        let so_far = self.length(&state.path);
        if shortest.is_some_and(|shortest| so_far >= shortest) {
            return (None, Vec::new());
        }
        if state.path.len() == self.towns() {
            let home = self.distances[usize::from(*state.path.last().unwrap_or(&0))][0];
            return (Some(so_far + home), Vec::new());
        }
        let unvisited = (0_u8..).take(self.towns()).filter(|town| !state.path.contains(town));
        let longer = |town: u8| {
            let path = state.path.iter().copied().chain([town]).collect();
            State { path, ..state.child(u64::from(town)) }
        };
        (None, unvisited.map(longer).collect())
    }

    /// Returns the length of the shortest tour, by dynamic programming over sets of towns (Held and Karp,
    /// 1962).
    pub(super) fn shortest(&self) -> u64 {
        let towns = self.towns();
        let mut best = vec![vec![u64::MAX; towns]; 1 << towns];
        best[1][0] = 0;
        for set in 1..1_usize << towns {
            for last in (0..towns).filter(|last| set >> last & 1 == 1) {
                let so_far = best[set][last];
                if so_far == u64::MAX {
                    continue;
                }
                for next in (0..towns).filter(|next| set >> next & 1 == 0) {
                    let longer = so_far + self.distances[last][next];
                    let known = &mut best[set | 1 << next][next];
                    *known = (*known).min(longer);
                }
            }
        }
        let all = (1 << towns) - 1;
        (1..towns).map(|last| best[all][last].saturating_add(self.distances[last][0])).min().unwrap_or(0)
    }
}

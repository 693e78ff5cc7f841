//! The edges of a tour.

use super::edges::Edges;
use crate::instance::City;

/// The two neighbours of each city on a tour.
#[derive(Debug, Clone)]
pub(super) struct Links(Vec<[City; 2]>);

impl Links {
    pub(super) fn of(tour: &[City]) -> Self {
        let n = tour.len();
        let mut links = vec![[0; 2]; n];
        for (place, &city) in tour.iter().enumerate() {
            links[city] = [tour[(place + n - 1) % n], tour[(place + 1) % n]];
        }
        Self(links)
    }

    pub(super) fn has(&self, i: City, j: City) -> bool {
        self.0[i].contains(&j)
    }

    /// Returns each edge once.
    pub(super) fn edges(&self) -> impl Iterator<Item = (City, City)> + '_ {
        let both = self.0.iter().enumerate().flat_map(|(i, ends)| ends.map(|j| (i, j)));
        both.filter(|(i, j)| i < j)
    }

    /// Returns whether the tour has all forced edges and no forbidden one.
    pub(super) fn satisfy(&self, edges: &Edges) -> bool {
        let forced = self.edges().filter(|&(i, j)| edges.is_forced(i, j)).count();
        self.edges().all(|(i, j)| edges.is_allowed(i, j)) && forced == edges.forced_total()
    }
}

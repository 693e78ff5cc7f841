//! The edges that a tour may use and those it must use, with the consequences.

use serde::{Deserialize, Serialize};

use crate::instance::City;

/// A contradiction: no tour satisfies the decisions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Impossible;

/// The state of every edge: forced, forbidden or free.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Edges {
    cities: usize,
    /// The number of words in a row of bits.
    words: usize,
    /// Whether an edge is forced or free, as a row of bits for each city.
    allowed: Vec<u64>,
    /// The number of bits in each row.
    allowed_counts: Vec<u32>,
    /// The cities that must be next to each city; `NONE` where there is none.
    forced: Vec<[u32; 2]>,
    /// The other end of the forced path that a city is an end of; the city itself if it is on none.
    far_end: Vec<u32>,
    forced_total: usize,
}

const NONE: u32 = u32::MAX;

fn name(city: City) -> u32 {
    u32::try_from(city).unwrap_or(NONE)
}

impl Edges {
    /// Creates the state in which all edges are free.
    pub(super) fn all(cities: usize) -> Self {
        let words = cities.div_ceil(64);
        let mut edges = Self {
            cities,
            words,
            allowed: vec![0; cities * words],
            allowed_counts: vec![name(cities.saturating_sub(1)); cities],
            forced: vec![[NONE; 2]; cities],
            far_end: (0..).take(cities).collect(),
            forced_total: 0,
        };
        for i in 0..cities {
            let row = &mut edges.allowed[i * words..(i + 1) * words];
            row.fill(u64::MAX);
            row[i / 64] &= !(1 << (i % 64));
            if !cities.is_multiple_of(64) {
                row[words - 1] &= (1 << (cities % 64)) - 1;
            }
        }
        edges
    }

    pub(super) fn is_allowed(&self, i: City, j: City) -> bool {
        self.allowed[i * self.words + j / 64] & (1 << (j % 64)) != 0
    }

    pub(super) fn is_forced(&self, i: City, j: City) -> bool {
        self.forced[i].contains(&name(j))
    }

    /// Returns the cities that may be next to a city.
    pub(super) fn neighbours(&self, i: City) -> impl Iterator<Item = City> + '_ {
        bits(&self.allowed[i * self.words..(i + 1) * self.words])
    }

    /// Returns the cities that must be next to a city.
    pub(super) fn forced_at(&self, i: City) -> [Option<City>; 2] {
        self.forced[i].map(|j| (j != NONE).then_some(j as usize))
    }

    pub(super) fn forced_count(&self, i: City) -> u32 {
        self.forced[i].iter().map(|&j| u32::from(j != NONE)).sum()
    }

    pub(super) fn forced_total(&self) -> usize {
        self.forced_total
    }

    /// Returns how many ends of edges are allowed: twice the number of edges.
    pub(super) fn allowed_ends(&self) -> usize {
        self.allowed_counts.iter().map(|&count| count as usize).sum()
    }

    /// Forbids an edge, and everything that no tour can then use.
    pub(super) fn forbid(&mut self, i: City, j: City) -> Result<(), Impossible> {
        if !self.is_allowed(i, j) {
            return Ok(());
        }
        if self.is_forced(i, j) {
            return Err(Impossible);
        }
        self.allowed[i * self.words + j / 64] &= !(1 << (j % 64));
        self.allowed[j * self.words + i / 64] &= !(1 << (i % 64));
        self.allowed_counts[i] -= 1;
        self.allowed_counts[j] -= 1;
        self.settle(i)?;
        self.settle(j)
    }

    /// Forces an edge, and everything that every tour must then use or avoid.
    pub(super) fn force(&mut self, i: City, j: City) -> Result<(), Impossible> {
        if self.is_forced(i, j) {
            return Ok(());
        }
        if !self.is_allowed(i, j) {
            return Err(Impossible);
        }
        let (free_i, free_j) = (self.free_place(i)?, self.free_place(j)?);
        let closes = self.far_end[i] as usize == j && self.forced_total > 0 && self.forced_count(i) > 0;
        if closes && self.forced_total + 1 < self.cities {
            return Err(Impossible);
        }
        (self.forced[i][free_i], self.forced[j][free_j]) = (name(j), name(i));
        self.forced_total += 1;
        if !closes {
            let (a, b) = (self.far_end[i], self.far_end[j]);
            (self.far_end[a as usize], self.far_end[b as usize]) = (b, a);
            // The edge between the ends would close the tour too early.
            let (a, b) = (a as usize, b as usize);
            if self.forced_total + 1 < self.cities && !self.is_forced(a, b) {
                self.forbid(a, b)?;
            }
        }
        self.settle(i)?;
        self.settle(j)
    }

    /// Returns the place where another forced edge of a city fits.
    fn free_place(&self, i: City) -> Result<usize, Impossible> {
        self.forced[i].iter().position(|&j| j == NONE).ok_or(Impossible)
    }

    /// Draws the conclusions for one city: if two edges are forced the others are forbidden; if only two are
    /// allowed both are forced.
    fn settle(&mut self, i: City) -> Result<(), Impossible> {
        let (allowed, forced) = (self.allowed_counts[i], self.forced_count(i));
        if allowed < 2 {
            return Err(Impossible);
        }
        if forced == 2 && allowed > 2 {
            let others: Vec<City> = self.neighbours(i).filter(|&j| !self.is_forced(i, j)).collect();
            others.into_iter().try_for_each(|j| self.forbid(i, j))?;
        } else if allowed == 2 && forced < 2 {
            let both: Vec<City> = self.neighbours(i).collect();
            both.into_iter().try_for_each(|j| self.force(i, j))?;
        }
        Ok(())
    }
}

fn bits(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(place, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(place * 64 + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_forced_edge_of_a_city_forbids_its_others() {
        let mut edges = Edges::all(6);
        edges.force(0, 1).unwrap();
        edges.force(0, 2).unwrap();
        assert_eq!(edges.neighbours(0).collect::<Vec<_>>(), [1, 2]);
        assert!(!edges.is_allowed(1, 2), "it would close a tour of three cities");
    }

    #[test]
    fn last_two_edges_of_a_city_are_forced() {
        let mut edges = Edges::all(6);
        for j in 1..4 {
            edges.forbid(0, j).unwrap();
        }
        assert_eq!(edges.forced_at(0), [Some(4), Some(5)]);
    }

    #[test]
    fn city_without_second_edge_is_impossible() {
        let mut edges = Edges::all(4);
        edges.force(0, 1).unwrap();
        assert_eq!(edges.forbid(0, 1), Err(Impossible));
    }

    #[test]
    fn conclusions_may_complete_a_tour() {
        let mut edges = Edges::all(5);
        edges.force(0, 1).unwrap();
        edges.force(1, 2).unwrap();
        edges.force(2, 3).unwrap();
        assert!((0..5).all(|city| edges.forced_count(city) == 2), "0-1-2-3-4-0 is all that is left");
    }
}

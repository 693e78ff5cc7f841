//! The paper's search tree: a state is a path from the first city, its children extend it by one unvisited city, the nearest
//! first (paper, 4.1 and 5).
//!
//! The bound is the paper's too: the length of the path and that of a minimum spanning tree of the unvisited cities, by Prim's
//! algorithm. It is weak, and the search a stress for the runtime rather than a way to solve large instances.

use std::fmt;

use bnb_framework::{Children, Problem};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::instance::{City, Instance};

/// The travelling salesman as a tree of paths, for at most `N` cities (and no more than 256).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathProblem<const N: usize> {
    instance: Instance,
    /// For each city all others, the nearest first, row by row.
    near: Vec<u8>,
}

/// A path from city 0. Nothing of it is on the heap.
#[derive(Clone)]
pub struct PathState<const N: usize> {
    length: u64,
    cities: u16,
    path: [u8; N],
    visited: [u64; 4],
}

/// The cities that a path was not yet extended by: those from `next` to `end` in the list of its last city's neighbours
/// that it has not visited.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Extensions {
    next: u16,
    end: u16,
}

impl<const N: usize> PathProblem<N> {
    /// The problem on an instance of at most `N` cities.
    ///
    /// # Panics
    /// If there are more.
    pub fn new(instance: Instance) -> Self {
        let cities = instance.len();
        assert!(cities <= N && N <= 256, "{cities} cities, but room for {N}");
        let mut near = Vec::with_capacity(cities * cities);
        for city in 0..cities {
            let mut others: Vec<City> = (0..cities).filter(|&other| other != city).collect();
            others.sort_by_key(|&other| instance.distance(city, other));
            near.extend(others.into_iter().map(|other| u8::try_from(other).expect("at most 256 cities")));
        }
        Self { instance, near }
    }

    fn near(&self, state: &PathState<N>, place: u16) -> u8 {
        self.near[usize::from(state.last()) * (self.instance.len() - 1) + usize::from(place)]
    }

    /// The places in the list of neighbours that are still open.
    fn open<'a>(&'a self, state: &'a PathState<N>, e: &Extensions) -> impl Iterator<Item = u16> + 'a {
        (e.next..e.end).filter(|&place| !state.has_visited(self.near(state, place)))
    }

    /// The length of a minimum spanning tree of the cities that a path has not visited.
    fn spanning_tree(&self, state: &PathState<N>) -> u64 {
        let mut open = [0_u8; N];
        let mut reach = [u32::MAX; N];
        let mut left = 0;
        for city in 0..self.instance.len() {
            #[allow(clippy::cast_possible_truncation, reason = "at most 256 cities")]
            let name = city as u8;
            if !state.has_visited(name) {
                open[left] = name;
                left += 1;
            }
        }
        let mut length = 0;
        let Some(mut last) = left.checked_sub(1).map(|end| open[end]) else { return 0 };
        left -= 1;
        while left > 0 {
            let row = self.instance.row(usize::from(last));
            let (mut nearest, mut best) = (0, u32::MAX);
            for place in 0..left {
                reach[place] = reach[place].min(row[usize::from(open[place])]);
                if reach[place] < best {
                    (nearest, best) = (place, reach[place]);
                }
            }
            length += u64::from(best);
            last = open[nearest];
            left -= 1;
            (open[nearest], reach[nearest]) = (open[left], reach[left]);
        }
        length
    }
}

impl<const N: usize> PathState<N> {
    fn last(&self) -> u8 {
        self.path[usize::from(self.cities) - 1]
    }

    fn has_visited(&self, city: u8) -> bool {
        self.visited[usize::from(city >> 6)] & (1 << (city & 63)) != 0
    }

    fn push(&mut self, city: u8) {
        self.path[usize::from(self.cities)] = city;
        self.cities += 1;
        self.visited[usize::from(city >> 6)] |= 1 << (city & 63);
    }

    fn cities(&self) -> &[u8] {
        &self.path[..usize::from(self.cities)]
    }
}

impl<const N: usize> Problem for PathProblem<N> {
    type State = PathState<N>;
    type Children = Extensions;
    type Cost = u64;
    type Solution = Vec<City>;

    fn root(&self) -> PathState<N> {
        let mut state = PathState { length: 0, cities: 0, path: [0; N], visited: [0; 4] };
        state.push(0);
        state
    }

    fn branch(&self, _: &PathState<N>) -> Extensions {
        Extensions { next: 0, end: u16::try_from(self.instance.len() - 1).expect("at most 256 cities") }
    }

    fn leaf(&self, state: &PathState<N>) -> Option<u64> {
        let complete = usize::from(state.cities) == self.instance.len();
        complete.then(|| state.length + u64::from(self.instance.distance(usize::from(state.last()), 0)))
    }

    fn bound(&self, state: &mut PathState<N>, _: Option<u64>) -> Option<u64> {
        Some(state.length + self.spanning_tree(state))
    }

    fn solution(&self, leaf: &PathState<N>) -> Vec<City> {
        leaf.cities().iter().map(|&city| usize::from(city)).collect()
    }
}

impl<const N: usize> Children<PathProblem<N>> for Extensions {
    #[allow(
        clippy::inline_always,
        reason = "the innermost step of the search: a call of its own costs a tenth of a state"
    )]
    #[inline(always)]
    fn next(&mut self, problem: &PathProblem<N>, parent: &PathState<N>) -> Option<PathState<N>> {
        while self.next < self.end {
            let city = problem.near(parent, self.next);
            self.next += 1;
            if !parent.has_visited(city) {
                let step = problem.instance.distance(usize::from(parent.last()), usize::from(city));
                let mut child = parent.clone();
                child.length += u64::from(step);
                child.push(city);
                return Some(child);
            }
        }
        None
    }

    fn split(&mut self, problem: &PathProblem<N>, parent: &PathState<N>) -> Option<Self> {
        let open = problem.open(parent, self).count();
        let middle = problem.open(parent, self).nth(open / 2)?;
        let away = Self { next: middle, end: self.end };
        self.end = middle;
        Some(away)
    }

    fn is_single(&self, problem: &PathProblem<N>, parent: &PathState<N>) -> bool {
        problem.open(parent, self).take(2).count() == 1
    }
}

impl<const N: usize> fmt::Debug for PathState<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathState")
            .field("length", &self.length)
            .field("cities", &self.cities())
            .finish_non_exhaustive()
    }
}

/// As its cities and its length: the rest follows.
impl<const N: usize> Serialize for PathState<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.length, self.cities()).serialize(serializer)
    }
}

impl<'de, const N: usize> Deserialize<'de> for PathState<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (length, cities) = <(u64, Vec<u8>)>::deserialize(deserializer)?;
        if cities.is_empty() || cities.len() > N {
            return Err(D::Error::custom(format!("a path of {} cities where 1 to {N} fit", cities.len())));
        }
        let mut state = Self { length, cities: 0, path: [0; N], visited: [0; 4] };
        for city in cities {
            state.push(city);
        }
        Ok(state)
    }
}

/// The number of states that are visited without pruning: every path from the first city.
pub fn states_without_pruning(cities: u64) -> u64 {
    let mut paths = 1;
    let mut states = 1;
    for left in (1..cities).rev() {
        paths *= left;
        states += paths;
    }
    states
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bnb_framework::sequential;

    use super::*;

    fn instance(cities: usize) -> Instance {
        let place = |city: usize| ((city * 37) % 101, (city * 53) % 97);
        let distance = |i, j| {
            let ((x, y), (u, v)) = (place(i), place(j));
            Ok::<_, Infallible>(u32::try_from(x.abs_diff(u) + y.abs_diff(v)).unwrap())
        };
        let Ok(instance) = Instance::new("test", cities, distance);
        instance
    }

    #[test]
    fn every_path_is_visited_once_without_pruning() {
        assert_eq!(states_without_pruning(12), 108_505_112);
        for cities in 1..=9 {
            let found = sequential::solve(&PathProblem::<16>::new(instance(cities)), false, None);
            assert_eq!(found.states, states_without_pruning(cities as u64), "{cities} cities");
        }
    }

    #[test]
    fn pruning_does_not_change_the_optimum_and_room_does_not_change_the_search() {
        for cities in 1..=9 {
            let whole = sequential::solve(&PathProblem::<16>::new(instance(cities)), false, None);
            let pruned = sequential::solve(&PathProblem::<16>::new(instance(cities)), true, None);
            let roomy = sequential::solve(&PathProblem::<256>::new(instance(cities)), true, None);
            let best = whole.best.unwrap();
            assert_eq!(best.cost, instance(cities).tour_length(&best.solution));
            assert_eq!(pruned.best.unwrap().cost, best.cost);
            assert_eq!((roomy.states, roomy.best.unwrap().cost), (pruned.states, best.cost));
            assert!(pruned.states <= whole.states);
        }
    }

    #[test]
    fn a_state_survives_its_way_over_the_wire() {
        let problem = PathProblem::<16>::new(instance(6));
        let root = problem.root();
        let child = problem.branch(&root).next(&problem, &root).unwrap();
        let text = serde_json::to_string(&child).unwrap();
        let back: PathState<16> = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{back:?}"), format!("{child:?}"));
        assert_eq!(back.visited, child.visited);
        assert!(serde_json::from_str::<PathState<16>>("[3,[]]").is_err());
    }
}

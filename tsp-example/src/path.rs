//! The paper's search tree: a state is a path from the first city, and its children extend it by one
//! unvisited city, the nearest first (paper, 4.1 and 5).
//!
//! The bound is the paper's too: the length of the path plus that of a minimum spanning tree of the unvisited
//! cities, by Prim's algorithm. It is weak, so the search is a stress test for the runtime rather than a way
//! to solve large instances.

use std::{fmt, sync::OnceLock};

use bnb_framework::{Children, Hooks, InPlace, Moves, Problem, Tree};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    heuristic::Heuristic,
    instance::{City, Instance, read_numbered},
    set::Set,
};

/// The travelling salesman as a tree of paths, for at most `N` cities, sets of which take `W` words of 64
/// bits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Instance", into = "Instance")]
pub struct PathProblem<const N: usize, const W: usize> {
    instance: Instance,
    around: Box<[Around<N>; N]>,
    heuristic: OnceLock<Heuristic>,
}

/// The data of a city that the search looks up. The arrays are of fixed size, and indexed by remainders, so that no
/// bounds are checked.
#[derive(Debug, Clone)]
struct Around<const N: usize> {
    /// All other cities, the nearest first.
    near: [Step; N],
    /// The positions of all other cities in `near`.
    places: [u8; N],
    /// The way back to the first city.
    back: u32,
}

/// A step to a neighbour.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    length: u32,
    city: u8,
}

/// A path from city 0, without any heap allocation.
#[derive(Clone)]
pub struct PathState<const N: usize, const W: usize> {
    end: End<W>,
    path: [u8; N],
}

/// All of a path except the sequence of its cities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct End<const W: usize> {
    length: u64,
    cities: usize,
    last: u8,
    /// The cities that are not on the path.
    open: Set<W>,
}

/// The cities that a path was not extended by yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Extensions<const W: usize> {
    /// The end of the path.
    end: End<W>,
    /// The remaining cities, as positions among the neighbours of its last city.
    left: Set<W>,
}

impl<const N: usize, const W: usize> PathProblem<N, W> {
    /// Creates the problem for an instance of at most `N` cities.
    ///
    /// # Panics
    /// Panics if there are more.
    pub fn new(instance: Instance) -> Self {
        let cities = instance.len();
        Self::try_from(instance).unwrap_or_else(|_| panic!("{cities} cities, but room for {N}"))
    }

    fn heuristic(&self) -> &Heuristic {
        self.heuristic.get_or_init(|| Heuristic::new(&self.instance))
    }

    fn around(&self, city: u8) -> &Around<N> {
        &self.around[usize::from(city) % N]
    }

    /// Returns the length of a minimum spanning tree of the cities that a path has not visited.
    fn spanning_tree(&self, state: &PathState<N, W>) -> u64 {
        let mut open = [0_u8; N];
        let mut reach = [u32::MAX; N];
        let mut left = 0;
        for city in state.end.open {
            open[left] = name(city);
            left += 1;
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

impl<const N: usize, const W: usize> TryFrom<Instance> for PathProblem<N, W> {
    type Error = TooManyCities;

    fn try_from(instance: Instance) -> Result<Self, TooManyCities> {
        let cities = instance.len();
        if cities > N || N > 64 * W || N > 256 {
            return Err(TooManyCities { cities, room: N });
        }
        let nowhere = Around { near: [Step::default(); N], places: [0; N], back: 0 };
        let mut around = vec![nowhere; N];
        for (city, around) in around.iter_mut().enumerate().take(cities) {
            let mut others: Vec<City> = (0..cities).filter(|&other| other != city).collect();
            others.sort_by_key(|&other| instance.distance(city, other));
            for (place, other) in others.into_iter().enumerate() {
                around.near[place] = Step { length: instance.distance(city, other), city: name(other) };
                around.places[other] = name(place);
            }
            around.back = instance.distance(city, 0);
        }
        let around = around.try_into().expect("N of them");
        Ok(Self { instance, around, heuristic: OnceLock::new() })
    }
}

/// The instance has more cities than the type of path has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{cities} cities, but room for {room}")]
pub struct TooManyCities {
    cities: usize,
    room: usize,
}

impl<const N: usize, const W: usize> From<PathProblem<N, W>> for Instance {
    fn from(problem: PathProblem<N, W>) -> Self {
        problem.instance
    }
}

impl<const N: usize, const W: usize> PathState<N, W> {
    fn empty(cities: usize) -> Self {
        let end = End { length: 0, cities: 0, last: 0, open: Set::first(cities) };
        Self { end, path: [0; N] }
    }

    /// Extends a path that ended with `end`.
    #[allow(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn extend(&mut self, end: &End<W>, step: Step) {
        self.path[end.cities % N] = step.city;
        self.end = End {
            length: end.length + u64::from(step.length),
            cities: end.cities + 1,
            last: step.city,
            open: end.open.without(usize::from(step.city)),
        };
    }

    fn cities(&self) -> &[u8] {
        &self.path[..self.end.cities]
    }
}

impl<const N: usize, const W: usize> Tree for PathProblem<N, W> {
    type State = PathState<N, W>;
    type Children = Extensions<W>;

    fn root(&self) -> PathState<N, W> {
        let mut root = PathState::empty(self.instance.len());
        let end = root.end;
        root.extend(&end, Step { length: 0, city: 0 });
        root
    }

    #[allow(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn branch(&self, state: &mut PathState<N, W>) -> Extensions<W> {
        let end = state.end;
        let places = &self.around(end.last).places;
        let mut left = Set::default();
        for city in end.open {
            left.insert(usize::from(places[city % N]));
        }
        Extensions { end, left }
    }
}

impl<const N: usize, const W: usize> Problem for PathProblem<N, W> {
    type Cost = u64;
    type Solution = Vec<City>;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .construct(|problem, seed, stops| Some(problem.heuristic().construct(&problem.instance, seed, stops)))
        .improve(|problem, tour, seed, stops| {
            problem.heuristic().improve(&problem.instance, tour, seed, stops)
        })
        .read_solution(|_, given| read_numbered(given));

    #[inline]
    fn leaf(&self, state: &PathState<N, W>) -> Option<u64> {
        let End { open, length, last, .. } = &state.end;
        open.is_empty().then(|| length + u64::from(self.around(*last).back))
    }

    fn bound(&self, state: &mut PathState<N, W>, _: Option<u64>) -> Option<u64> {
        // A spanning tree has no directions.
        let rest = if self.instance.is_directed() { 0 } else { self.spanning_tree(state) };
        Some(state.end.length + rest)
    }

    fn cost_of(&self, tour: &Vec<City>) -> Option<u64> {
        self.instance.checked_length(tour)
    }

    fn solution(&self, leaf: &PathState<N, W>) -> Vec<City> {
        leaf.cities().iter().map(|&city| usize::from(city)).collect()
    }
}

impl<const N: usize, const W: usize> Children<PathProblem<N, W>> for Extensions<W> {
    type Step = Moves;

    fn next(&mut self, problem: &PathProblem<N, W>, parent: &PathState<N, W>) -> Option<PathState<N, W>> {
        let mut child = parent.clone();
        self.descend(problem, &mut child).then_some(child)
    }

    fn split(&mut self, _: &PathProblem<N, W>, _: &PathState<N, W>) -> Option<Self> {
        let (all, mut away) = (self.left, self.left);
        self.left = Set::default();
        for _ in 0..all.len() / 2 {
            self.left.extend(away.next());
        }
        (!away.is_empty()).then_some(Self { end: self.end, left: away })
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn is_single(&self, _: &PathProblem<N, W>, _: &PathState<N, W>) -> bool {
        self.left.len() == 1
    }
}

impl<const N: usize, const W: usize> InPlace<PathProblem<N, W>> for Extensions<W> {
    #[allow(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn descend(&mut self, problem: &PathProblem<N, W>, path: &mut PathState<N, W>) -> bool {
        let Some(place) = self.left.next() else { return false };
        path.extend(&self.end, problem.around(self.end.last).near[place % N]);
        true
    }

    /// Does nothing: the path up to here was not changed, and the extensions hold its end.
    fn ascend(&self, _: &PathProblem<N, W>, _: &mut PathState<N, W>) {}
}

/// Converts a city, or a position among its neighbours, to a byte.
#[inline]
fn name(city: City) -> u8 {
    debug_assert!(city < 256, "at most 256 cities");
    #[allow(clippy::cast_possible_truncation, reason = "at most 256 cities")]
    let name = city as u8;
    name
}

impl<const N: usize, const W: usize> fmt::Debug for PathState<N, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathState")
            .field("length", &self.end.length)
            .field("cities", &self.cities())
            .finish_non_exhaustive()
    }
}

/// Serialises the length, the cities on the path, and the number of all cities; the rest follows from these.
impl<const N: usize, const W: usize> Serialize for PathState<N, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.end.length, self.cities(), self.end.cities + self.end.open.len()).serialize(serializer)
    }
}

impl<'de, const N: usize, const W: usize> Deserialize<'de> for PathState<N, W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (length, cities, all) = <(u64, Vec<u8>, usize)>::deserialize(deserializer)?;
        if cities.is_empty() || cities.len() > all || all > N {
            let (cities, all) = (cities.len(), all);
            return Err(D::Error::custom(format!("a path of {cities} of {all} cities where 1 to {N} fit")));
        }
        let mut state = Self::empty(all);
        for city in cities {
            let end = state.end;
            if !end.open.contains(usize::from(city)) {
                return Err(D::Error::custom(format!("a path with city {city} twice, or of {all} cities")));
            }
            state.extend(&end, Step { length: 0, city });
        }
        state.end.length = length;
        Ok(state)
    }
}

/// Returns the number of states visited without pruning: all paths from the first city.
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
    fn search_without_pruning_visits_every_path_once() {
        assert_eq!(states_without_pruning(12), 108_505_112);
        for cities in 1..=9 {
            let found = sequential::solve(&PathProblem::<16, 1>::new(instance(cities)), false, None);
            assert_eq!(found.states, states_without_pruning(cities as u64), "{cities} cities");
        }
    }

    #[test]
    fn pruning_does_not_change_the_optimum_and_room_does_not_change_the_search() {
        for cities in 1..=9 {
            let whole = sequential::solve(&PathProblem::<16, 1>::new(instance(cities)), false, None);
            let pruned = sequential::solve(&PathProblem::<16, 1>::new(instance(cities)), true, None);
            let roomy = sequential::solve(&PathProblem::<256, 4>::new(instance(cities)), true, None);
            let best = whole.best.unwrap();
            assert_eq!(best.cost, instance(cities).tour_length(&best.solution));
            assert_eq!(pruned.best.unwrap().cost, best.cost);
            assert_eq!((roomy.states, roomy.best.unwrap().cost), (pruned.states, best.cost));
            assert!(pruned.states <= whole.states);
        }
    }

    #[test]
    fn state_decodes_as_encoded() {
        let problem = PathProblem::<16, 1>::new(instance(6));
        let mut root = problem.root();
        let child = problem.branch(&mut root).next(&problem, &root).unwrap();
        let text = serde_json::to_string(&child).unwrap();
        let back: PathState<16, 1> = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{back:?}"), format!("{child:?}"));
        assert_eq!(back.end, child.end);
        for spoilt in ["[3,[],6]", "[3,[0,0],6]", "[3,[0,6],6]", "[3,[0],17]", "[3,[0,1],1]"] {
            assert!(serde_json::from_str::<PathState<16, 1>>(spoilt).is_err(), "{spoilt}");
        }
    }
}

//! The quadratic assignment problem: facilities are placed so that the sum of flows times distances is
//! minimal.
//!
//! The bound is that of P. Gilmore (1962) and E. Lawler (1963): the cost of a facility at a place is at least
//! its cost with those already placed, plus its largest flows over the shortest distances of the place;
//! choosing a place for each facility is an [assignment problem](bnb_framework::assignment). Its reduced
//! costs determine which facility to place next: the one that loses most by a wrong place.

mod read;

use std::collections::VecDeque;

use bnb_framework::{
    Problem, Tree,
    assignment::{Assignment, FORBIDDEN},
    cli::{DisplaySolution, ParseProblem},
    words::ReadError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::read::parse;

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qap {
    size: usize,
    /// From facility to facility, row by row.
    flows: Vec<i64>,
    /// From place to place, row by row.
    distances: Vec<i64>,
}

/// A partial solution: some facilities are placed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placing {
    /// The place of each facility, if it has one.
    places: Vec<Option<u8>>,
    /// The number of placed facilities.
    placed: usize,
    /// The cost of the flows between them.
    cost: i64,
    /// A lower bound on the cost of all completions, known before the state's own bound.
    low: i64,
    /// The facility to place next, and for each of its places a lower bound on the cost. Known once the state
    /// is bounded.
    next: Option<(u8, Vec<(u8, i64)>)>,
}

impl Qap {
    /// Creates an instance with matrices of `size` rows.
    pub fn new(size: usize, flows: Vec<i64>, distances: Vec<i64>) -> Self {
        Self { size, flows, distances }
    }

    fn flow(&self, from: usize, to: usize) -> i64 {
        self.flows[from * self.size + to]
    }

    fn distance(&self, from: usize, to: usize) -> i64 {
        self.distances[from * self.size + to]
    }

    /// Returns the cost that placing one more facility adds.
    fn added(&self, placing: &Placing, facility: usize, place: usize) -> i64 {
        let own = self.flow(facility, facility) * self.distance(place, place);
        let with = |(other, at): (usize, usize)| {
            self.flow(facility, other) * self.distance(place, at)
                + self.flow(other, facility) * self.distance(at, place)
        };
        own + placing.placed().map(with).sum::<i64>()
    }

    fn cost(&self, places: &[usize]) -> i64 {
        let pairs = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        pairs.map(|(from, to)| self.flow(from, to) * self.distance(places[from], places[to])).sum()
    }

    /// Returns a solution to start with: from a simple one, pairs of facilities swap places as long as that
    /// helps.
    fn descent(&self) -> (i64, Vec<usize>) {
        let mut places: Vec<usize> = (0..self.size).collect();
        let mut cost = self.cost(&places);
        loop {
            let before = cost;
            for a in 0..self.size {
                for b in 0..a {
                    places.swap(a, b);
                    let swapped = self.cost(&places);
                    if swapped < cost {
                        cost = swapped;
                    } else {
                        places.swap(a, b);
                    }
                }
            }
            if cost == before {
                return (cost, places);
            }
        }
    }

    /// Computes the bound of Gilmore and Lawler, and stores in the state what it implies for the next step.
    fn gilmore_lawler(&self, placing: &mut Placing) -> i64 {
        let facilities = placing.unplaced();
        let places = placing.free(self.size);
        let n = facilities.len();
        let rows = |of: &dyn Fn(usize, usize) -> i64, all: &[usize]| -> Vec<Vec<i64>> {
            let row = |&one: &usize| {
                let mut row: Vec<i64> =
                    all.iter().filter(|&&other| other != one).map(|&other| of(one, other)).collect();
                row.sort_unstable();
                row
            };
            all.iter().map(row).collect()
        };
        let flows = rows(&|from, to| self.flow(from, to), &facilities);
        let distances = rows(&|from, to| self.distance(from, to), &places);
        let mut costs = Vec::with_capacity(n * n);
        for (facility, flows) in facilities.iter().zip(&flows) {
            for (place, distances) in places.iter().zip(&distances) {
                // The minimum over all pairings: pair large with small.
                let rest: i64 =
                    flows.iter().rev().zip(distances).map(|(flow, distance)| flow * distance).sum();
                costs.push(self.added(placing, *facility, *place) + rest);
            }
        }
        let mut assignment = Assignment::new(n);
        let least = assignment.solve(|row, column| costs[row * n + column]).unwrap_or(FORBIDDEN);
        let bound = placing.cost + least;
        let left = |row: usize, column: usize| assignment.reduced(row, column, costs[row * n + column]);
        let next = (0..n).max_by_key(|&row| (0..n).map(|column| left(row, column)).sum::<i64>());
        placing.next = next.map(|row| {
            let choices = places.iter().enumerate();
            let mut choices: Vec<(u8, i64)> =
                choices.map(|(column, &place)| (small(place), bound + left(row, column))).collect();
            choices.sort_by_key(|&(place, low)| (low, place));
            (small(facilities[row]), choices)
        });
        bound
    }
}

fn small(index: usize) -> u8 {
    u8::try_from(index).expect("there are at most 128 facilities")
}

impl Placing {
    /// Returns the placed facilities and their places.
    fn placed(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.places.iter().enumerate();
        places.filter_map(|(facility, place)| place.map(|place| (facility, usize::from(place))))
    }

    fn unplaced(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|&facility| self.places[facility].is_none()).collect()
    }

    /// Returns the free places.
    fn free(&self, size: usize) -> Vec<usize> {
        let mut taken = vec![false; size];
        self.placed().for_each(|(_, place)| taken[place] = true);
        (0..size).filter(|&place| !taken[place]).collect()
    }
}

impl Tree for Qap {
    type State = Placing;
    type Children = VecDeque<Placing>;

    fn root(&self) -> Placing {
        Placing { places: vec![None; self.size], placed: 0, cost: 0, low: i64::MIN, next: None }
    }

    fn branch(&self, placing: &mut Placing) -> VecDeque<Placing> {
        let (facility, choices) = placing.next.take().unwrap_or_else(|| {
            // Without pruning no bound was computed.
            let facility = placing.unplaced().first().copied().unwrap_or(0);
            let free = placing.free(self.size).into_iter();
            (small(facility), free.map(|place| (small(place), i64::MIN)).collect())
        });
        let child = |(place, low): (u8, i64)| {
            let added = self.added(placing, usize::from(facility), usize::from(place));
            let mut child = placing.clone();
            child.places[usize::from(facility)] = Some(place);
            child.placed += 1;
            child.cost += added;
            child.low = low;
            child
        };
        choices.into_iter().map(child).collect()
    }
}

impl Problem for Qap {
    /// Flows times distances.
    type Cost = i64;
    /// The place of each facility, from 0.
    type Solution = Vec<usize>;

    fn leaf(&self, placing: &Placing) -> Option<i64> {
        (placing.placed == self.size).then_some(placing.cost)
    }

    fn bound(&self, placing: &mut Placing, best: Option<i64>) -> Option<i64> {
        if best.is_some_and(|best| placing.low >= best) {
            return Some(placing.low);
        }
        Some(self.gilmore_lawler(placing).max(placing.low))
    }

    fn solution(&self, placing: &Placing) -> Vec<usize> {
        let mut placed: Vec<(usize, usize)> = placing.placed().collect();
        placed.sort_by_key(|&(facility, _)| facility);
        placed.into_iter().map(|(_, place)| place).collect()
    }

    fn cost_of(&self, places: &Vec<usize>) -> Option<i64> {
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..self.size).then(|| self.cost(places))
    }
}

impl ParseProblem for Qap {
    const NAME: &'static str = "qap";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Places facilities so that what flows between them goes the shortest way";

    const FILE_BYTES_MAX: u64 = read::FILE_BYTES_MAX;

    fn read(file: &str, text: &str) -> Result<Self, ReadError> {
        parse(file, text)
    }

    fn start(&self) -> Option<(i64, Vec<usize>)> {
        Some(self.descent())
    }
}

impl DisplaySolution for Qap {
    const COST: &'static str = "cost";
    const SOLUTION: &'static str = "places";

    /// Places are displayed from 1.
    fn show(&self, places: &Vec<usize>) -> (String, Value) {
        let places: Vec<usize> = places.iter().map(|place| place + 1).collect();
        (format!("{places:?}"), json!(places))
    }
}

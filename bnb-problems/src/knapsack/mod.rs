//! The 0/1 knapsack: given items with values and weights, find the most valuable set that fits. Branches on
//! the next item, by value per weight; the bound fills the remaining room, the last item in part (G. Dantzig,
//! 1957).

mod read;

use std::collections::VecDeque;

use bnb_framework::{
    Goal, Problem, Tree,
    cli::{DisplaySolution, ParseProblem},
    words::ReadError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::read::{Decimal, parse};

/// The items, and the weight that fits. All numbers are whole: decimals of the file are in units of its last
/// place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knapsack {
    capacity: u64,
    /// Values and weights, those with the most value for their weight first.
    items: Vec<(u64, u64)>,
    /// The position of each in the file, from 0.
    places: Vec<usize>,
    /// The number of decimals of values.
    decimals: usize,
}

/// A partial solution: the first items are decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Packing {
    taken: Vec<bool>,
    value: u64,
    room: u64,
}

impl Tree for Knapsack {
    type State = Packing;
    type Children = VecDeque<Packing>;

    fn root(&self) -> Packing {
        Packing { taken: Vec::new(), value: 0, room: self.capacity }
    }

    /// Takes the next item, if it fits, or leaves it.
    fn branch(&self, packing: &mut Packing) -> VecDeque<Packing> {
        let (value, weight) = self.items[packing.taken.len()];
        let with = |take: bool| {
            let mut child = packing.clone();
            child.taken.push(take);
            if take {
                child.value += value;
                child.room -= weight;
            }
            child
        };
        let fits = (weight <= packing.room).then(|| with(true));
        fits.into_iter().chain([with(false)]).collect()
    }
}

impl Problem for Knapsack {
    /// The value, in units of the last decimal.
    type Cost = u64;
    /// The positions of the items in the file, from 0, in order.
    type Solution = Vec<usize>;
    const GOAL: Goal = Goal::Maximise;

    fn leaf(&self, packing: &Packing) -> Option<u64> {
        (packing.taken.len() == self.items.len()).then_some(packing.value)
    }

    fn bound(&self, packing: &mut Packing, _: Option<u64>) -> Option<u64> {
        let (mut value, mut room) = (packing.value, packing.room);
        for &(v, w) in &self.items[packing.taken.len()..] {
            if w > room {
                // At most v, since w is larger than the room.
                let part = u128::from(v) * u128::from(room) / u128::from(w);
                return Some(value + u64::try_from(part).unwrap_or(v));
            }
            (value, room) = (value + v, room - w);
        }
        Some(value)
    }

    fn solution(&self, packing: &Packing) -> Vec<usize> {
        let taken = packing.taken.iter().zip(&self.places).filter(|(taken, _)| **taken);
        let mut items: Vec<usize> = taken.map(|(_, &place)| place).collect();
        items.sort_unstable();
        items
    }

    fn cost_of(&self, items: &Vec<usize>) -> Option<u64> {
        let mut left: Vec<Option<(u64, u64)>> = vec![None; self.places.len()];
        for (&place, &item) in self.places.iter().zip(&self.items) {
            left[place] = Some(item);
        }
        let (mut value, mut weight) = (0, 0);
        for &item in items {
            // `take` refuses an item that occurs twice.
            let (v, w) = left.get_mut(item)?.take()?;
            (value, weight) = (value + v, weight + w);
        }
        (weight <= self.capacity).then_some(value)
    }
}

impl DisplaySolution for Knapsack {
    const COST: &'static str = "value";
    const SOLUTION: &'static str = "items";

    /// Items are displayed from 1.
    fn show(&self, items: &Vec<usize>) -> (String, Value) {
        let items: Vec<usize> = items.iter().map(|item| item + 1).collect();
        (format!("{items:?}"), json!(items))
    }

    fn show_cost(&self, value: u64) -> (String, Value) {
        if self.decimals == 0 {
            return (value.to_string(), json!(value));
        }
        let number = value as f64 / self.unit();
        (format!("{number:.*}", self.decimals), json!(number))
    }

    fn read_cost(&self, text: &str) -> Option<u64> {
        Decimal::read(text)?.in_units(self.decimals)
    }

    fn unit(&self) -> f64 {
        10_f64.powi(i32::try_from(self.decimals).unwrap_or(0))
    }
}

impl ParseProblem for Knapsack {
    const NAME: &'static str = "knapsack";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Packs the most valuable items that fit";

    /// Reads one of two formats. The first: the number of items and the capacity, on one line or two, then a
    /// line with the value and the weight for each item. A solution may follow, a 0 or 1 for each item; it
    /// must fit, and is otherwise ignored. The second is that of PEBBL's example: the capacity alone on a
    /// line, then a line with the name, the weight and the value (in this order) for each item. Numbers may
    /// have up to 12 decimals, which are exact.
    fn read(file: &str, text: &str) -> Result<Self, ReadError> {
        parse(file, text)
    }
}

impl Knapsack {
    /// Creates an instance from a capacity, the value and the weight of each item, and the decimals in the
    /// unit of the values. Sums must be below 2^63.
    pub fn new(capacity: u64, items: &[(u64, u64)], decimals: usize) -> Self {
        let mut places: Vec<usize> = (0..items.len()).collect();
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        places.sort_by(|&a, &b| {
            let ((v, w), (v2, w2)) = (items[a], items[b]);
            product(v2, w).cmp(&product(v, w2)).then(v2.cmp(&v))
        });
        let items = places.iter().map(|&place| items[place]).collect();
        Self { capacity, items, places, decimals }
    }
}

//! The 0/1 knapsack: given items with values and weights, find the most valuable set that fits. Starts from
//! the greedy set, and changes it from the break item outwards (D. Pisinger, EXPKNAP, 1995); the bound fills
//! the remaining room with the next item in part, at prices that also limit how many items there are (S.
//! Martello and P. Toth, 1997).

mod local;
mod price;
mod read;
mod tree;

use std::process::ExitCode;

use bnb_framework::{
    Problem as _,
    cli::{self, DisplaySolution, ParseProblem},
    parse::ReadError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::tree::Packing;
use self::{
    price::Price,
    read::{Decimal, parse},
};

/// The items, and the weight that fits. All numbers are whole: decimals of the file are in units of its last
/// place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Given", into = "Given")]
pub struct Knapsack {
    capacity: u64,
    /// Values and weights in the order of the file.
    all: Vec<(u64, u64)>,
    /// The items that fit alone, those that are worth the most for their weight first.
    items: Vec<Item>,
    /// The price of an item, for bounds.
    price: Price,
    value_of_all: u64,
    /// The number of decimals of values.
    decimals: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    value: u64,
    weight: u64,
    /// Its position in the file, from 0.
    place: u32,
}

/// The instance data of a knapsack.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Knapsack")]
struct Given {
    capacity: u64,
    items: Vec<(u64, u64)>,
    decimals: usize,
}

impl From<Given> for Knapsack {
    fn from(Given { capacity, items, decimals }: Given) -> Self {
        Self::new(capacity, &items, decimals)
    }
}

impl From<Knapsack> for Given {
    fn from(Knapsack { capacity, all: items, decimals, .. }: Knapsack) -> Self {
        Self { capacity, items, decimals }
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

    /// Reads one of three formats. The first: the number of items and the capacity, on one line or two, then a
    /// line with the value and the weight for each item. A solution may follow, a 0 or 1 for each item; it
    /// must fit, and is otherwise ignored. The second is that of PEBBL's example: the capacity alone on a
    /// line, then a line with the name, the weight and the value (in this order) for each item. The third is
    /// that of a generator of hard instances: the number of items alone on a line, then a line with the index,
    /// the value and the weight for each item, and the capacity alone on the last line. Numbers may have up to
    /// 12 decimals, which are exact.
    fn read(file: &str, text: &str) -> Result<Self, ReadError> {
        parse(file, text)
    }

    /// Returns a good packing, after a fixed amount of work.
    fn start(&self) -> Option<(u64, Vec<usize>)> {
        let mut packing = self.construct(0, &|| false);
        for seed in 0..START_ROUNDS {
            packing = self.improve(&packing, seed, &|| false).unwrap_or(packing);
        }
        self.cost_of(&packing).map(|value| (value, packing))
    }
}

/// The number of rounds of local search before the search starts.
const START_ROUNDS: u64 = 4;

impl Knapsack {
    /// Creates an instance from a capacity, the value and the weight of each item, and the decimals in the
    /// unit of the values. Sums must be below 2^63.
    pub fn new(capacity: u64, items: &[(u64, u64)], decimals: usize) -> Self {
        let value_of_all = items.iter().map(|item| item.0).sum();
        // More room than for everything is of no use, but might be too much for the arithmetic.
        let capacity = capacity.min(items.iter().map(|item| item.1).sum());
        let all = items.to_vec();
        let item = |(place, &(value, weight))| Item { value, weight, place };
        let items = (0..).zip(&all).map(item).filter(|item| item.weight <= capacity).collect();
        let mut knapsack = Self { capacity, all, items, price: Price::NONE, value_of_all, decimals };
        knapsack.items.sort_unstable_by(|&a, &b| Price::NONE.order(a, b));
        let known = knapsack.construct(0, &|| knapsack.items.len() > price::ITEMS_MAX);
        let known = knapsack.value_of(&known).unwrap_or(0);
        knapsack.price = Price::best(&knapsack.items, capacity, known);
        let price = knapsack.price;
        knapsack.items.sort_unstable_by(|&a, &b| price.order(a, b));
        knapsack
    }

    /// Returns the positions in the file of the items that are taken, in order.
    fn places_of(&self, taken: &[bool]) -> Vec<usize> {
        let taken = self.items.iter().zip(taken).filter(|(_, taken)| **taken);
        let mut places: Vec<usize> = taken.map(|(item, _)| item.place as usize).collect();
        places.sort_unstable();
        places
    }

    /// Returns the value of items by their positions in the file, if there are such items and they fit.
    fn value_of(&self, places: &[usize]) -> Option<u64> {
        let mut is_taken = vec![false; self.all.len()];
        let (mut value, mut weight) = (0, 0);
        for &place in places {
            let &(v, w) = self.all.get(place)?;
            if std::mem::replace(&mut is_taken[place], true) {
                return None;
            }
            (value, weight) = (value + v, weight + w);
        }
        (weight <= self.capacity).then_some(value)
    }
}

/// Runs the program `knapsack`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    cli::main::<Knapsack>()
}

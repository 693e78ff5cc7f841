//! The result of a search: numbers that it has counted, and the best solution.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskwork::{Output, Score, Variable};

use crate::wire::{NewCounts, Offer};

/// The maximum number of names of a search.
const NAMES_MAX: usize = 1_000;

/// The name of the number that is displayed as the work of a job.
const STATES: &str = "states";

/// The largest integer up to which all integers are exact in a double.
const INTEGER_MAX: u128 = 1 << 53;

/// Numbers by name, which are added up. A sum of `i64` cannot overflow an `i128`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts(BTreeMap<String, i128>);

impl Output for Counts {
    fn merge(&mut self, Self(other): Self) {
        for (name, number) in other {
            *self.0.entry(name).or_default() += number;
        }
    }
}

impl Counts {
    /// # Errors
    /// If there are too many names.
    pub(super) fn add(&mut self, new: NewCounts) -> Result<(), String> {
        self.merge(Self(new.into_iter().map(|(name, number)| (name, number.into())).collect()));
        let names = self.0.len();
        (names <= NAMES_MAX)
            .then_some(())
            .ok_or_else(|| format!("the search counts {names} names, more than {NAMES_MAX}"))
    }
}

/// Returns the number of states among numbers.
pub(super) fn states(counts: &NewCounts) -> u64 {
    counts.get(STATES).and_then(|&states| states.try_into().ok()).unwrap_or(0)
}

/// The variable with the solution of the least cost.
#[derive(Debug)]
pub(crate) struct Best;

impl Variable for Best {
    type Value = Offer;
    const NAME: &'static str = "best";

    fn improves(new: &Offer, old: &Offer) -> bool {
        new.cost < old.cost
    }

    fn score(best: &Offer) -> Option<Score> {
        Some(Score::Cost(best.cost))
    }
}

/// Returns the result of a search as JSON.
pub(crate) fn result_of(counts: &Counts, best: Option<&Offer>) -> String {
    let number = |&number: &i128| {
        let is_exact = number.unsigned_abs() <= INTEGER_MAX;
        if is_exact { number.to_string() } else { format!("{{\"$i\":\"{number}\"}}") }
    };
    let raw = |json: String| RawValue::from_string(json).expect("numbers and checked values are valid JSON");
    let counts: BTreeMap<_, _> = counts.0.iter().map(|(name, count)| (name, raw(number(count)))).collect();
    let best = best.map(|best| {
        // As in JSON of Python: `3` and `3.0` are equal, and the first is shorter.
        let is_integer = best.cost.fract() == 0.0 && best.cost.abs() < INTEGER_MAX as f64;
        let cost = if is_integer { format!("{}", best.cost) } else { format!("{:?}", best.cost) };
        BTreeMap::from([("cost", raw(cost)), ("solution", raw(best.solution.clone()))])
    });
    let result = BTreeMap::from([
        ("best", serde_json::to_value(best).unwrap_or_default()),
        ("counts", serde_json::to_value(counts).unwrap_or_default()),
    ]);
    serde_json::to_string(&result).unwrap_or_default()
}

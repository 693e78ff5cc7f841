//! The tree of packings: changes of the break solution, from the core outwards, and their bounds.
//!
//! Items are ordered by value per weight, and the first ones fill the knapsack: the break solution. Any other
//! packing adds some of the later items and removes some of the earlier ones, mostly from the core, near
//! the break item (D. Pisinger, EXPKNAP, 1995). While there is room, the next item to add is
//! chosen; while the set is too heavy, the next one to remove. The gain from the room left, or the loss from a lack
//! of room, is bounded by a fraction of the next item (R. Dembo and P. Hammer, 1980), so a state
//! is bounded in constant time, and only children that their bounds permit are created.

use std::collections::VecDeque;

use bnb_framework::{Goal, Hooks, Problem, Tree};
use serde::{Deserialize, Serialize};

use super::{Item, Knapsack, price::signed};

/// The number of children after which the remaining ones are put below a common one.
const CHILDREN_MAX: usize = 32;

/// A set of items, of which some are fixed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Packing {
    set: Set,
    /// The best value known when this was last bounded.
    best: Option<u64>,
    /// The items that were added or removed.
    changed: Vec<u32>,
}

/// The properties of a set of items that determine its bound. It may be too heavy, but then some of its items must
/// still be removed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Set {
    value: u64,
    /// The remaining capacity; negative if the items are too heavy.
    room: i64,
    count: u32,
    /// Items before this one may still be removed.
    low: u32,
    /// Items from this one on may still be added.
    high: u32,
    /// Whether the set itself is below another state: something must be changed.
    must_change: bool,
}

impl Packing {
    /// Returns a child: another set, with or without a further item that was changed.
    fn child(&self, set: Set, item: Option<u32>) -> Self {
        let mut changed = Vec::with_capacity(self.changed.len() + 1);
        changed.extend_from_slice(&self.changed);
        changed.extend(item);
        Self { set, best: self.best, changed }
    }
}

impl Knapsack {
    fn with(&self, set: Set, item: u32) -> Set {
        let Item { value, weight, .. } = self.items[item as usize];
        Set {
            value: set.value + value,
            room: set.room - signed(weight),
            count: set.count + 1,
            high: item + 1,
            must_change: false,
            ..set
        }
    }

    fn without(&self, set: Set, item: u32) -> Set {
        let Item { value, weight, .. } = self.items[item as usize];
        Set {
            value: set.value - value,
            room: set.room + signed(weight),
            count: set.count - 1,
            low: item,
            must_change: false,
            ..set
        }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.items.len()).unwrap_or(u32::MAX)
    }

    /// Returns a bound on the value of sets after further changes.
    fn bound_at(&self, set: Set) -> Option<u64> {
        let Set { value, room, count, low, high, must_change } = set;
        let change = if room < 0 {
            let item = self.items[low.checked_sub(1)? as usize];
            // Those before a weightless item are weightless, too.
            let weight = Some(item.weight).filter(|&weight| weight > 0)?;
            -part(room.unsigned_abs(), self.price.worth(item), weight, true)
        } else if high < self.end() {
            let item = self.items[high as usize];
            part(room.unsigned_abs(), self.price.worth(item), item.weight, false)
        } else if must_change && low == 0 {
            return None;
        } else {
            // It can only lose value, which needs no price to be seen.
            return Some(value);
        };
        let bound = i128::from(value) + self.price.refund(count) + change;
        let bound = bound.clamp(i128::from(self.price.above), i128::from(self.value_of_all));
        u64::try_from(bound).ok()
    }

    /// Adds one of the later items, or none.
    fn add_one(&self, packing: &Packing, hopes: impl Fn(Set) -> bool) -> VecDeque<Packing> {
        let set = packing.set;
        let mut children = VecDeque::new();
        if !set.must_change && packing.best.is_none_or(|best| set.value > best) {
            children.push_back(packing.child(Set { low: 0, high: self.end(), ..set }, None));
            if set.low > 0 {
                let lighter = Set { high: self.end(), must_change: true, ..set };
                children.push_back(packing.child(lighter, None));
            }
        }
        for item in set.high..self.end() {
            let rest = Set { high: item, must_change: true, ..set };
            if !hopes(rest) {
                break;
            }
            if children.len() >= CHILDREN_MAX {
                children.push_back(packing.child(rest, None));
                break;
            }
            let child = self.with(set, item);
            if hopes(child) {
                children.push_back(packing.child(child, Some(item)));
            }
        }
        children
    }

    /// Removes one of the earlier items; or none, if there is room.
    fn remove_one(&self, packing: &Packing, hopes: impl Fn(Set) -> bool) -> VecDeque<Packing> {
        let set = packing.set;
        let mut children = VecDeque::new();
        if set.room >= 0 && !set.must_change {
            children.push_back(packing.child(Set { low: 0, ..set }, None));
        }
        for item in (0..set.low).rev() {
            let rest = Set { low: item + 1, must_change: true, ..set };
            if !hopes(rest) {
                break;
            }
            if children.len() >= CHILDREN_MAX {
                children.push_back(packing.child(rest, None));
                break;
            }
            let child = self.without(set, item);
            if hopes(child) {
                children.push_back(packing.child(child, Some(item)));
            }
        }
        children
    }
}

/// Returns the value of a fraction of an item with a given weight; an upper bound if it is rounded up. It
/// may exceed the value of the whole item.
fn part(of_weight: u64, worth: i64, weight: u64, rounds_up: bool) -> i128 {
    let Ok(worth) = u64::try_from(worth) else { return 0 };
    if worth == 0 {
        return 0;
    }
    match of_weight.checked_mul(worth) {
        Some(product) if rounds_up => i128::from(product.div_ceil(weight)),
        Some(product) => i128::from(product / weight),
        None => {
            let product = u128::from(of_weight) * u128::from(worth);
            let weight = u128::from(weight);
            let part = if rounds_up { product.div_ceil(weight) } else { product / weight };
            i128::try_from(part).unwrap_or(i128::MAX >> 1)
        }
    }
}

impl Tree for Knapsack {
    type State = Packing;
    type Children = VecDeque<Packing>;

    /// The break solution.
    fn root(&self) -> Packing {
        let (mut value, mut room, mut high) = (0, signed(self.capacity), 0);
        for item in &self.items {
            if signed(item.weight) > room || self.price.worth(*item) < 0 {
                break;
            }
            (value, room, high) = (value + item.value, room - signed(item.weight), high + 1);
        }
        let set = Set { value, room, count: high, low: high, high, must_change: false };
        Packing { set, best: None, changed: Vec::new() }
    }

    fn branch(&self, packing: &mut Packing) -> VecDeque<Packing> {
        let best = packing.best;
        let hopes = |set: Set| self.bound_at(set).is_some_and(|bound| best.is_none_or(|best| bound > best));
        if packing.set.room >= 0 && packing.set.high < self.end() {
            self.add_one(packing, hopes)
        } else {
            self.remove_one(packing, hopes)
        }
    }
}

impl Problem for Knapsack {
    /// The value, in units of the last decimal.
    type Cost = u64;
    /// The positions of the items in the file, from 0, in order.
    type Solution = Vec<usize>;
    const GOAL: Goal = Goal::Maximise;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .construct(|knapsack, seed, stops| Some(knapsack.construct(seed, stops)))
        .improve(|knapsack, items, seed, stops| knapsack.improve(items, seed, stops));

    fn leaf(&self, packing: &Packing) -> Option<u64> {
        let Set { value, room, low, high, must_change, .. } = packing.set;
        (low == 0 && high == self.end() && room >= 0 && !must_change).then_some(value)
    }

    fn bound(&self, packing: &mut Packing, best: Option<u64>) -> Option<u64> {
        packing.best = best;
        self.bound_at(packing.set)
    }

    fn solution(&self, packing: &Packing) -> Vec<usize> {
        let mut taken = vec![false; self.items.len()];
        let first = self.root().set.high;
        taken[..first as usize].fill(true);
        for &item in &packing.changed {
            taken[item as usize] = item >= first;
        }
        self.places_of(&taken)
    }

    fn cost_of(&self, items: &Vec<usize>) -> Option<u64> {
        self.value_of(items)
    }
}

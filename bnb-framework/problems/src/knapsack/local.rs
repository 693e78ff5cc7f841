//! Heuristics for knapsacks: greedy filling, and exchanging one item for another.

use super::{Item, Knapsack};
use crate::random::Random;

/// The approximate number of items examined in a round: about 10 ms.
const LOOKS_OF_ROUND: usize = 1 << 21;
/// The fixed cost of a step, in examined items: it keeps rounds with few items short.
const LOOKS_OF_STEP: usize = 1 << 6;
/// The number of items examined between two checks whether to stop.
const LOOKS_UNASKED: usize = 1 << 13;
/// One of this many items is left out at random.
const LEAVES_ONE_OF: usize = 16;
/// Up to this many items are changed at random before a set is improved again.
const CHANGES_MAX: usize = 4;
/// The maximum distance of such items in the order.
const CORE: usize = 100;

/// A set of items that fits.
#[derive(Clone)]
struct Filling<'a> {
    items: &'a [Item],
    taken: Vec<bool>,
    value: u64,
    room: u64,
}

impl Filling<'_> {
    fn turn(&mut self, item: usize) {
        let Item { value, weight, .. } = self.items[item];
        self.taken[item] = !self.taken[item];
        if self.taken[item] {
            (self.value, self.room) = (self.value + value, self.room - weight);
        } else {
            (self.value, self.room) = (self.value - value, self.room + weight);
        }
    }

    /// Adds the items that fit, in order, except for some.
    fn fill(&mut self, mut leaves: impl FnMut() -> bool, stops: &dyn Fn() -> bool) {
        for item in 0..self.items.len() {
            if item % LOOKS_UNASKED == LOOKS_UNASKED - 1 && stops() {
                return;
            }
            if !self.taken[item] && self.items[item].weight <= self.room && !leaves() {
                self.turn(item);
            }
        }
    }

    /// Exchanges an item for another, or for none, while that pays, always with the largest gain. Returns
    /// the number of examined items, or `None` if it was stopped.
    fn exchange(&mut self, by_weight: &[usize], most: usize, stops: &dyn Fn() -> bool) -> Option<usize> {
        let mut looks = 0;
        while looks <= most {
            looks += 2 * self.items.len() + LOOKS_OF_STEP;
            let Some((gain, add, drop)) = self.best_exchange(by_weight, stops)? else { break };
            debug_assert!(gain > 0, "it pays");
            if let Some(drop) = drop {
                self.turn(drop);
            }
            self.turn(add);
        }
        Some(looks)
    }

    /// Returns the gain of the best exchange, the item to add and the one to remove, if there is one.
    /// `None` is returned if it was stopped.
    #[expect(clippy::option_option, reason = "there is nothing to gain, or it was stopped")]
    fn best_exchange(
        &self,
        by_weight: &[usize],
        stops: &dyn Fn() -> bool,
    ) -> Option<Option<(u64, usize, Option<usize>)>> {
        // For each weight, the most valuable item outside up to that weight.
        let mut outside: Vec<(u64, u64, usize)> = Vec::new();
        for (look, &item) in by_weight.iter().enumerate() {
            if look % LOOKS_UNASKED == LOOKS_UNASKED - 1 && stops() {
                return None;
            }
            let Item { value, weight, .. } = self.items[item];
            if !self.taken[item] && outside.last().is_none_or(|last| last.1 < value) {
                outside.push((weight, value, item));
            }
        }
        let best_within = |room: u64| {
            let fitting = outside.partition_point(|&(weight, ..)| weight <= room);
            fitting.checked_sub(1).map(|last| (outside[last].1, outside[last].2))
        };
        let mut best = best_within(self.room).map(|(value, item)| (value, item, None));
        for item in 0..self.items.len() {
            if item % LOOKS_UNASKED == LOOKS_UNASKED - 1 && stops() {
                return None;
            }
            if !self.taken[item] {
                continue;
            }
            let Item { value, weight, .. } = self.items[item];
            if let Some((other, add)) = best_within(self.room + weight)
                && other > value
                && best.is_none_or(|best| best.0 < other - value)
            {
                best = Some((other - value, add, Some(item)));
            }
        }
        Some(best.filter(|best| best.0 > 0))
    }

    /// Removes and adds some items at random, close to one of them.
    fn shake(&mut self, random: &mut Random) {
        if self.items.is_empty() {
            return;
        }
        let first = random.below(self.items.len()).saturating_sub(CORE / 2);
        let near = CORE.min(self.items.len() - first);
        for _ in 0..=random.below(CHANGES_MAX) {
            let item = first + random.below(near);
            if self.taken[item] || self.items[item].weight <= self.room {
                self.turn(item);
            }
        }
    }
}

impl Knapsack {
    fn filling(&self) -> Filling<'_> {
        let taken = vec![false; self.items.len()];
        Filling { items: &self.items, taken, value: 0, room: self.capacity }
    }

    fn by_weight(&self) -> Vec<usize> {
        let mut by_weight: Vec<usize> = (0..self.items.len()).collect();
        by_weight.sort_unstable_by_key(|&item| (self.items[item].weight, item));
        by_weight
    }

    /// Fills the knapsack in order, with some items left out unless the seed is 0, and exchanges items.
    pub fn construct(&self, seed: u64, stops: &dyn Fn() -> bool) -> Vec<usize> {
        let mut random = Random::new(seed);
        let mut filling = self.filling();
        filling.fill(|| seed != 0 && random.below(LEAVES_ONE_OF) == 0, stops);
        if !stops() {
            filling.fill(|| false, stops);
            // If it is stopped, the set is that before the last exchange.
            let _ = filling.exchange(&self.by_weight(), LOOKS_OF_ROUND, stops);
        }
        self.places_of(&filling.taken)
    }

    /// Returns a more valuable set than a given one, if a round of random changes and exchanges finds one.
    pub fn improve(&self, items: &[usize], seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<usize>> {
        let given = self.value_of(items)?;
        let mut is_given = vec![false; self.all.len()];
        for &place in items {
            is_given[place] = true;
        }
        let mut best = self.filling();
        for item in 0..self.items.len() {
            if is_given[self.items[item].place as usize] {
                best.turn(item);
            }
        }
        let (mut random, by_weight) = (Random::new(seed), self.by_weight());
        let (mut filling, mut looks) = (best.clone(), 0);
        while looks < LOOKS_OF_ROUND && !stops() {
            filling.clone_from(&best);
            if looks > 0 {
                filling.shake(&mut random);
            }
            let Some(more) = filling.exchange(&by_weight, LOOKS_OF_ROUND, stops) else { break };
            looks += more;
            // Sets of equal value lead elsewhere.
            if filling.value >= best.value {
                std::mem::swap(&mut best, &mut filling);
            }
        }
        (best.value > given).then(|| self.places_of(&best.taken))
    }
}

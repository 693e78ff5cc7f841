//! A price on the number of items, which tightens bounds if values depend on weights: then any set of items
//! is worth about as much as any other of the same weight and number (S. Martello and P. Toth, 1997).
//!
//! No packing has more items than the lightest that fit together, and none that is better than a known one
//! has fewer than the most valuable that are worth more together. Either is added to the relaxation with a
//! Lagrange multiplier, the price: an item is worth its value less the price, and the price is refunded for
//! as many items as there may be.

use std::cmp::{Ordering, Reverse};

use super::Item;

/// Prices are computed only for at most this many items: it takes several dozen sorts.
pub(super) const ITEMS_MAX: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Price {
    /// The price of each item: positive if packings with many items are overestimated, negative for those with few.
    pub(super) each: i64,
    /// The number of items for which it is refunded: the maximum in a packing if the price is positive; if it is
    /// negative, the minimum in a packing worth more than `above`.
    pub(super) items: u32,
    /// The bound holds for packings that are worth more.
    pub(super) above: u64,
}

impl Price {
    pub(super) const NONE: Self = Self { each: 0, items: 0, above: 0 };

    /// Returns the price with the least bound, for items that fit and the value of a known packing.
    pub(super) fn best(items: &[Item], capacity: u64, known: u64) -> Self {
        let plain = relaxed(items, capacity, Self::NONE);
        let most = items.iter().map(|item| item.value).max().unwrap_or(0);
        // So that no sum of prices is too large for the arithmetic.
        let is_small = i64::try_from(most).is_ok_and(|most| most < i64::MAX >> 24);
        if items.len() > ITEMS_MAX || !is_small || plain.0 <= i128::from(known) {
            return Self::NONE;
        }
        let at_most = most_that_fit(items, capacity);
        let at_least = fewest_above(items, known);
        let positive = |each: u64| Self { each: signed(each), items: at_most, above: 0 };
        let negative = |each: u64| Self { each: -signed(each), items: at_least, above: known };
        let dear = least(most + 1, |each| relaxed(items, capacity, positive(each)).1 < at_most);
        let cheap = least(most + 1, |each| relaxed(items, capacity, negative(each)).1 >= at_least);
        let candidates = [
            Self::NONE,
            positive(dear.saturating_sub(1)),
            positive(dear),
            negative(cheap.saturating_sub(1)),
            negative(cheap),
        ];
        let bound = |price: &Self| relaxed(items, capacity, *price).0;
        candidates.into_iter().min_by_key(bound).unwrap_or(Self::NONE)
    }

    /// Returns the value of an item.
    #[inline]
    pub(super) fn worth(self, item: Item) -> i64 {
        signed(item.value) - self.each
    }

    /// Returns the refund for the items that are missing from the number.
    #[inline]
    pub(super) fn refund(self, count: u32) -> i128 {
        i128::from(self.each) * (i128::from(self.items) - i128::from(count))
    }

    /// Compares items by worth per weight, the best first; those that are worth nothing are last.
    pub(super) fn order(self, a: Item, b: Item) -> Ordering {
        // Weightless items come first, unless they are worth less than nothing.
        let rank = |item: Item| match self.worth(item) {
            1.. | 0 if item.weight == 0 => 0,
            1.. => 1,
            _ => 2,
        };
        let product = |a: Item, b: Item| i128::from(self.worth(a)) * i128::from(b.weight);
        let ratio = || if rank(a) == 1 { product(b, a).cmp(&product(a, b)) } else { Ordering::Equal };
        let rest = (a.weight, Reverse(a.value), a.place).cmp(&(b.weight, Reverse(b.value), b.place));
        rank(a).cmp(&rank(b)).then_with(ratio).then(rest)
    }
}

/// Converts a value or a weight, which are below 2^63.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the least number up to a limit that has a property, if all above such a number have it.
fn least(limit: u64, has: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, limit);
    while low < high {
        let middle = low + (high - low) / 2;
        if has(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Returns the bound by filling the room in the order of a price, the last item in part (G. Dantzig, 1957),
/// and how many items are whole.
fn relaxed(items: &[Item], capacity: u64, price: Price) -> (i128, u32) {
    let mut sorted = items.to_vec();
    sorted.sort_unstable_by(|&a, &b| price.order(a, b));
    let (mut room, mut worth, mut count) = (capacity, price.refund(0), 0);
    for item in sorted {
        let gain = i128::from(price.worth(item));
        if gain < 0 {
            break;
        }
        if item.weight > room {
            worth += gain * i128::from(room) / i128::from(item.weight);
            break;
        }
        (room, worth, count) = (room - item.weight, worth + gain, count + 1);
    }
    (worth.max(i128::from(price.above)), count)
}

/// Returns how many items fit at most.
fn most_that_fit(items: &[Item], capacity: u64) -> u32 {
    let mut weights: Vec<u64> = items.iter().map(|item| item.weight).collect();
    weights.sort_unstable();
    let mut room = capacity;
    let fits = |weight: &u64| {
        let left = room.checked_sub(*weight);
        room = left.unwrap_or(0);
        left.is_some()
    };
    u32::try_from(weights.iter().copied().take_while(fits).count()).unwrap_or(u32::MAX)
}

/// Returns how many items it takes at least to be worth more than this.
fn fewest_above(items: &[Item], value: u64) -> u32 {
    let mut values: Vec<u64> = items.iter().map(|item| item.value).collect();
    values.sort_unstable_by_key(|&value| Reverse(value));
    let mut sum = 0;
    let is_too_few = |value_of_one: &u64| {
        let is_too_few = sum <= value;
        sum += value_of_one;
        is_too_few
    };
    u32::try_from(values.iter().copied().take_while(is_too_few).count()).unwrap_or(u32::MAX)
}

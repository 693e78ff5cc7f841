//! Sets of indices as ranges.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A set of indices, as sorted ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(crate) struct Ranges(Vec<Range<u64>>);

/// The reason for which pairs of numbers are not ranges.
#[derive(Debug, Error)]
#[error("ranges of indices must be sorted, not empty and disjoint")]
pub(crate) struct RangesError;

impl Ranges {
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.0.first().map(|range| range.start)
    }

    pub(crate) fn contains(&self, index: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= index);
        after > 0 && index < self.0[after - 1].end
    }

    /// Adds a range. Indices that are in the set already are not added again.
    pub(crate) fn insert(&mut self, mut new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let from = self.0.partition_point(|range| range.end < new.start);
        let to = self.0.partition_point(|range| range.start <= new.end);
        if let Some(touching) = self.0.get(from..to).filter(|touching| !touching.is_empty()) {
            new.start = new.start.min(touching[0].start);
            new.end = new.end.max(touching[touching.len() - 1].end);
        }
        self.0.splice(from..to, [new]);
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Removes an index. Returns whether it was in the set.
    pub(crate) fn remove(&mut self, index: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= index);
        let Some(place) = after.checked_sub(1).filter(|&place| index < self.0[place].end) else {
            return false;
        };
        let Range { start, end } = self.0[place];
        let parts = [start..index, index + 1..end].into_iter().filter(|part| !part.is_empty());
        self.0.splice(place..=place, parts);
        true
    }

    /// Removes consecutive indices from the front, at most so many.
    pub(crate) fn take_front(&mut self, most: u64) -> Option<Range<u64>> {
        let first = self.0.first_mut()?;
        let middle = first.start.saturating_add(most).min(first.end);
        let taken = first.start..middle;
        first.start = middle;
        if first.is_empty() {
            self.0.remove(0);
        }
        Some(taken).filter(|taken| !taken.is_empty())
    }

    /// Removes so many indices from the back.
    pub(crate) fn take_back(&mut self, mut count: u64) -> Self {
        let mut taken = Vec::new();
        while count > 0
            && let Some(last) = self.0.last_mut()
        {
            let middle = last.end.saturating_sub(count).max(last.start);
            count -= last.end - middle;
            taken.push(middle..last.end);
            last.end = middle;
            if last.is_empty() {
                self.0.pop();
            }
        }
        taken.reverse();
        Self(taken)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        self.iter().flatten()
    }
}

impl From<Range<u64>> for Ranges {
    fn from(range: Range<u64>) -> Self {
        let mut ranges = Self::default();
        ranges.insert(range);
        ranges
    }
}

impl From<Ranges> for Vec<(u64, u64)> {
    fn from(Ranges(ranges): Ranges) -> Self {
        ranges.into_iter().map(|Range { start, end }| (start, end)).collect()
    }
}

impl TryFrom<Vec<(u64, u64)>> for Ranges {
    type Error = RangesError;

    fn try_from(pairs: Vec<(u64, u64)>) -> Result<Self, RangesError> {
        let are_sorted = pairs.windows(2).all(|pair| pair[0].1 < pair[1].0);
        if !are_sorted || pairs.iter().any(|&(start, end)| start >= end) {
            return Err(RangesError);
        }
        Ok(Self(pairs.into_iter().map(|(start, end)| start..end).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn check(ranges: &Ranges, model: &BTreeSet<u64>) {
        assert_eq!(ranges.indices().collect::<BTreeSet<_>>(), *model);
        assert_eq!(ranges.len(), model.len() as u64);
        assert!((0..70).all(|index| ranges.contains(index) == model.contains(&index)));
        let pairs: Vec<(u64, u64)> = ranges.clone().into();
        assert_eq!(Ranges::try_from(pairs).expect("they are sorted"), *ranges);
    }

    proptest! {
        #[test]
        fn ranges_behave_like_set(steps in vec((0_u8..4, 0_u64..60, 0_u64..9), 0..40)) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (step, index, count) in steps {
                match step {
                    0 => {
                        ranges.insert(index..index + count);
                        model.extend(index..index + count);
                    }
                    1 => prop_assert_eq!(ranges.remove(index), model.remove(&index)),
                    2 => {
                        let taken: Vec<u64> = ranges.take_front(count).into_iter().flatten().collect();
                        prop_assert!(count == 0 || taken.is_empty() == model.is_empty());
                        for index in taken {
                            prop_assert_eq!(model.pop_first(), Some(index));
                        }
                    }
                    _ => {
                        let taken: BTreeSet<u64> = ranges.take_back(count).indices().collect();
                        let kept = model.len().saturating_sub(usize::try_from(count)?);
                        let expected: BTreeSet<u64> = model.iter().copied().skip(kept).collect();
                        model.retain(|index| !expected.contains(index));
                        prop_assert_eq!(taken, expected);
                    }
                }
                check(&ranges, &model);
            }
        }
    }

    #[test]
    fn invalid_pairs_are_refused() {
        for pairs in [vec![(1, 1)], vec![(2, 1)], vec![(0, 2), (2, 3)], vec![(5, 6), (0, 1)]] {
            assert!(Ranges::try_from(pairs).is_err());
        }
    }
}

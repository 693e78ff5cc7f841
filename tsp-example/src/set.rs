//! A set of small numbers, such as cities, as bits.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of numbers below `64 * W`. As an iterator it returns them in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set<const W: usize>([u64; W]);

impl<const W: usize> Default for Set<W> {
    fn default() -> Self {
        Self([0; W])
    }
}

impl<const W: usize> Set<W> {
    /// Creates the set of the numbers below `n`.
    pub(crate) fn first(n: usize) -> Self {
        let mut set = Self::default();
        set.extend(0..n);
        set
    }

    #[inline]
    pub(crate) fn insert(&mut self, number: usize) {
        self.0[Self::word(number)] |= 1 << (number % 64);
    }

    #[inline]
    pub(crate) fn without(mut self, number: usize) -> Self {
        self.0[Self::word(number)] &= !(1 << (number % 64));
        self
    }

    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        number < 64 * W && self.0[Self::word(number)] & (1 << (number % 64)) != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the index of the word that contains a number. A single word needs no computation.
    #[inline]
    fn word(number: usize) -> usize {
        if W == 1 { 0 } else { number / 64 }
    }
}

#[allow(clippy::copy_iterator, reason = "a set is a value; iterating consumes a copy")]
impl<const W: usize> Iterator for Set<W> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        for (at, word) in self.0.iter_mut().enumerate() {
            if *word != 0 {
                let number = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(at * 64 + number);
            }
        }
        None
    }
}

impl<const W: usize> Extend<usize> for Set<W> {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, numbers: I) {
        for number in numbers {
            self.insert(number);
        }
    }
}

impl<const W: usize> Serialize for Set<W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de, const W: usize> Deserialize<'de> for Set<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<u64>::deserialize(deserializer)?;
        let count = words.len();
        let wrong = |_| serde::de::Error::custom(format!("a set of {count} words where {W} were expected"));
        Ok(Self(words.try_into().map_err(wrong)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_iterates_over_its_numbers_in_order() {
        let mut set = Set::<4>::default();
        set.extend([200, 3, 64, 63]);
        let set = set.without(64);
        assert!(set.contains(63) && !set.contains(64) && !set.contains(256) && set.len() == 3);
        assert_eq!(set.collect::<Vec<_>>(), [3, 63, 200]);
        assert!(Set::<1>::first(0).is_empty());
        assert_eq!(Set::<1>::first(64).len(), 64);
    }

    #[test]
    fn set_of_another_size_is_not_decoded() {
        let set = Set::<2>::first(70);
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<Set<2>>(&text).unwrap(), set);
        assert!(serde_json::from_str::<Set<1>>(&text).is_err());
    }
}

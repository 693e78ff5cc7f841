//! A set of vertices, as bits.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A set of numbers below `64 * W`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set<const W: usize>([u64; W]);

impl<const W: usize> Set<W> {
    /// Removes a number.
    #[inline]
    pub(super) fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    /// Returns whether the set is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Returns the smallest number in a word.
    #[inline]
    pub(super) fn first_of(&self, word: usize) -> Option<usize> {
        let bits = self.0[word];
        (bits != 0).then(|| 64 * word + bits.trailing_zeros() as usize)
    }

    /// Returns the intersection with another set.
    #[inline]
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut common = *self;
        for (word, bits) in common.0.iter_mut().zip(other.0) {
            *word &= bits;
        }
        common
    }

    /// Removes the numbers of another set, from a given word on.
    #[inline]
    pub(super) fn subtract_from(&mut self, first: usize, other: &Self) {
        for (word, bits) in self.0[first..].iter_mut().zip(&other.0[first..]) {
            *word &= !bits;
        }
    }
}

impl<const W: usize> FromIterator<usize> for Set<W> {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut set = Self([0; W]);
        for number in numbers {
            set.0[number / 64] |= 1 << (number % 64);
        }
        set
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
        words
            .try_into()
            .map(Self)
            .map_err(|_| D::Error::custom(format!("{count} words where {W} were expected")))
    }
}

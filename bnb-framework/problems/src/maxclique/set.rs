//! A set of vertices, as bits.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A set of numbers below `64 * W`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set<const W: usize>([u64; W]);

/// The intersection of two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shared {
    Nothing,
    One(usize),
    More,
}

impl<const W: usize> Set<W> {
    pub(super) const EMPTY: Self = Self([0; W]);

    #[inline]
    pub(super) fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    #[inline]
    pub(super) fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    #[inline]
    pub(super) fn contains(&self, number: usize) -> bool {
        self.0[number / 64] & (1 << (number % 64)) != 0
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

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

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let ones = |(word, &bits): (usize, &u64)| {
            let rest = |&bits: &u64| (bits != 0).then(|| bits & (bits - 1));
            let left = std::iter::successors(Some(bits), rest).take_while(|&bits| bits != 0);
            left.map(move |bits| 64 * word + bits.trailing_zeros() as usize)
        };
        self.0.iter().enumerate().flat_map(ones)
    }

    #[inline]
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut common = *self;
        for (word, bits) in common.0.iter_mut().zip(other.0) {
            *word &= bits;
        }
        common
    }

    #[inline]
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = *self;
        rest.subtract_from(0, other);
        rest
    }

    #[inline]
    pub(super) fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(&word, bits)| word & bits == 0)
    }

    /// Returns the intersection: the element, if there is exactly one.
    #[inline]
    pub(super) fn shared(&self, other: &Self) -> Shared {
        let mut found = Shared::Nothing;
        for (word, (&bits, others)) in self.0.iter().zip(other.0).enumerate() {
            let both = bits & others;
            if both == 0 {
                continue;
            }
            if found != Shared::Nothing || both & (both - 1) != 0 {
                return Shared::More;
            }
            found = Shared::One(64 * word + both.trailing_zeros() as usize);
        }
        found
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
        let mut set = Self::EMPTY;
        numbers.into_iter().for_each(|number| set.insert(number));
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

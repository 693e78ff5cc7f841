//! Exact sums of doubles. The sum is a fixed-point number with the bits of all doubles, and is rounded once, when it is read.
//! So it has the same bits for any order of its summands, and those of `math.fsum` in Python.

use serde::{Deserialize, Serialize};

/// The number of words: doubles have bits from 2^-1074 to 2^1023, and 2^77 of them do not overflow.
const WORDS: usize = 34;

/// The number of bits of the significand of a double. All bits except the highest one are stored: `STORED` is their mask.
const SIGNIFICAND: usize = 53;
const STORED: u64 = (1 << (SIGNIFICAND - 1)) - 1;

/// The bits of an infinity.
const INFINITY: u64 = 0x7ff << (SIGNIFICAND - 1);

/// An exact sum of doubles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub(crate) struct ExactSum {
    /// In units of 2^-1074, in two's complement, the lowest word first.
    words: [u64; WORDS],
    /// Whether there are summands that are no finite numbers: NaN, ∞ and -∞.
    special: [bool; 3],
}

/// A sum as it is sent and written: the number of lowest words that are 0, the words above them, whether all further words
/// have all bits, and the summands that are no finite numbers.
#[derive(Serialize, Deserialize)]
struct Encoded(u8, Vec<u64>, bool, [bool; 3]);

impl Default for ExactSum {
    fn default() -> Self {
        Self { words: [0; WORDS], special: [false; 3] }
    }
}

impl From<ExactSum> for Encoded {
    fn from(ExactSum { words, special }: ExactSum) -> Self {
        let is_negative = words[WORDS - 1] >> 63 == 1;
        let rest = if is_negative { u64::MAX } else { 0 };
        let end = words.iter().rposition(|word| *word != rest).map_or(0, |last| last + 1);
        let zeros = words[..end].iter().take_while(|word| **word == 0).count();
        Self(u8::try_from(zeros).unwrap_or(u8::MAX), words[zeros..end].to_vec(), is_negative, special)
    }
}

impl TryFrom<Encoded> for ExactSum {
    type Error = String;

    fn try_from(Encoded(zeros, middle, is_negative, special): Encoded) -> Result<Self, String> {
        let mut words = [if is_negative { u64::MAX } else { 0 }; WORDS];
        let (zeros, end) = (usize::from(zeros), usize::from(zeros) + middle.len());
        words.get_mut(zeros..end).ok_or_else(|| format!("a sum has {WORDS} words"))?.copy_from_slice(&middle);
        words[..zeros].fill(0);
        Ok(Self { words, special })
    }
}

impl ExactSum {
    pub(crate) fn add(&mut self, summand: f64) {
        if !summand.is_finite() {
            let kind = if summand.is_nan() { 0 } else { 1 + usize::from(summand.is_sign_negative()) };
            self.special[kind] = true;
            return;
        }
        let bits = summand.to_bits();
        let exponent = (bits >> (SIGNIFICAND - 1) & 0x7ff) as usize;
        // A subnormal number has the unit of the smallest normal ones, and no hidden bit.
        let (place, hidden) = if exponent == 0 { (0, 0) } else { (exponent - 1, STORED + 1) };
        let significand = bits & STORED | hidden;
        let mut words = [0; WORDS];
        words[place / 64] = significand << (place % 64);
        // In two steps, since the offset may be 0.
        words[place / 64 + 1] = significand >> 1 >> (63 - place % 64);
        self.add_words(&if summand.is_sign_negative() { negated(&words) } else { words });
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.add_words(&other.words);
        for (one, other) in self.special.iter_mut().zip(other.special) {
            *one |= other;
        }
    }

    fn add_words(&mut self, words: &[u64; WORDS]) {
        let mut carry = false;
        for (word, added) in self.words.iter_mut().zip(words) {
            let (sum, first) = word.overflowing_add(*added);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, first | second);
        }
    }

    /// Returns the nearest double; of two, that with an even significand.
    pub(crate) fn value(&self) -> f64 {
        match self.special {
            [false, false, false] => {}
            [false, true, false] => return f64::INFINITY,
            [false, false, true] => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let is_negative = self.words[WORDS - 1] >> 63 == 1;
        let words = if is_negative { negated(&self.words) } else { self.words };
        let Some(top) = words.iter().rposition(|word| *word != 0) else { return 0.0 };
        let highest = top * 64 + 63 - words[top].leading_zeros() as usize;
        // The number of bits that are rounded. A double with the lowest unit has the bits of its integer.
        let shift = (highest + 1).saturating_sub(SIGNIFICAND);
        let (word, offset) = (shift / 64, shift % 64);
        let next = words.get(word + 1).copied().unwrap_or(0);
        let significand = (words[word] >> offset | next << 1 << (63 - offset)) & (STORED << 1 | 1);
        let bit = |place: usize| words[place / 64] >> (place % 64) & 1 == 1;
        let is_half = shift > 0 && bit(shift - 1);
        let is_more = || significand & 1 == 1 || (0..shift - 1).any(bit);
        // The hidden bit of a normal number increases its exponent by one.
        let bits = ((shift as u64) << (SIGNIFICAND - 1)) + significand + u64::from(is_half && is_more());
        let magnitude = f64::from_bits(bits.min(INFINITY));
        if is_negative { -magnitude } else { magnitude }
    }
}

/// Returns the negative number in two's complement.
fn negated(words: &[u64; WORDS]) -> [u64; WORDS] {
    let mut carry = true;
    words.map(|word| {
        let (negated, overflows) = (!word).overflowing_add(u64::from(carry));
        carry = overflows;
        negated
    })
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "sums are exact")]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn sum(summands: &[f64]) -> f64 {
        let mut sum = ExactSum::default();
        for summand in summands {
            sum.add(*summand);
        }
        sum.value()
    }

    /// The algorithm of `math.fsum` (Shewchuk), for sums without overflow.
    fn fsum(summands: &[f64]) -> f64 {
        let mut partials: Vec<f64> = Vec::new();
        for &summand in summands {
            let (mut x, mut kept) = (summand, Vec::new());
            for &partial in &partials {
                let (large, small) = if x.abs() < partial.abs() { (partial, x) } else { (x, partial) };
                let high = large + small;
                let low = small - (high - large);
                if low != 0.0 {
                    kept.push(low);
                }
                x = high;
            }
            kept.push(x);
            partials = kept;
        }
        let Some(mut high) = partials.pop() else { return 0.0 };
        let mut low = 0.0;
        while let Some(partial) = partials.pop() {
            let before = high;
            high = before + partial;
            low = partial - (high - before);
            if low != 0.0 {
                break;
            }
        }
        // Half an even case: the next partial decides.
        if let Some(&next) = partials.last()
            && (low < 0.0 && next < 0.0 || low > 0.0 && next > 0.0)
        {
            let twice = low * 2.0;
            let rounded = high + twice;
            if twice == rounded - high {
                high = rounded;
            }
        }
        high
    }

    #[test]
    fn sums_are_exact() {
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[1e308, 1.0, -1e308]), 1.0);
        assert_eq!(sum(&[1e308, 1e308, -1e308]), 1e308, "an intermediate sum is no double");
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[-f64::MAX, -f64::MAX]), f64::NEG_INFINITY);
        let smallest = f64::from_bits(1);
        assert_eq!(sum(&[smallest, smallest, -f64::MIN_POSITIVE, f64::MIN_POSITIVE]), 2.0 * smallest);
        assert_eq!(sum(&[1.0, f64::EPSILON / 2.0]), 1.0, "a tie is rounded to even");
        assert_eq!(sum(&[1.0, f64::EPSILON / 2.0, smallest]), 1.0 + f64::EPSILON);
        assert_eq!(sum(&[1.0 + f64::EPSILON, f64::EPSILON / 2.0]), 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(sum(&[-0.0]).to_bits(), 0);
        assert_eq!(sum(&[]), 0.0);
    }

    #[test]
    fn sums_with_infinities_and_nan() {
        assert_eq!(sum(&[f64::INFINITY, 1.0]), f64::INFINITY);
        assert_eq!(sum(&[f64::NEG_INFINITY, f64::MAX]), f64::NEG_INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan() && sum(&[f64::NAN, 1.0]).is_nan());
    }

    fn encoded(sum: &ExactSum) -> Vec<u8> {
        bincode::serde::encode_to_vec(sum, bincode::config::standard()).unwrap()
    }

    fn decoded(bytes: &[u8]) -> Option<ExactSum> {
        let decoded = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
        decoded.ok().map(|(sum, _)| sum)
    }

    #[test]
    fn encoded_sum_has_only_its_words() {
        let mut exact = ExactSum::default();
        assert!(encoded(&exact).len() <= 6);
        for number in 0..1_000 {
            exact.add(f64::from(number) * -0.3);
        }
        assert!(encoded(&exact).len() <= 6 + 3 * 9, "{exact:?}");
        for (zeros, words) in [(1, WORDS), (u8::MAX, 0), (0, WORDS + 1)] {
            let wrong = Encoded(zeros, vec![1; words], false, [false; 3]);
            let bytes = bincode::serde::encode_to_vec(wrong, bincode::config::standard()).unwrap();
            assert!(decoded(&bytes).is_none(), "{zeros} and {words} words");
        }
    }

    proptest! {
        #[test]
        fn sum_has_the_bits_of_fsum(summands in vec(-1e300..1e300_f64, 0..30), small in vec(any::<i16>(), 0..30)) {
            let small = small.iter().map(|&exponent| 1.7_f64.powi(i32::from(exponent) / 40));
            let summands: Vec<f64> = summands.into_iter().chain(small).collect();
            prop_assert_eq!(sum(&summands).to_bits(), fsum(&summands).to_bits());
        }

        #[test]
        fn sum_of_a_single_double_is_this_double(summand in any::<f64>().prop_filter("finite", |it| it.is_finite())) {
            prop_assert_eq!(sum(&[summand]), summand);
        }

        #[test]
        fn encoded_sum_round_trips(summands in vec(any::<f64>(), 0..5)) {
            let mut exact = ExactSum::default();
            for summand in summands {
                exact.add(summand);
            }
            prop_assert_eq!(decoded(&encoded(&exact)), Some(exact));
        }
    }
}

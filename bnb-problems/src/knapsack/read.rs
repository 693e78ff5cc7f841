//! Files of items, in two formats, and decimals as they are.

use bnb_framework::{
    Problem as _,
    words::{ReadError, Words},
};

use super::Knapsack;

/// The most items that are read.
const ITEMS_MAX: usize = 1_000_000;
/// The most decimals of a number.
const DECIMALS_MAX: usize = 12;

/// What is said where the lines are not those of a format.
const FORMATS: &str = "; the formats are: ITEMS CAPACITY (on a line, or a line each), then VALUE WEIGHT on a line for each item; and \
                       PEBBL's: CAPACITY, then NAME WEIGHT VALUE on a line for each item";

/// A number as it is in the file: its digits without the point, and how many stand behind that.
pub(super) struct Decimal {
    pub(super) digits: u64,
    pub(super) decimals: usize,
}

/// What a file says: the capacity, and the value and the weight of each item.
struct Given {
    capacity: Decimal,
    items: Vec<(Decimal, Decimal)>,
    /// The places of those in the solution that the file gives, if it does.
    solution: Option<Vec<usize>>,
}

impl Given {
    /// The problem in units of the last decimals; `None` if sums are too large.
    fn in_whole_numbers(&self) -> Option<Knapsack> {
        let most = |of: fn(&(Decimal, Decimal)) -> usize| self.items.iter().map(of).max().unwrap_or(0);
        let value_decimals = most(|(value, _)| value.decimals);
        let weight_decimals = most(|(_, weight)| weight.decimals).max(self.capacity.decimals);
        let item = |(value, weight): &(Decimal, Decimal)| {
            value.in_units(value_decimals).zip(weight.in_units(weight_decimals))
        };
        let items: Vec<(u64, u64)> = self.items.iter().map(item).collect::<Option<_>>()?;
        let sum = |sum: u64, one: u64| sum.checked_add(one).filter(|&sum| sum < 1 << 63);
        items.iter().try_fold((0, 0), |(v, w), item| Some((sum(v, item.0)?, sum(w, item.1)?)))?;
        Some(Knapsack::new(self.capacity.in_units(weight_decimals)?, &items, value_decimals))
    }
}

/// Reads items in either format. No file is both: after the line of the capacity, a line of items has two
/// words in the one and three in the other.
pub(super) fn parse(file: &str, text: &str) -> Result<Knapsack, ReadError> {
    let mut words = Words::new(file, text);
    let given = if is_named(words.clone()) { named(&mut words)? } else { counted(&mut words)? };
    let knapsack = given
        .in_whole_numbers()
        .ok_or_else(|| words.wrong("numbers too large", "sums below 2^63 in units of the last decimal"))?;
    if let Some(solution) = given.solution
        && knapsack.cost_of(&solution).is_none()
    {
        let found = "a solution that weighs more than the capacity";
        return Err(words.at(words.line(), found, "one that fits, or VALUE before WEIGHT on each line"));
    }
    Ok(knapsack)
}

/// Whether the first line is a single word, and the second has three.
fn is_named(mut words: Words<'_>) -> bool {
    let mut in_line = || {
        let mut count = usize::from(words.word("").is_ok());
        while words.peek_here().is_some() && words.word_here("").is_ok() {
            count += 1;
        }
        count
    };
    in_line() == 1 && in_line() == 3
}

/// The number of items, the capacity, and the value and the weight of each. What follows may be a solution, a
/// 0 or 1 for each item.
fn counted(words: &mut Words<'_>) -> Result<Given, ReadError> {
    let count = words.number_in("a number of items", 1..=ITEMS_MAX)?;
    let capacity = decimal(words, "the capacity", words.peek_here().is_some())?;
    words.end_here(FORMATS)?;
    let mut items = Vec::new();
    for _ in 0..count {
        let value = decimal(words, "the value of an item", false)?;
        items.push((value, decimal(words, "the weight of an item", true)?));
        words.end_here(FORMATS)?;
    }
    let mut solution = None;
    if !words.is_at_end() {
        let mut taken = Vec::new();
        for item in 0..count {
            if words.number_in("whether an item is in the solution,", 0..=1)? == 1 {
                taken.push(item);
            }
        }
        solution = Some(taken);
        words.end()?;
    }
    Ok(Given { capacity, items, solution })
}

/// The capacity alone, and the name, the weight and the value of each item, as PEBBL's example reads them.
fn named(words: &mut Words<'_>) -> Result<Given, ReadError> {
    let capacity = decimal(words, "the capacity", false)?;
    let (mut items, mut are_numbers) = (Vec::new(), true);
    while !words.is_at_end() {
        are_numbers &= Decimal::read(words.word("the name of an item")?).is_some();
        if items.len() == ITEMS_MAX {
            return Err(words.at(words.line(), "more items", &format!("at most {ITEMS_MAX}")));
        }
        let weight = decimal(words, "the weight of an item", true)?;
        items.push((decimal(words, "the value of an item", true)?, weight));
        words.end_here(FORMATS)?;
    }
    // Others write the number of items, and number these: which is meant cannot be seen.
    if are_numbers && capacity.in_units(0) == u64::try_from(items.len()).ok() {
        let found = "a first line that may be the capacity, or the number of items";
        return Err(words.at(1, found, &format!("one that can be told apart{FORMATS}")));
    }
    Ok(Given { capacity, items, solution: None })
}

/// The next word as a decimal, on the same line or wherever it is.
fn decimal(words: &mut Words<'_>, what: &str, is_here: bool) -> Result<Decimal, ReadError> {
    let expected = format!("{what}, a number that is not negative, with at most {DECIMALS_MAX} decimals");
    let word =
        if is_here { words.word_here(&format!("{expected}{FORMATS}"))? } else { words.word(&expected)? };
    Decimal::read(word).ok_or_else(|| words.wrong(word, &expected))
}

impl Decimal {
    /// Reads digits, with a point among them or without.
    pub(super) fn read(word: &str) -> Option<Self> {
        let (whole, part) = word.split_once('.').unwrap_or((word, ""));
        let part = part.trim_end_matches('0');
        let both = [whole, part].concat();
        let sound = both.bytes().all(|byte| byte.is_ascii_digit())
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && part.len() <= DECIMALS_MAX;
        let digits = if both.is_empty() { Some(0) } else { both.parse().ok() };
        Some(Self { digits: digits.filter(|_| sound)?, decimals: part.len() })
    }

    /// The number in units of a decimal; `None` if that is no whole number of 64 bits.
    pub(super) fn in_units(&self, decimals: usize) -> Option<u64> {
        let missing = u32::try_from(decimals.checked_sub(self.decimals)?).ok()?;
        self.digits.checked_mul(10_u64.checked_pow(missing)?)
    }
}
